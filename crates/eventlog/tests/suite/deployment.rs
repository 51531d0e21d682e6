//! The rules for the stored deployment of an application.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use eventlog::{Deployment, DeploymentError, Epoch, LevelChange, TrustLevel};
use istorage::{AppStorageExt, KeyspaceName, SharedStorage, StorageDriver, mem::MemDriver};

const TABLES: &str = r#"
[tables."shop.Article"]
kind = "CDoc"
fields = { name = "string" }
"#;

async fn storage(clock: &Clock) -> SharedStorage {
    let driver = MemDriver::new(clock.clone());
    let keyspace = KeyspaceName::new("shop").unwrap();
    driver.create(&keyspace, Instant::FAR_FUTURE).await.unwrap();
    driver.open(&keyspace, Instant::FAR_FUTURE).await.unwrap().unwrap()
}

fn deployment(level: TrustLevel, tables: &str) -> Deployment {
    Deployment::new(level, tables.parse().unwrap())
}

#[tokio::test]
async fn the_first_trust_level_stays_and_tables_only_grow() {
    let clock = Clock::system();
    let storage = storage(&clock).await;
    let deploy = async |level, tables: &str| {
        let deadline = clock.now() + Duration::from_secs(10);
        let wanted = deployment(level, tables);
        let checked = wanted.check(&storage, deadline).await;
        let stored = wanted.store(&storage, &clock, deadline).await;
        assert_eq!(checked.is_ok(), stored.is_ok(), "{checked:?}");
        stored
    };
    // A check stores nothing, so another level may be deployed after it.
    let other = deployment(TrustLevel::Zero, TABLES);
    assert_eq!(other.check(&storage, Instant::FAR_FUTURE).await.unwrap(), None);
    deploy(TrustLevel::One, TABLES).await.unwrap();
    for level in [TrustLevel::One, TrustLevel::Zero, TrustLevel::Two] {
        assert_eq!(deploy(level, TABLES).await.unwrap().level, TrustLevel::One);
    }
    let retyped = TABLES.replace("string", "int64");
    let other = deploy(TrustLevel::One, &retyped).await.unwrap_err();
    assert!(matches!(other, DeploymentError::Schema(_)), "{other:?}");
    let more = TABLES.replace("}", ", weight = \"float64\" }");
    assert_eq!(deploy(TrustLevel::Zero, &more).await.unwrap(), deployment(TrustLevel::One, &more));
    let none = deploy(TrustLevel::One, "[tables]").await.unwrap_err();
    assert!(matches!(none, DeploymentError::Schema(_)), "a table cannot be left out: {none:?}");
}

/// A field that was left out could come back with another type, and its values would be damage.
#[tokio::test]
async fn a_deployment_keeps_the_fields_that_a_schema_leaves_out() {
    let (clock, soon) = (Clock::system(), Instant::FAR_FUTURE);
    let storage = storage(&clock).await;
    let table = |fields: &str| {
        let tables = format!("[tables.\"a.B\"]\nkind = \"CDoc\"\nfields = {{ {fields} }}");
        deployment(TrustLevel::Zero, &tables)
    };
    let deploy = async |fields: &str| table(fields).store(&storage, &clock, soon).await;
    let first = deploy("x = \"int32\", y = \"bool\"").await.unwrap();
    assert_eq!(deploy("y = \"bool\"").await.unwrap(), first);
    let retyped = deploy("x = \"string\"").await.unwrap_err();
    assert!(matches!(retyped, DeploymentError::Schema(_)), "{retyped:?}");
    let all = table("x = \"int64\", y = \"bool\", z = \"ref\"");
    assert_eq!(deploy("x = \"int64\", z = \"ref\"").await.unwrap(), all);
    let narrow = deploy("x = \"int32\"").await.unwrap_err();
    assert!(matches!(narrow, DeploymentError::Schema(_)), "a value may be too large: {narrow:?}");
    assert_eq!(deploy("").await.unwrap(), all);
    assert_eq!(Deployment::stored(&storage, soon).await.unwrap(), Some(all.clone()));
    // A node that opened the application before the field came starts a partition again.
    first.store_again(&storage, &clock, soon).await.unwrap_err();
    deploy("").await.unwrap().store_again(&storage, &clock, soon).await.unwrap();
}

