//! Trials that need several servers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use clock::Clock;
use futures::{TryStreamExt, future::join_all};
use istorage::{
    AppStorageExt, Conditional, Consistency, ErrorKind, Key, Outcome, Range, StorageDriver,
    settle::{SettleLimits, write_if_settled},
};
use istorage_cassandra::{CassandraConfig, CassandraDriver};
use scylla::{
    client::session_builder::SessionBuilder, policies::host_filter::AllowListHostFilter,
    value::CqlValue,
};

use crate::support::{CassandraCluster, PATIENCE, ask, insist, soon, unique_name};

/// Several nodes create one keyspace, and each node writes as soon as `create` succeeds. Then the
/// keyspace is dropped, and the nodes create it again.
pub(crate) async fn many_nodes_create_one_keyspace(cluster: CassandraCluster) {
    const NODES: usize = 6;
    const ROUNDS: usize = 4;
    let drivers: Vec<CassandraDriver> = join_all((0..NODES).map(|_| cluster.driver())).await;
    let name = unique_name();
    let mut former_ids = BTreeSet::new();
    for _ in 0..ROUNDS {
        let create_and_write = async |(i, driver): (usize, &CassandraDriver)| {
            driver.create(&name, soon()).await.unwrap();
            let storage = driver.open(&name, soon()).await.unwrap().unwrap();
            for key in [Key::new("plain", i.to_string()), Key::new(format!("plain {i}"), "")] {
                insist(async || storage.put(key.clone(), "v".into(), soon()).await).await;
            }
            let insert =
                Conditional::Insert { ccols: i.to_string().into(), value: "v".into(), ttl: None };
            let limits = SettleLimits { call_timeout: Duration::from_secs(5), until: soon() };
            let clock = Clock::system();
            let insert =
                write_if_settled(&*storage, &clock, "conditional".into(), vec![insert], limits);
            assert_eq!(insert.await.unwrap(), Outcome::Applied);
            storage
        };
        let storages = join_all(drivers.iter().enumerate().map(create_and_write)).await;
        for storage in &storages {
            for pkey in ["plain", "conditional"] {
                let rows = storage.read(pkey.into(), Range::all(), Consistency::Plain, PATIENCE);
                assert_eq!(rows.try_collect::<Vec<_>>().await.unwrap().len(), NODES, "{pkey}");
            }
            for i in 0..NODES {
                let value = storage
                    .get(&Key::new(format!("plain {i}"), ""), Consistency::Plain, soon())
                    .await;
                assert!(value.unwrap().is_some());
            }
        }
        let ids = table_ids(&cluster, name.as_str()).await;
        assert!(ids.len() == 1 && former_ids.is_disjoint(&ids), "{ids:?}");
        // An identity that a server chose by itself has version 1.
        assert!(ids.iter().all(|id| id.as_bytes()[14] == b'8'), "{ids:?}");
        former_ids.extend(ids);
        drivers[0].drop_keyspace(&name, soon()).await.unwrap();
        assert!(drivers[1].open(&name, soon()).await.unwrap().is_none());
    }
}

/// The identities that the servers show for the table of a keyspace.
async fn table_ids(cluster: &CassandraCluster, keyspace: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for node in &cluster.nodes {
        let only = AllowListHostFilter::new([node]).unwrap();
        let builder = SessionBuilder::new().known_node(node).host_filter(Arc::new(only));
        let session = builder.build().await.unwrap();
        let text =
            format!("SELECT id FROM system_schema.tables WHERE keyspace_name = '{keyspace}'");
        let (id,) = ask(&session, &text).await.single_row::<(CqlValue,)>().unwrap();
        ids.insert(id.as_uuid().unwrap().to_string());
    }
    ids
}

pub(crate) async fn a_new_keyspace_has_three_replicas_by_default(cluster: CassandraCluster) {
    let (driver, name) = (CassandraConfig { replication: None, ..cluster.config() }, unique_name());
    let driver = CassandraDriver::connect(driver, Clock::system(), soon()).await.unwrap();
    driver.create(&name, soon()).await.unwrap();
    let raw = cluster.raw().await;
    let text =
        format!("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{name}'");
    let rows = ask(&raw, &text).await;
    let (replication,) =
        rows.single_row::<(std::collections::BTreeMap<String, String>,)>().unwrap();
    assert!(replication["class"].ends_with("NetworkTopologyStrategy"), "{replication:?}");
    assert_eq!(replication["datacenter1"], "3");
    driver.drop_keyspace(&name, soon()).await.unwrap();
}

/// Several nodes raise one counter by swaps. At the end the counter has counted every applied swap,
/// and swaps with an unknown outcome at most once each.
pub(crate) async fn concurrent_swaps_of_a_counter_lose_no_increment(cluster: CassandraCluster) {
    const TASKS: usize = 6;
    const ROUNDS: u32 = 20;
    let scratch = cluster.scratch().await;
    let key = Key::new("p", "counter");
    let insert = scratch.storage.insert_if_not_exists(key.clone(), "0".into(), None, soon()).await;
    assert_eq!(insert.unwrap(), Outcome::Applied);
    let raise = async |_| {
        let driver = cluster.driver().await;
        let storage = driver.open(&scratch.name, soon()).await.unwrap().unwrap();
        let (mut applied, mut unknown) = (0, 0);
        while applied + unknown < ROUNDS {
            let old = match storage.get_linearizable(&key, soon()).await {
                Ok(old) => old.unwrap(),
                // The servers gave up under contention.
                Err(error) if error.kind() == ErrorKind::Unavailable => continue,
                Err(error) => panic!("{error:?}"),
            };
            let number: u32 = std::str::from_utf8(&old).unwrap().parse().unwrap();
            let new = (number + 1).to_string().into();
            match storage.compare_and_swap(key.clone(), old, new, None, soon()).await {
                Ok(Outcome::Applied) => applied += 1,
                Ok(Outcome::NotApplied(_)) => {}
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => unknown += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        (applied, unknown)
    };
    let counts = join_all((0..TASKS).map(raise)).await;
    let applied: u32 = counts.iter().map(|(applied, _)| applied).sum();
    let unknown: u32 = counts.iter().map(|(_, unknown)| unknown).sum();
    let last = scratch.storage.get_linearizable(&key, soon()).await.unwrap().unwrap();
    let last: u32 = std::str::from_utf8(&last).unwrap().parse().unwrap();
    assert!((applied..=applied + unknown).contains(&last), "{last} of {applied} + {unknown}");
    // The swaps do not outbid each other, because all of them go through one server.
    assert!(unknown * 20 <= applied, "{unknown} of {} have an unknown outcome", applied + unknown);
    scratch.drop().await;
}
