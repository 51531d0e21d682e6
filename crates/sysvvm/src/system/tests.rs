use std::{num::NonZeroU16, time::Duration};

use bytes::Bytes;
use clock::ManualClock;
use futures::FutureExt;
use istorage::{AppStorageExt, CallKind, Consistency, ErrorKind, Key, Put, mem::MemDriver};
use tck::storage::{Fault, Faulty};

use super::{registry::keyspace_name, *};
use crate::{AppName, Error, entry::InitState, layout};

const FAR: Instant = Instant::FAR_FUTURE;

fn driver() -> Arc<MemDriver> {
    Arc::new(MemDriver::new(Clock::system()))
}

fn sysvvm() -> KeyspaceName {
    KeyspaceName::new("sysvvm").unwrap()
}

async fn open(driver: &Arc<MemDriver>) -> Result<System> {
    let driver = Arc::clone(driver) as Arc<dyn StorageDriver>;
    System::open(driver, sysvvm(), Clock::system(), FAR).await
}

fn app(name: &str) -> AppName {
    AppName::new("acme", name).unwrap()
}

fn ten() -> NonZeroU16 {
    NonZeroU16::new(10).unwrap()
}

/// Makes a system keyspace that has `rows` of another program.
async fn foreign(rows: Vec<Put>) -> Arc<MemDriver> {
    let driver = driver();
    driver.create(&sysvvm(), FAR).await.unwrap();
    let storage = driver.open(&sysvvm(), FAR).await.unwrap().unwrap();
    for Put { key, value } in rows {
        assert!(storage.insert_if_not_exists(key, value, None, FAR).await.unwrap().is_applied());
    }
    driver
}

#[tokio::test]
async fn an_initialized_application_can_be_opened_by_every_node() {
    let driver = driver();
    let (one, other) = (open(&driver).await.unwrap(), open(&driver).await.unwrap());
    assert!(matches!(other.open_app(&app("shop"), FAR).await, Err(Error::DoesNotExist { .. })));
    let created = one.init_app(&app("shop"), ten(), FAR).await.unwrap();
    created.storage.put(Key::new("p", "c"), "v".into(), FAR).await.unwrap();

    let opened = other.open_app(&app("shop"), FAR).await.unwrap();
    assert_eq!(opened.entry, created.entry);
    assert_eq!(opened.entry.partitions, ten());
    let there = opened.storage.get(&Key::new("p", "c"), Consistency::Plain, FAR).await.unwrap();
    assert_eq!(there, Some("v".into()));
    assert!(matches!(
        other.init_app(&app("shop"), ten(), FAR).await,
        Err(Error::AlreadyExists { .. })
    ));
}

#[tokio::test]
async fn applications_get_numbers_and_keyspaces_of_their_own() {
    let system = open(&driver()).await.unwrap();
    for name in ["b", "a"] {
        let _ = system.init_app(&app(name), ten(), FAR).await.unwrap();
    }
    let apps = system.apps(Duration::from_secs(1)).await.unwrap();
    let seen: Vec<_> = apps
        .iter()
        .map(|(name, entry)| (name.name(), entry.number.get(), entry.keyspace.as_str()))
        .collect();
    assert_eq!(seen, [("a", 2, "sysvvm_2_acme_a"), ("b", 1, "sysvvm_1_acme_b")]);
}

#[tokio::test]
async fn an_unfinished_initialization_is_finished_by_the_next_one() {
    let system = open(&driver()).await.unwrap();
    let cut_off =
        system.register(&app("shop"), ten(), InitState::Creating, FAR).await.unwrap().unwrap();
    assert!(matches!(system.open_app(&app("shop"), FAR).await, Err(Error::DoesNotExist { .. })));
    assert!(system.apps(Duration::from_secs(1)).await.unwrap().is_empty());
    let other = system.init_app(&app("shop"), NonZeroU16::MIN, FAR).await;
    assert!(matches!(other, Err(Error::OtherPartitions { registered: 10, wanted: 1, .. })));
    assert_eq!(system.init_app(&app("shop"), ten(), FAR).await.unwrap().entry, cut_off.entry);
}