/// A node whose tables leave out a field started no partition any more when another node had made
/// the field wider.
#[tokio::test]
async fn a_field_that_a_program_leaves_out_may_become_wider_meanwhile() {
    let (clock, soon) = (Clock::system(), Instant::FAR_FUTURE);
    let storage = storage(&clock).await;
    let table = |fields: &str| {
        let tables = format!("[tables.\"a.B\"]\nkind = \"CDoc\"\nfields = {{ {fields} }}");
        deployment(TrustLevel::Zero, &tables)
    };
    let deploy = async |fields: &str| table(fields).store(&storage, &clock, soon).await;
    deploy("x = \"int32\", y = \"bool\"").await.unwrap();
    let (program, opened) = (table("y = \"bool\""), deploy("y = \"bool\"").await.unwrap());
    let wide = deploy("x = \"int64\", y = \"bool\"").await.unwrap();
    let again = opened.of_program(program.schema);
    again.store_again(&storage, &clock, soon).await.unwrap();
    assert_eq!(Deployment::stored(&storage, soon).await.unwrap(), Some(wide));
}

#[tokio::test]
async fn a_changed_level_stays_and_the_last_epoch_of_level_2_is_remembered() {
    let clock = Clock::system();
    let (storage, soon) = (storage(&clock).await, Instant::FAR_FUTURE);
    let begin = async |to| LevelChange::begin(to, &storage, &clock, soon).await;
    assert!(matches!(begin(TrustLevel::One).await, Err(DeploymentError::NotDeployed)));
    let first = deployment(TrustLevel::Zero, TABLES);
    first.store(&storage, &clock, soon).await.unwrap();
    for (to, epoch, stray_before) in [
        (TrustLevel::One, 3, 0),
        (TrustLevel::Two, 5, 0),
        (TrustLevel::Zero, 9, 9),
        (TrustLevel::One, 11, 9),
        (TrustLevel::Two, 12, 9),
        (TrustLevel::One, 14, 14),
    ] {
        let change = begin(to).await.unwrap();
        let changed = change.finish(Epoch(epoch), &storage, &clock, soon).await.unwrap();
        assert_eq!((changed.level, changed.stray_before), (to, Epoch(stray_before)));
        assert_eq!(first.store(&storage, &clock, soon).await.unwrap(), changed);
        assert_eq!(Deployment::stored(&storage, soon).await.unwrap(), Some(changed));
    }
}

/// A command that changes the level stalls between its two writes, or its second write lands late.
#[tokio::test]
async fn a_change_that_a_node_or_another_change_met_never_finishes() {
    let clock = Clock::system();
    let (storage, soon) = (storage(&clock).await, Instant::FAR_FUTURE);
    let first = deployment(TrustLevel::Zero, TABLES);
    first.store(&storage, &clock, soon).await.unwrap();
    let begin = async || LevelChange::begin(TrustLevel::Two, &storage, &clock, soon).await.unwrap();
    let level = async || Deployment::stored(&storage, soon).await.unwrap().unwrap().level;
    let refused = |finished: Result<Deployment, DeploymentError>| {
        let error = finished.unwrap_err();
        assert!(matches!(error, DeploymentError::ChangeCancelled(TrustLevel::Zero)), "{error:?}");
    };
    // A node opens the application, or starts a partition.
    let change = begin().await;
    first.store(&storage, &clock, soon).await.unwrap();
    refused(change.finish(Epoch(2), &storage, &clock, soon).await);
    let change = begin().await;
    first.store_again(&storage, &clock, soon).await.unwrap();
    refused(change.finish(Epoch(2), &storage, &clock, soon).await);
    assert_eq!(level().await, TrustLevel::Zero);
    // Another command begins a change to the same level.
    let (former, change) = (begin().await, begin().await);
    refused(former.finish(Epoch(2), &storage, &clock, soon).await);
    change.finish(Epoch(2), &storage, &clock, soon).await.unwrap();
    assert_eq!(level().await, TrustLevel::Two);
    let opened = first.store_again(&storage, &clock, soon).await.unwrap_err();
    assert!(matches!(opened, DeploymentError::OtherLevel { .. }), "{opened:?}");
}

