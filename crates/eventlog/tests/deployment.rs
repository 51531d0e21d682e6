//! What an application was deployed with stays so.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use eventlog::{Deployment, NotDeployed, TrustLevel};
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
async fn the_level_is_fixed_and_tables_only_grow() {
    let clock = Clock::system();
    let storage = storage(&clock).await;
    let deploy = async |level, tables: &str| {
        let deadline = clock.now() + Duration::from_secs(10);
        deployment(level, tables).fix(&storage, &clock, deadline).await
    };
    deploy(TrustLevel::One, TABLES).await.unwrap();
    deploy(TrustLevel::One, TABLES).await.unwrap();
    let other = deploy(TrustLevel::Zero, TABLES).await.unwrap_err();
    assert!(matches!(other, NotDeployed::OtherLevel { .. }), "{other:?}");
    let retyped = TABLES.replace("string", "int64");
    let other = deploy(TrustLevel::One, &retyped).await.unwrap_err();
    assert!(matches!(other, NotDeployed::Schema(_)), "{other:?}");
    let more = TABLES.replace("}", ", weight = \"float64\" }");
    deploy(TrustLevel::One, &more).await.unwrap();
    let earlier = deploy(TrustLevel::One, TABLES).await.unwrap_err();
    assert!(matches!(earlier, NotDeployed::Schema(_)), "a node with the tables of before");
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
    assert_eq!(body[..3], [5, 2, text.len() as u8]);
    assert_eq!(str::from_utf8(&body[3..]).unwrap(), text);
    assert_eq!(checksum, crc32fast::hash(body).to_be_bytes());
}

#[tokio::test]
async fn nodes_may_deploy_at_once() {
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
