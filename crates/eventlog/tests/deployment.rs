//! The rules for the stored deployment of an application.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use eventlog::{Deployment, DeploymentError, TrustLevel};
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
    Deployment { level, schema: tables.parse().unwrap() }
}

#[tokio::test]
async fn the_trust_level_is_fixed_and_tables_only_grow() {
    let clock = Clock::system();
    let storage = storage(&clock).await;
    let deploy = async |level, tables: &str| {
        let deadline = clock.now() + Duration::from_secs(10);
        let wanted = deployment(level, tables);
        let checked = wanted.check(&storage, deadline).await;
        let fixed = wanted.fix(&storage, &clock, deadline).await;
        assert_eq!(checked.is_ok(), fixed.is_ok(), "{checked:?}");
        fixed
    };
    // A check stores nothing, so another level may be deployed after it.
    let other = deployment(TrustLevel::Zero, TABLES);
    other.check(&storage, Instant::FAR_FUTURE).await.unwrap();
    deploy(TrustLevel::One, TABLES).await.unwrap();
    deploy(TrustLevel::One, TABLES).await.unwrap();
    let other = deploy(TrustLevel::Zero, TABLES).await.unwrap_err();
    assert!(matches!(other, DeploymentError::OtherLevel { .. }), "{other:?}");
    let retyped = TABLES.replace("string", "int64");
    let other = deploy(TrustLevel::One, &retyped).await.unwrap_err();
    assert!(matches!(other, DeploymentError::Schema(_)), "{other:?}");
    let more = TABLES.replace("}", ", weight = \"float64\" }");
    deploy(TrustLevel::One, &more).await.unwrap();
    let earlier = deploy(TrustLevel::One, TABLES).await.unwrap_err();
    assert!(
        matches!(earlier, DeploymentError::Schema(_)),
        "a deployment with the earlier tables is refused"
    );
}

#[tokio::test]
async fn every_byte_is_pinned() {
    let clock = Clock::system();
    let storage = storage(&clock).await;
    let deadline = clock.now() + Duration::from_secs(10);
    deployment(TrustLevel::Two, TABLES).fix(&storage, &clock, deadline).await.unwrap();
    let key = istorage::Key::new(vec![0, 24], Vec::new());
    let row = storage.get_linearizable(&key, deadline).await.unwrap().unwrap();
    let (body, checksum) = row.split_at(row.len() - 4);
    let text = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\n\n[tables.\"shop.Article\".fields]\nname = \"string\"\n";
    // The deployment contains the first byte of each format.
    let formats = [
        include_str!("golden/full.hex"),
        include_str!("golden/corrupted.hex"),
        include_str!("golden/record.hex"),
        include_str!("golden/answer.hex"),
    ];
    let formats = formats.map(|golden| u8::from_str_radix(&golden[..2], 16).unwrap());
    assert_eq!((&body[..2], &body[2..6]), (&[8, 4][..], &formats[..]));
    assert_eq!(body[6..8], [2, text.len() as u8]);
    assert_eq!(str::from_utf8(&body[8..]).unwrap(), text);
    assert_eq!(checksum, crc32fast::hash(body).to_be_bytes());
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
        let refused = deployment(TrustLevel::Zero, TABLES).fix(&storage, &clock, deadline).await;
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
        deployment(TrustLevel::Zero, TABLES).fix(&Arc::clone(storage), clock, deadline).await
    });
    for deployed in futures::future::join_all(deploys).await {
        deployed.unwrap();
    }
}
