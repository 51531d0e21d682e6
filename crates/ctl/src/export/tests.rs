//! The errors of exports and imports.

#[allow(dead_code, clippy::disallowed_methods, reason = "these tests need a part of it")]
#[path = "../../../../bin/vvm/tests/support/stream.rs"]
mod stream;

use std::fs;

use async_trait::async_trait;
use clock::Instant;
use istorage::{
    Call, CallAnswer, KeyspaceName, Result as StorageResult, SharedStorage, StorageWrapper,
    mem::MemDriver,
};

use super::*;
use crate::{CtlCommand, command::parsed as parsed_line};

/// What fails: making the keyspace of an application, or each call to it.
#[derive(Clone, Copy, Debug)]
enum FailingPart {
    Create(fn() -> istorage::Error),
    Rows(fn() -> istorage::Error),
}

/// A storage that works only for the system keyspace.
#[derive(Debug)]
struct FailingDriver {
    inner: Arc<MemDriver>,
    fails: FailingPart,
}

#[derive(Debug)]
struct FailingStorage(SharedStorage, fn() -> istorage::Error);

impl StorageWrapper for FailingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    async fn call(&self, _: Call<'_>, _: Instant) -> StorageResult<CallAnswer> {
        Err(self.1())
    }
}

#[async_trait]
impl StorageDriver for FailingDriver {
    fn name(&self) -> &'static str {
        "failing"
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> StorageResult<()> {
        match self.fails {
            FailingPart::Create(error) if *keyspace != system_name() => Err(error()),
            _ => self.inner.create(keyspace, deadline).await,
        }
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> StorageResult<Option<SharedStorage>> {
        let opened = self.inner.open(keyspace, deadline).await?;
        Ok(match self.fails {
            FailingPart::Rows(error) if *keyspace != system_name() => {
                opened.map(|inner| Arc::new(FailingStorage(inner, error)) as SharedStorage)
            }
            _ => opened,
        })
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> StorageResult<()> {
        self.inner.drop_keyspace(keyspace, deadline).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

fn system_name() -> KeyspaceName {
    KeyspaceName::new("sysvvm").unwrap()
}

fn memory() -> NamedStorage {
    NamedStorage { target: StorageTarget::Mem, system: system_name() }
}

/// Imports a file into a storage. `change` may change the file after it was checked.
async fn imported(
    driver: Arc<dyn StorageDriver>,
    again: bool,
    change: impl FnOnce(&Path),
) -> Result<String, CommandError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in");
    stream::stream_of(&file, 4, 10);
    let checked = check(&file).unwrap();
    change(&file);
    let storage = StorageArgs { storage: None, config: None };
    let args = ImportArgs { file: Some(file), app: None, again, discard: false, storage };
    let app = checked.app().clone();
    with_driver(&args, &memory(), &app, Some(checked), &driver, Clock::system()).await
}

/// A storage that was corrupt in the middle of an import ended the command as if the storage had
/// been refused before anything was written, and without a word about the rows that are left.
#[tokio::test]
async fn an_import_that_began_and_failed_says_so() {
    let corrupt = || istorage::Error::corrupt("page 7");
    let invalid = || istorage::Error::invalid("no rights");
    let unknown = || istorage::Error::outcome_unknown("no answer");
    for (fails, code, why) in [
        (FailingPart::Rows(corrupt), 1, "page 7"),
        (FailingPart::Rows(invalid), 1, "no rights"),
        (FailingPart::Rows(unknown), 4, "no answer"),
        (FailingPart::Create(invalid), 1, "no rights"),
        (FailingPart::Create(unknown), 4, "no answer"),
    ] {
        let inner = Arc::new(MemDriver::new(Clock::system()));
        let failing = Arc::new(FailingDriver { inner: Arc::clone(&inner), fails });
        let failed = imported(failing, false, |_| {}).await.unwrap_err();
        assert_eq!(failed.code(), code, "{fails:?}: {failed}");
        let text = failed.to_string();
        let unfinished = "the import of demo/shop has not finished";
        let parts = [why, unfinished, "--again --app demo/shop`", "--discard --app demo/shop`"];
        for part in parts {
            assert!(text.contains(part), "{fails:?}: {part}: {text}");
        }
        // The advice helps.
        let again = imported(Arc::clone(&inner) as _, false, |_| {}).await.unwrap_err();
        assert_eq!(again.code(), 3, "{again}");
        assert!(again.to_string().contains("--again --app demo/shop`"), "{again}");
        let done = imported(inner, true, |_| {}).await.unwrap();
        let hint = "appear after a node has started with it";
        assert!(done.contains("4 events") && done.contains(hint), "{done}");
    }
}

/// The advice named neither the storage nor the application. The copied command imported into the
/// usual redb file, and under the name in the export.
#[test]
fn the_advised_commands_name_the_same_storage_and_application() {
    let (file, app) = (Path::new("in"), "acme/new".parse().unwrap());
    for options in [
        &[][..],
        &["--storage", "cassandra:10.0.0.5:9042,10.0.0.6:9042"],
        &["--storage", "dynamodb:http://127.0.0.1:8000"],
        &["--storage", "redb:other/vvm.redb"],
        &["--config", "other/vvm.toml"],
    ] {
        let parsed = |line: &[&str]| {
            let line = ["vvm", "import"].iter().chain(line);
            match parsed_line(line).unwrap() {
                CtlCommand::Import(args) => args,
                other => panic!("{other:?}"),
            }
        };
        let args = parsed(&[&["in"], options].concat());
        let advice = removal_advice(&args, file, &app);
        let advised = advice.split('`').filter_map(|part| part.strip_prefix("vvm import "));
        let advised = advised.map(|line| parsed(&line.split(' ').collect::<Vec<_>>()));
        let [again, discard] = &advised.collect::<Vec<_>>()[..] else { panic!("{advice}") };
        assert!(again.again && again.file.as_deref() == Some(file), "{advice}");
        assert!(discard.discard && discard.file.is_none(), "{advice}");
        for advised in [again, discard] {
            assert_eq!(advised.app.as_ref(), Some(&app), "{advice}");
            assert_eq!(advised.storage.config, args.storage.config, "{advice}");
            assert_eq!(advised.storage.storage, args.storage.storage, "{advice}");
        }
    }
    assert_eq!(shell_word("my file's"), r"'my file'\''s'");
}

/// A file that was exchanged before the import began was reported as an import that has not
/// finished.
#[tokio::test]
async fn an_import_that_did_not_begin_does_not_say_that_it_has_not_finished() {
    let driver = Arc::new(MemDriver::new(Clock::system()));
    let exchange = |file: &Path| fs::write(file, "a letter\n").unwrap();
    let refused = imported(Arc::clone(&driver) as _, false, exchange).await.unwrap_err();
    assert_eq!(refused.code(), 3, "{refused}");
    assert!(refused.to_string().contains("not an export"), "{refused}");
    assert!(!refused.to_string().contains("has not finished"), "{refused}");
    // Nothing is left.
    imported(Arc::clone(&driver) as _, false, |_| {}).await.unwrap();
    let exists = imported(driver, false, |_| {}).await.unwrap_err();
    assert_eq!(exists.code(), 3, "{exists}");
    assert!(!exists.to_string().contains("has not finished"), "{exists}");
}

/// The import had begun, and its rows are gone. The exit code is not that of a wrong configuration.
#[test]
fn an_import_that_another_command_discarded_says_so() {
    let app = "demo/shop".parse().unwrap();
    let discarded = ImportError::System(sysvvm::Error::ImportDiscarded { app });
    let error = not_imported(&StorageTarget::Mem, &discarded);
    assert_eq!(error.code(), 1, "{error}");
    let text = error.to_string();
    assert!(text.contains("another command has discarded this import"), "{text}");
    assert!(!text.contains("has not finished") && !text.contains("--again"), "{text}");
}

/// `vvm import --discard` on a storage without a system keyspace made one.
#[tokio::test]
async fn a_storage_without_an_import_gets_no_keyspace() {
    let args = ImportArgs {
        file: None,
        app: Some("demo/shop".parse().unwrap()),
        again: false,
        discard: true,
        storage: StorageArgs { storage: None, config: None },
    };
    let clock = Clock::system();
    let app = "demo/shop".parse().unwrap();
    let driver: Arc<dyn StorageDriver> = Arc::new(MemDriver::new(clock.clone()));
    let refused = with_driver(&args, &memory(), &app, None, &driver, clock.clone()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), 3);
    assert!(refused.to_string().contains("mem has no keyspace sysvvm"), "{refused}");
    let found = driver.open(&system_name(), clock.now() + OPEN_TIME).await.unwrap();
    assert!(found.is_none(), "the command made the keyspace");
}

/// The message of a full disk named no file.
#[test]
fn an_error_of_the_file_names_it() {
    let (app, path) = ("demo/shop".parse().unwrap(), Path::new("/backup/shop.ndjson"));
    let full = ExportError::Write(std::io::Error::other("the disk is full"));
    let error = not_written(&StorageTarget::Mem, &app, path, &full);
    let expected = "/backup/shop.ndjson: cannot write the export: the disk is full";
    assert_eq!(error.to_string(), expected);
}

/// An export that has begun ended with 3 at a damaged row, as if the configuration were wrong.
#[test]
fn an_export_that_has_begun_is_unfinished_unless_the_storage_is_gone() {
    let (app, path) = ("demo/shop".parse().unwrap(), Path::new("out"));
    let row = AppRow::Plog(3, eventlog::Offset(12));
    let damaged = eventlog::Error::DamagedRow(eventlog::DamagedRow::Missing(row));
    for (error, code, parts) in [
        (damaged.into(), 1, &["event 12 of the log of partition 3", "`vvm repair list`"][..]),
        (istorage::Error::corrupt("page 7").into(), 1, &["page 7"]),
        (istorage::Error::unavailable("no server").into(), 4, &["no server"]),
    ] {
        let error = not_written(&StorageTarget::Mem, &app, path, &error);
        assert_eq!(error.code(), code, "{error}");
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
}