#[tokio::test]
async fn nodes_that_initialize_applications_concurrently_take_different_numbers() {
    let driver = driver();
    let init = async |n: u32| {
        let system = open(&driver).await.unwrap();
        system.init_app(&app(&format!("a{}", n % 4)), ten(), FAR).await
    };
    let results = futures::future::join_all((0..16).map(init)).await;
    assert!(results.iter().filter(|result| result.is_ok()).count() >= 4);
    let apps = open(&driver).await.unwrap().apps(Duration::from_secs(1)).await.unwrap();
    let mut numbers: Vec<_> = apps.iter().map(|(_, entry)| entry.number.get()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_storage_of_another_format_is_refused() {
    let with_format =
        |value: &'static [u8]| Put { key: layout::format(), value: Bytes::from_static(value) };
    let refused = async |value| open(&foreign(vec![with_format(value)]).await).await.unwrap_err();
    let newer = refused(b"VVM\0\0\0\0\x03").await;
    assert!(matches!(newer, Error::NewerFormat { found: 3, known: FORMAT_VERSION }), "{newer:?}");
    let older = refused(b"VVM\0\0\0\0\x01").await;
    assert!(matches!(older, Error::OlderFormat { found: 1, needed: FORMAT_VERSION }), "{older:?}");
    for value in [&b"VVM\0\0\0\0\0"[..], b"other", b""] {
        let error = refused(value).await;
        assert!(matches!(error, Error::Foreign { .. }), "{error:?}");
    }
}

/// Opens an application after its keyspace was dropped. After `returns` seconds the storage shows
/// the keyspace again.
///
/// Returns the result, and the number of seconds until it came.
async fn open_without_keyspace(returns: Option<u64>) -> (Result<OpenedApp>, u64) {
    let (driver, time) = (driver(), ManualClock::new(1));
    let shared = Arc::clone(&driver) as Arc<dyn StorageDriver>;
    let system = System::open(shared, sysvvm(), time.clock(), FAR).await.unwrap();
    let keyspace = system.init_app(&app("shop"), ten(), FAR).await.unwrap().entry.keyspace;
    driver.drop_keyspace(&keyspace, FAR).await.unwrap();
    let name = app("shop");
    let mut opening = std::pin::pin!(system.open_app(&name, FAR));
    let mut seconds = 0;
    loop {
        if let Some(opened) = opening.as_mut().now_or_never() {
            return (opened, seconds);
        }
        if returns == Some(seconds) {
            driver.create(&keyspace, FAR).await.unwrap();
        }
        time.advance(Duration::from_secs(1));
        seconds += 1;
    }
}

#[tokio::test]
async fn a_registered_keyspace_that_is_gone_is_corrupt() {
    match open_without_keyspace(None).await {
        (Err(Error::Storage(error)), 10) => assert_eq!(error.kind(), ErrorKind::Corrupt),
        other => panic!("{other:?}"),
    }
}

/// Another node had just made the keyspace, and one server of the storage did not know it yet. The
/// node ended with code 3.
#[tokio::test]
async fn a_registered_keyspace_that_is_shown_late_is_waited_for() {
    let (opened, seconds) = open_without_keyspace(Some(3)).await;
    assert!(opened.is_ok() && seconds == 4, "{opened:?} after {seconds} s");
}

/// The registry was lost and made anew, but the keyspaces of its applications remained. The rows of
/// the old application must not become the rows of a new one.
#[tokio::test]
async fn a_keyspace_that_is_not_registered_is_not_taken_over() {
    let driver = driver();
    driver.create(&KeyspaceName::new("sysvvm_1_acme_shop").unwrap(), FAR).await.unwrap();
    let system = open(&driver).await.unwrap();
    assert!(matches!(system.init_app(&app("shop"), ten(), FAR).await, Err(Error::Foreign { .. })));
}

#[tokio::test]
async fn a_system_name_without_room_for_numbers_is_refused() {
    let long = KeyspaceName::new("s".repeat(SYSTEM_NAME_MAX + 1)).unwrap();
    assert!(System::open(driver(), long, Clock::system(), FAR).await.is_err());
}

#[test]
fn names_of_keyspaces_fit_and_stay_unique() {
    let long = AppName::new("Owner", &"x".repeat(100)).unwrap();
    let system = KeyspaceName::new("s".repeat(SYSTEM_NAME_MAX)).unwrap();
    let (one, other) = (
        keyspace_name(&system, 1, &long).unwrap(),
        keyspace_name(&system, u32::MAX, &long).unwrap(),
    );
    assert!(one != other && one.as_str().len() == 48 && other.as_str().len() == 48);
    assert_eq!(
        keyspace_name(&sysvvm(), 7, &long).unwrap().as_str(),
        format!("sysvvm_7_owner_{}", "x".repeat(33))
    );
}

/// The registration by node A was lost, and A got no answer. Before A tried again, B took the
/// number that A had wanted. A took B's counter for its own, and went on with an application that
/// was not registered.
#[tokio::test]
async fn a_registration_that_was_lost_takes_another_number() {
    let driver = driver();
    let (mut a, b) = (open(&driver).await.unwrap(), Arc::new(open(&driver).await.unwrap()));
    let (other, mut lost) = (Arc::clone(&b), false);
    let faulty = Faulty::scripted(Arc::clone(&a.storage), Clock::system(), move |op| {
        if op != CallKind::WriteIf || lost {
            return Fault::None;
        }
        lost = true;
        let _ = other.init_app(&app("b"), ten(), FAR).now_or_never().unwrap().unwrap();
        Fault::NotAppliedButError
    });
    a.storage = Arc::new(faulty);
    assert_eq!(a.init_app(&app("a"), ten(), FAR).await.unwrap().entry.number.get(), 2);
    let apps = b.apps(Duration::from_secs(1)).await.unwrap();
    let numbers: Vec<_> =
        apps.iter().map(|(name, entry)| (name.name(), entry.number.get())).collect();
    assert_eq!(numbers, [("a", 2), ("b", 1)]);
}

/// Checks that nodes leave an import alone, and that it exists.
async fn is_importing(system: &System) {
    let is = |error| matches!(error, Err(Error::Importing { .. }));
    assert!(is(system.open_app(&app("shop"), FAR).await.map(drop)));
    assert!(is(system.init_app(&app("shop"), ten(), FAR).await.map(drop)));
    assert!(is(system.begin_import(&app("shop"), ten(), FAR).await.map(drop)));
    assert_eq!(system.apps(Duration::from_secs(1)).await.unwrap(), []);
}

#[tokio::test]
async fn an_application_can_be_used_when_its_import_is_finished() {
    let driver = driver();
    let (importer, node) = (open(&driver).await.unwrap(), open(&driver).await.unwrap());
    let import = importer.begin_import(&app("shop"), ten(), FAR).await.unwrap();
    import.app.storage.put(Key::new("p", "c"), "v".into(), FAR).await.unwrap();
    is_importing(&node).await;
    let registered = node.registered_apps(Duration::from_secs(1)).await.unwrap();
    let states: Vec<_> =
        registered.iter().map(|(name, _, state)| (name.to_string(), *state)).collect();
    assert_eq!(states, [(app("shop").to_string(), InitState::Importing)]);
    assert!(node.apps(Duration::from_secs(1)).await.unwrap().is_empty());
    importer.finish_import(&import, FAR).await.unwrap();
    let opened = node.open_app(&app("shop"), FAR).await.unwrap();
    assert_eq!(opened.entry, import.app.entry);
    let there = opened.storage.get(&Key::new("p", "c"), Consistency::Plain, FAR).await.unwrap();
    assert_eq!(there, Some("v".into()));
    let again = importer.begin_import(&app("shop"), ten(), FAR).await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
    let discarded = importer.discard_import(&app("shop"), FAR).await;
    assert!(matches!(discarded, Err(Error::AlreadyExists { .. })), "{discarded:?}");
    assert!(node.open_app(&app("shop"), FAR).await.is_ok());
}

/// The state of an import, as another process sees it.
async fn state_of(system: &System, import: &AppImport) -> ImportState {
    system.import_state(import, FAR).await.unwrap()
}

/// An operator with a wrong name did not learn which applications the storage has.
#[tokio::test]
async fn an_application_that_does_not_exist_names_those_that_do() {
    let system = open(&driver()).await.unwrap();
    let (shop, store) = (app("shop"), app("store"));
    let none = format!("the application `{shop}` does not exist in this storage");
    let text = |error: Error| error.to_string();
    assert_eq!(text(system.open_app(&shop, FAR).await.unwrap_err()), none);
    let _ = system.init_app(&store, ten(), FAR).await.unwrap();
    let named = format!("{none}; it has {store}");
    assert_eq!(text(system.open_app(&shop, FAR).await.unwrap_err()), named);
    assert_eq!(text(system.discard_import(&shop, FAR).await.unwrap_err()), named);
}

/// A discarded import is not mistaken for a later one of the same application.
#[tokio::test]
async fn a_discarded_import_cannot_finish() {
    let driver = driver();
    let (one, other) = (open(&driver).await.unwrap(), open(&driver).await.unwrap());
    let nothing = other.discard_import(&app("shop"), FAR).await;
    assert!(matches!(nothing, Err(Error::DoesNotExist { .. })), "{nothing:?}");
    let first = one.begin_import(&app("shop"), ten(), FAR).await.unwrap();
    assert_eq!(state_of(&other, &first).await, ImportState::Unfinished);
    other.discard_import(&app("shop"), FAR).await.unwrap();
    assert_eq!(state_of(&other, &first).await, ImportState::Discarded);
    assert!(driver.open(&first.app.entry.keyspace, FAR).await.unwrap().is_none());
    let second = other.begin_import(&app("shop"), ten(), FAR).await.unwrap();
    assert_ne!(second.app.entry.number, first.app.entry.number);
    let late = one.finish_import(&first, FAR).await;
    assert!(matches!(late, Err(Error::ImportDiscarded { .. })), "{late:?}");
    is_importing(&one).await;
    assert_eq!(state_of(&one, &first).await, ImportState::Discarded);
    other.finish_import(&second, FAR).await.unwrap();
    assert_eq!(state_of(&one, &first).await, ImportState::Discarded);
    assert_eq!(state_of(&one, &second).await, ImportState::Finished);
    assert_eq!(one.open_app(&app("shop"), FAR).await.unwrap().entry, second.app.entry);
}

/// The process that discards an import ends before it has dropped the keyspace.
#[tokio::test]
async fn an_import_that_was_discarded_in_part_is_discarded_again() {
    let driver = driver();
    let (one, other) = (open(&driver).await.unwrap(), open(&driver).await.unwrap());
    let first = one.begin_import(&app("shop"), ten(), FAR).await.unwrap();
    let there = one.registry_row(&app("shop"), FAR).await.unwrap().unwrap();
    let fenced = crate::entry::RegistryRow { attempt: there.attempt + 1, ..there.clone() };
    assert!(one.replace(&app("shop"), &there, Some(&fenced), FAR).await.unwrap());
    let late = one.finish_import(&first, FAR).await;
    assert!(matches!(late, Err(Error::ImportDiscarded { .. })), "{late:?}");
    assert_eq!(state_of(&one, &first).await, ImportState::Discarded);
    is_importing(&other).await;
    other.discard_import(&app("shop"), FAR).await.unwrap();
    assert!(other.init_app(&app("shop"), ten(), FAR).await.is_ok());
}
