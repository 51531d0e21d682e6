//! Imports that end early.

use std::{
    io::{self, BufReader, Read},
    sync::{Arc, Mutex},
    time::Duration,
};

use appstream::{
    ImportError, UnfinishedImport, check_stream,
    clock::{Clock, Instant, ManualClock},
    eventlog::TrustLevel,
    import,
    istorage::{
        Call, CallAnswer, Capabilities, Result, RowLimits, SharedStorage, StorageWrapper,
        WrappedDriver, mem::MemDriver,
    },
    sysvvm::{Error, System},
};
use docnumbers::{Definition, Policy, Reset, Series};
use futures::FutureExt;
use tokio::sync::Notify;

use crate::scene::{FAR, Scene, empty, import_into, name, sorted_lines, system, sysvvm};

/// A file where something happens once, after some bytes.
struct Interrupted<'a> {
    rest: &'a [u8],
    left: usize,
    then: &'a (dyn Fn() -> io::Result<()> + Sync),
}

impl Read for Interrupted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            (self.then)()?;
            self.left = usize::MAX;
        }
        let most = self.left.min(to.len());
        let read = self.rest.read(&mut to[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// The import ends at each part of the stream. No node opens the application, and another import is
/// refused. Once the import is discarded, a new one gives the same application.
#[tokio::test]
async fn an_import_that_ended_early_is_discarded_and_repeated() {
    let stream = Scene::full(TrustLevel::Zero, false).await.export().await;
    let checked = check_stream(&stream[..]).unwrap();
    let driver = empty();
    let system = system(&driver).await;
    let begin = stream.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let gone = || Err(io::Error::other("the disk is gone"));
    for left in (begin..stream.len()).step_by(stream.len() / 20) {
        let source = BufReader::with_capacity(64, Interrupted { rest: &stream, left, then: &gone });
        let failed = import(&system, &name(), source, &checked, Clock::system(), FAR).await;
        let ImportError::Unfinished(why) = failed.unwrap_err() else { panic!("not begun") };
        assert!(matches!(why, UnfinishedImport::Stream(_)), "{why:?}");
        let opened = system.open_app(&name(), FAR).await;
        assert!(matches!(opened, Err(Error::Importing { .. })), "{opened:?}");
        let again = import_into(&driver, &stream).await;
        assert!(matches!(again, Err(ImportError::System(Error::Importing { .. }))), "{again:?}");
        system.discard_import(&name(), FAR).await.unwrap();
    }
    import_into(&driver, &stream).await.unwrap();
    let target = Scene::open(driver, TrustLevel::Zero, false).await;
    assert_eq!(sorted_lines(&target.export().await), sorted_lines(&stream));
}

/// The process is killed at each write, before the write is done or after that.
#[tokio::test]
async fn an_import_that_was_killed_at_any_write_is_repeated() {
    let stream = Scene::full(TrustLevel::Zero, false).await.export().await;
    let checked = check_stream(&stream[..]).unwrap();
    let lives = (0..).flat_map(|writes| [(writes, false), (writes, true)]);
    for (writes, is_last_done) in lives {
        let driver = empty();
        let plain = system(&driver).await;
        let died = Arc::new(Notify::new());
        let left = Arc::new(Mutex::new(writes));
        let wrap = {
            let died = Arc::clone(&died);
            move |inner| {
                let (died, left) = (Arc::clone(&died), Arc::clone(&left));
                Arc::new(Dying { inner, left, is_last_done, died }) as SharedStorage
            }
        };
        let dying = Arc::new(WrappedDriver::new(Arc::clone(&driver) as _, wrap));
        let over = System::open(dying, sysvvm(), Clock::system(), FAR).await.unwrap();
        let name = name();
        let importing = import(&over, &name, &stream[..], &checked, Clock::system(), FAR);
        let is_finished = tokio::select! {
            done = importing => { done.unwrap(); true }
            () = died.notified() => false,
        };
        match plain.open_app(&name, FAR).await {
            Ok(_) => {}
            Err(Error::Importing { .. }) => {
                plain.discard_import(&name, FAR).await.unwrap();
                import_into(&driver, &stream).await.unwrap();
            }
            Err(Error::DoesNotExist { .. }) => drop(import_into(&driver, &stream).await.unwrap()),
            Err(other) => panic!("{other}"),
        }
        let target = Scene::open(driver, TrustLevel::Zero, false).await;
        assert_eq!(sorted_lines(&target.export().await), sorted_lines(&stream), "{writes}");
        if is_finished {
            assert!(writes > 10, "the import made only {writes} writes");
            return;
        }
    }
}

/// The storage of a process that is killed after some writes.
#[derive(Debug)]
struct Dying {
    inner: SharedStorage,
    left: Arc<Mutex<usize>>,
    /// Whether the write during which the process is killed is done.
    is_last_done: bool,
    died: Arc<Notify>,
}

impl StorageWrapper for Dying {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if !matches!(call, Call::Write(_)) {
            return call.send(&self.inner, deadline).await;
        }
        let less = self.left.lock().unwrap().checked_sub(1);
        if let Some(less) = less {
            *self.left.lock().unwrap() = less;
            return call.send(&self.inner, deadline).await;
        }
        if self.is_last_done {
            let _ = call.send(&self.inner, deadline).await;
        }
        self.died.notify_one();
        std::future::pending().await
    }
}

/// Another whole export replaces the one that was checked.
#[tokio::test]
async fn an_export_that_was_exchanged_is_not_finished() {
    let scene = Scene::deployed(TrustLevel::Zero, false).await;
    let checked = check_stream(&scene.export().await[..]).unwrap();
    drop(scene.fast("ticket", Reset::Never, "owner").await);
    let (other, driver) = (scene.export().await, empty());
    let system = system(&driver).await;
    let failed = import(&system, &name(), &other[..], &checked, Clock::system(), FAR).await;
    let ImportError::Unfinished(why) = failed.unwrap_err() else { panic!("not begun") };
    assert!(matches!(why, UnfinishedImport::Changed), "{why:?}");
    let opened = system.open_app(&name(), FAR).await;
    assert!(matches!(opened, Err(Error::Importing { .. })), "{opened:?}");
}

/// DynamoDB takes smaller rows than redb. The refusal comes before anything is written.
#[tokio::test]
async fn a_row_that_the_storage_cannot_hold_is_refused() {
    let stream = Scene::full(TrustLevel::Zero, false).await.export().await;
    let driver = empty();
    let refused = import_of_small_rows(&driver, &stream).await;
    assert!(matches!(refused, ImportError::RowTooLarge { limit: LIMIT, .. }), "{refused:?}");
    let opened = system(&driver).await.open_app(&name(), FAR).await;
    assert!(matches!(opened, Err(Error::DoesNotExist { .. })), "{opened:?}");
}

/// The row of the schema, of a series, and of a range. Only the rows of events were measured, so
/// the storage refused the others after the application was registered.
#[tokio::test]
async fn a_large_row_that_follows_from_no_event_is_refused() {
    let scene = Scene::deployed(TrustLevel::Zero, false).await;
    let schema = scene.db.application.declarations().schema().to_string().len();
    let refused = import_of_small_rows(&empty(), &scene.export().await).await;
    let ImportError::RowTooLarge { row, .. } = refused else { panic!("{refused:?}") };
    // The row of the deployment also has room for a change of the level.
    assert!((schema..schema + 40).contains(&row), "{row} bytes, and the schema has {schema}");
    let large = schema + 100;
    let series = scene.fast("ticket", Reset::Never, &"x".repeat(large)).await;
    let refused = import_of_small_rows(&empty(), &scene.export().await).await;
    let ImportError::RowTooLarge { row, .. } = refused else { panic!("{refused:?}") };
    assert!((schema..schema + 40).contains(&row), "{row} bytes: the series is small");
    drop(series.next(docnumbers::WsId(1), FAR).await.unwrap());
    let refused = import_of_small_rows(&empty(), &scene.export().await).await;
    let ImportError::RowTooLarge { row, .. } = refused else { panic!("{refused:?}") };
    assert!((large..large + 50).contains(&row), "{row} bytes, and the owner has {large}");
    for at in 0..2 * large / 170 {
        let template = format!("{at:02}{}{{counter:4}}", "-".repeat(170));
        let series = Series::new(Definition::new("long", &template)).unwrap();
        scene.rows().fix(&series, Policy::Gapless, FAR).await.unwrap();
    }
    let refused = import_of_small_rows(&empty(), &scene.export().await).await;
    let ImportError::RowTooLarge { row, .. } = refused else { panic!("{refused:?}") };
    assert!(row > 2 * large, "{row} bytes, and the templates have more");
}

/// A record of a marked event follows from no event, and is a line of its own.
#[tokio::test]
async fn a_large_record_of_a_marked_event_is_refused() {
    let large = 10_000;
    let stream = Scene::with_marked_record(large).await.export().await;
    let refused = import_of_small_rows(&empty(), &stream).await;
    let ImportError::RowTooLarge { row, .. } = refused else { panic!("{refused:?}") };
    assert!((large..large + 500).contains(&row), "{row} bytes, and the name has {large}");
}

/// Imports a stream into a storage that takes small rows only.
async fn import_of_small_rows(driver: &Arc<MemDriver>, stream: &[u8]) -> ImportError {
    let wrap = |inner| Arc::new(SmallRows(inner)) as SharedStorage;
    let narrow = Arc::new(WrappedDriver::new(Arc::clone(driver) as _, wrap));
    let checked = check_stream(stream).unwrap();
    let over = System::open(narrow, sysvvm(), Clock::system(), FAR).await.unwrap();
    import(&over, &name(), stream, &checked, Clock::system(), FAR).await.unwrap_err()
}

/// The bytes of the largest value that [`SmallRows`] takes.
const LIMIT: usize = 150;

/// A storage that takes small values only.
#[derive(Debug)]
struct SmallRows(SharedStorage);

impl StorageWrapper for SmallRows {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.0.capabilities();
        Capabilities { row: RowLimits { value: LIMIT, ..inner.row }, ..inner }
    }
}

