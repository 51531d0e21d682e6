//! The trials of the registry. The bytes of the rows are written here by hand: the bytes are the
//! format, and must not follow the code.

use std::num::NonZeroU16;

use bytes::Bytes;
use futures::future::join_all;
use istorage::Key;
use sysvvm::{AppName, Error};
use tck::trial::{Trial, trials};

use crate::database::{Database, NODES, PATIENCE};

pub(crate) const TRIALS: &[Trial<Database>] = trials!(
    an_application_that_one_node_creates_is_opened_by_another = one_inits_another_opens,
    existing_and_missing_applications_are_reported = there_or_missing,
    a_half_created_application_keeps_its_partitions = half_initialized,
    many_nodes_create_different_applications = many_init_different,
    many_nodes_create_the_same_application = many_init_the_same,
    rows_of_other_programs_and_other_formats_are_refused = other_formats,
    the_longest_names_are_accepted,
);

fn app(name: &str) -> AppName {
    AppName::new("acme", name).unwrap()
}

fn ten() -> NonZeroU16 {
    NonZeroU16::new(10).unwrap()
}

fn row_of(app: &AppName) -> Key {
    Key::new(vec![0, 0, 0, 5], [b"\x01", app.to_string().as_bytes()].concat())
}

async fn one_inits_another_opens(database: &Database) {
    let (one, other) = (database.open(0).await.unwrap(), database.open(1).await.unwrap());
    let made = one.init_app(&app("shop"), ten(), database.soon()).await.unwrap();
    // The third node opens the system keyspace only now.
    for system in [other, database.open(2).await.unwrap()] {
        let opened = system.open_app(&app("shop"), database.soon()).await.unwrap();
        assert_eq!(opened.entry, made.entry);
        let apps = system.apps(PATIENCE).await.unwrap();
        assert_eq!(apps, [(app("shop"), made.entry.clone())]);
    }
}

async fn there_or_missing(database: &Database) {
    let system = database.open(0).await.unwrap();
    let missing = system.open_app(&app("shop"), database.soon()).await;
    assert!(matches!(missing, Err(Error::DoesNotExist { .. })), "{missing:?}");
    let _ = system.init_app(&app("shop"), ten(), database.soon()).await.unwrap();
    let again = database.open(1).await.unwrap();
    let again = again.init_app(&app("shop"), ten(), database.soon()).await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
}

async fn half_initialized(database: &Database) {
    let system = database.open(0).await.unwrap();
    let made = system.init_app(&app("shop"), ten(), database.soon()).await.unwrap();
    let key = row_of(&app("shop"));
    let ready = database.get(&system, &key).await;
    let mut creating = ready.to_vec();
    creating[1] = 0;
    database.swap(&system, &key, &ready, &creating.into()).await;
    let other = system.init_app(&app("shop"), NonZeroU16::MIN, database.soon()).await;
    assert!(
        matches!(other, Err(Error::OtherPartitions { registered: 10, wanted: 1, .. })),
        "{other:?}"
    );
    let finished = system.init_app(&app("shop"), ten(), database.soon()).await.unwrap();
    assert_eq!(finished.entry, made.entry);
}

async fn many_init_different(database: &Database) {
    let init = async |node: usize| {
        let system = database.open(node).await.unwrap();
        system.init_app(&app(&format!("a{node}")), ten(), database.soon()).await.unwrap().entry
    };
    let mut entries = join_all((0..NODES).map(init)).await;
    entries.sort_by_key(|entry| entry.number);
    let numbers: Vec<_> = entries.iter().map(|entry| entry.number.get()).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    entries.dedup_by(|one, other| one.keyspace == other.keyspace);
    assert_eq!(entries.len(), NODES);
}

/// Lets all nodes initialize the same application. Nodes that find the application half initialized
/// finish it together. All other nodes get `AlreadyExists`.
async fn many_init_the_same(database: &Database) {
    let init = async |node: usize| {
        let system = database.open(node).await.unwrap();
        system.init_app(&app("shop"), ten(), database.soon()).await
    };
    let results = join_all((0..NODES).map(init)).await;
    let apps = database.open(0).await.unwrap().apps(PATIENCE).await.unwrap();
    assert!(apps.len() == 1 && apps[0].1.number.get() == 1, "{apps:?}");
    assert!(results.iter().any(Result::is_ok), "{results:?}");
    for result in results {
        match result {
            Ok(made) => assert_eq!(made.entry, apps[0].1),
            Err(error) => assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}"),
        }
    }
}

async fn other_formats(database: &Database) {
    let system = database.open(0).await.unwrap();
    let _ = system.init_app(&app("shop"), ten(), database.soon()).await.unwrap();
    let key = row_of(&app("shop"));
    let mut there = database.get(&system, &key).await;
    let mut older = there.to_vec();
    assert_eq!(older[16..20], [0, 0, 0, 2]);
    older[19] = 1;
    let older = Bytes::from(older);
    database.swap(&system, &key, &there, &older).await;
    let error = system.open_app(&app("shop"), database.soon()).await.unwrap_err();
    assert!(matches!(error, Error::OlderFormat { found: 1, needed: 2 }), "{error:?}");
    there = older;
    for (entry, newer) in [(&b"\x02?"[..], Some((2, 1))), (b"\0?", None)] {
        let entry = Bytes::from_static(entry);
        database.swap(&system, &key, &there, &entry).await;
        let errors = [
            system.init_app(&app("shop"), ten(), database.soon()).await.unwrap_err(),
            system.open_app(&app("shop"), database.soon()).await.unwrap_err(),
            system.apps(PATIENCE).await.unwrap_err(),
        ];
        for error in errors {
            refused(&error, newer);
        }
        assert_eq!(database.get(&system, &key).await, entry);
        there = entry;
    }
    let format = Key::new(vec![0, 0, 0, 6], "");
    let mut there = database.get(&system, &format).await;
    let older = Bytes::from_static(b"VVM\0\0\0\0\x01");
    database.swap(&system, &format, &there, &older).await;
    let error = database.open(1).await.unwrap_err();
    assert!(matches!(error, Error::OlderFormat { found: 1, needed: 2 }), "{error:?}");
    there = older;
    for (value, newer) in [(&b"VVM\0\0\0\0\x03"[..], Some((3, 2))), (b"other", None)] {
        let value = Bytes::from_static(value);
        database.swap(&system, &format, &there, &value).await;
        refused(&database.open(1).await.unwrap_err(), newer);
        assert_eq!(database.get(&system, &format).await, value);
        there = value;
    }
}

/// Checks the error: `newer` has the format that is found and the format that is known.
fn refused(error: &Error, newer: Option<(u32, u32)>) {
    match error {
        Error::NewerFormat { found, known } => assert_eq!(Some((*found, *known)), newer),
        Error::Foreign { .. } => assert_eq!(newer, None),
        error => panic!("{error:?}"),
    }
}

async fn the_longest_names_are_accepted(database: &Database) {
    assert!(AppName::new("acme", &"x".repeat(101)).is_err());
    let longest = "x".repeat(100);
    let name = AppName::new(&longest, &longest).unwrap();
    let system = database.open(0).await.unwrap();
    let made = system.init_app(&name, ten(), database.soon()).await.unwrap();
    let other = database.open(1).await.unwrap();
    assert_eq!(other.open_app(&name, database.soon()).await.unwrap().entry, made.entry);
    assert_eq!(other.apps(PATIENCE).await.unwrap(), [(name, made.entry)]);
}