#[tokio::test]
async fn every_byte_is_pinned() {
    let clock = Clock::system();
    let storage = storage(&clock).await;
    let deadline = clock.now() + Duration::from_secs(10);
    deployment(TrustLevel::Two, TABLES).store(&storage, &clock, deadline).await.unwrap();
    let key = istorage::Key::new(vec![0, 24], Vec::new());
    let row = storage.get_linearizable(&key, deadline).await.unwrap().unwrap();
    let (body, checksum) = row.split_at(row.len() - 4);
    let text = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\n\n[tables.\"shop.Article\".fields]\nname = \"string\"\n";
    // The deployment contains the first byte of each format.
    let formats = [
        include_str!("../golden/full.hex"),
        include_str!("../golden/corrupted.hex"),
        include_str!("../golden/record.hex"),
        include_str!("../golden/answer.hex"),
        include_str!("../golden/fencing.hex"),
    ];
    let formats = formats.map(|golden| u8::from_str_radix(&golden[..2], 16).unwrap());
    assert_eq!((&body[..2], &body[2..7]), (&[10, 5][..], &formats[..]));
    // The level, the end of the epochs of level 2, and no change of the level.
    assert_eq!(body[7..10], [2, 0, 0]);
    assert_eq!(body[10], text.len() as u8);
    assert_eq!(str::from_utf8(&body[11..]).unwrap(), text);
    assert_eq!(checksum, crc32fast::hash(body).to_be_bytes());
    let begun = LevelChange::begin(TrustLevel::One, &storage, &clock, deadline).await.unwrap();
    let changing = storage.get_linearizable(&key, deadline).await.unwrap().unwrap();
    assert_eq!(changing[7..11], [2, 0, 1, 1]);
    begun.finish(Epoch(7), &storage, &clock, deadline).await.unwrap();
    let changed = storage.get_linearizable(&key, deadline).await.unwrap().unwrap();
    assert_eq!(changed[7..10], [1, 7, 0]);
    assert_eq!(changed[10..changed.len() - 4], body[10..]);
}

/// The formats of records and answers had changed, and the deployment had not. The program opened
/// an old keyspace, and took each of its records and answers for a damaged one.
#[tokio::test]
async fn a_keyspace_with_another_row_format_is_refused_with_advice() {
    let text = TABLES.trim_start();
    // The bytes of a deployment before deployments contained formats.
    let before = [&[5, 0, text.len() as u8][..], text.as_bytes()].concat();
    for (old, format) in [(before.clone(), 5), ([&[200][..], &before[1..]].concat(), 200)] {
        let clock = Clock::system();
        let storage = storage(&clock).await;
        let deadline = clock.now() + Duration::from_secs(10);
        let old = bytes::Bytes::from([&old[..], &crc32fast::hash(&old).to_be_bytes()].concat());
        let key = istorage::Key::new(vec![0, 24], Vec::new());
        let inserted = storage.insert_if_not_exists(key.clone(), old.clone(), None, deadline).await;
        assert!(inserted.unwrap().is_applied());
        let refused = deployment(TrustLevel::Zero, TABLES).store(&storage, &clock, deadline).await;
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, DeploymentError::OtherFormat(found) if found == format),
            "{refused:?}"
        );
        let message = refused.to_string();
        assert!(message.contains("run that version, or begin with an empty storage"), "{message}");
        assert_eq!(storage.get_linearizable(&key, deadline).await.unwrap(), Some(old));
    }
}

#[tokio::test]
async fn nodes_may_deploy_at_the_same_time() {
    let clock = Clock::system();
    let storage = storage(&clock).await;
    let (storage, clock) = (&storage, &clock);
    let deploys = (0..50).map(|_| async move {
        let deadline = clock.now() + Duration::from_secs(10);
        deployment(TrustLevel::Zero, TABLES).store(&Arc::clone(storage), clock, deadline).await
    });
    for deployed in futures::future::join_all(deploys).await {
        deployed.unwrap();
    }
}