/// The storage refuses every other write. The import repeats each of them.
#[tokio::test]
async fn writes_that_the_storage_refused_are_repeated() {
    let stream = Scene::full(TrustLevel::Zero, false).await.export().await;
    let (driver, checked) = (empty(), check_stream(&stream[..]).unwrap());
    let writes = Arc::new(Mutex::new(0));
    let wrap = {
        let writes = Arc::clone(&writes);
        move |inner| {
            let writes = Arc::clone(&writes);
            Arc::new(Refusing { inner, writes }) as SharedStorage
        }
    };
    let refusing = Arc::new(WrappedDriver::new(Arc::clone(&driver) as _, wrap));
    // The first process that opens the system keyspace writes its format.
    drop(system(&driver).await);
    let over = System::open(refusing, sysvvm(), Clock::system(), FAR).await.unwrap();
    import(&over, &name(), &stream[..], &checked, Clock::system(), FAR).await.unwrap();
    assert!(*writes.lock().unwrap() > 20);
    let target = Scene::open(driver, TrustLevel::Zero, false).await;
    assert_eq!(sorted_lines(&target.export().await), sorted_lines(&stream));
}

/// A storage that refuses every other write after the one that registers the import.
#[derive(Debug)]
struct Refusing {
    inner: SharedStorage,
    writes: Arc<Mutex<usize>>,
}

impl StorageWrapper for Refusing {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if matches!(call, Call::Write(_)) {
            let mut writes = self.writes.lock().unwrap();
            *writes += 1;
            if writes.is_multiple_of(2) {
                return Err(istorage::Error::unavailable("refused"));
            }
        }
        call.send(&self.inner, deadline).await
    }
}

/// The import failed at the keyspace that was dropped. It said that its rows stay, and advised a
/// command that would discard the import of the other command.
#[tokio::test]
async fn an_import_that_another_command_discards_says_so() {
    let stream = Scene::full(TrustLevel::Zero, false).await.export().await;
    let checked = check_stream(&stream[..]).unwrap();
    let (driver, left) = (empty(), stream.len() / 2);
    let system = system(&driver).await;
    let discard = || {
        system.discard_import(&name(), FAR).now_or_never().unwrap().unwrap();
        Ok(())
    };
    let source = Interrupted { rest: &stream, left, then: &discard };
    let source = BufReader::with_capacity(64, source);
    let failed = import(&system, &name(), source, &checked, Clock::system(), FAR).await;
    let is_discarded = matches!(failed, Err(ImportError::System(Error::ImportDiscarded { .. })));
    assert!(is_discarded, "{failed:?}");
}

/// The last write gives the application to the nodes. Its answer was lost, and the import was said
/// to be unfinished.
#[tokio::test]
async fn an_import_finishes_although_its_last_answer_is_lost() {
    let stream = Scene::full(TrustLevel::Zero, false).await.export().await;
    let import_losing = |lost| import_losing(&stream, lost, Clock::system());
    let writes = import_losing(None).await;
    let lost = LostAnswer { write: writes, is_last: false };
    assert_eq!(import_losing(Some(lost)).await, writes + 1, "the last write was repeated");
}

/// The storage does no write after the last one, so the import cannot repeat it, and gives up.
#[tokio::test]
async fn an_import_that_gives_up_after_its_last_write_is_finished() {
    let stream = Scene::full(TrustLevel::Zero, false).await.export().await;
    let writes = import_losing(&stream, None, Clock::system()).await;
    let (lost, time) = (LostAnswer { write: writes, is_last: true }, ManualClock::new(0));
    let begun = time.clock().now();
    let passes = async {
        loop {
            time.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = import_losing(&stream, Some(lost), time.clock()) => assert_eq!(done, writes),
        () = passes => {}
    }
    let took = time.clock().now() - begun;
    assert!(took > Duration::from_secs(60), "the last write was not repeated: {took:?}");
}

/// Imports a stream into a storage that loses an answer. Returns the number of writes that it did.
async fn import_losing(stream: &[u8], lost: Option<LostAnswer>, clock: Clock) -> usize {
    let checked = check_stream(stream).unwrap();
    let (driver, writes) = (empty(), Arc::new(Mutex::new(0)));
    drop(system(&driver).await);
    let wrap = {
        let writes = Arc::clone(&writes);
        move |inner| {
            Arc::new(LosesAnswer { inner, writes: Arc::clone(&writes), lost }) as SharedStorage
        }
    };
    let wrapped = Arc::new(WrappedDriver::new(Arc::clone(&driver) as _, wrap));
    let over = System::open(wrapped, sysvvm(), clock.clone(), FAR).await.unwrap();
    import(&over, &name(), stream, &checked, clock, FAR).await.unwrap();
    *writes.lock().unwrap()
}

/// The answer of a write that is lost.
#[derive(Clone, Copy, Debug)]
struct LostAnswer {
    /// The number of the write. The first is 1.
    write: usize,
    /// Whether the storage does no write after it.
    is_last: bool,
}

/// A storage that does a write and loses its answer.
#[derive(Debug)]
struct LosesAnswer {
    inner: SharedStorage,
    writes: Arc<Mutex<usize>>,
    lost: Option<LostAnswer>,
}

impl StorageWrapper for LosesAnswer {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if !matches!(call, Call::Write(_)) {
            return call.send(&self.inner, deadline).await;
        }
        let done = *self.writes.lock().unwrap();
        if self.lost.is_some_and(|lost| lost.is_last && lost.write == done) {
            return Err(istorage::Error::unavailable("no write is done"));
        }
        let answer = call.send(&self.inner, deadline).await;
        *self.writes.lock().unwrap() += 1;
        match self.lost {
            Some(lost) if lost.write == done + 1 => {
                Err(istorage::Error::outcome_unknown("the answer was lost"))
            }
            _ => answer,
        }
    }
}
