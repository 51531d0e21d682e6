//! Rows that expire, and the remains of rows that other programs wrote.

use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use istorage::{AppStorageExt, Conditional, Conflict, Consistency, Key, Outcome, Range};

use crate::support::{CassandraCluster, CassandraScratch, PATIENCE, soon, until};

const PKEY: &str = "p";

/// Leaves a row marker without a value. The row is inserted without a TTL. Then its value is
/// written with a TTL and expires, and the marker stays.
async fn leave_marker(scratch: &CassandraScratch, ccols: &'static str) {
    let place = format!("p_key = 0x{} AND c_col = 0x{}", hex(PKEY), hex(ccols));
    let (pkey, ccol) = (hex(PKEY), hex(ccols));
    scratch
        .run(&format!(
            "INSERT INTO {{table}} (p_key, c_col, value) VALUES (0x{pkey}, 0x{ccol}, 0x01)"
        ))
        .await;
    scratch.run(&format!("UPDATE {{table}} USING TTL 1 SET value = 0x02 WHERE {place}")).await;
    let key = Key::new(PKEY, ccols);
    until(async || scratch.storage.get(&key, Consistency::Plain, soon()).await.unwrap().is_none())
        .await;
    // The server still has the marker.
    let text = format!("SELECT c_col FROM {}.values WHERE {place}", scratch.name);
    assert_eq!(crate::support::ask(&scratch.raw, &text).await.rows_num(), 1);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) async fn a_marker_without_a_value_is_no_row(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    leave_marker(&scratch, "m").await;
    let storage = &scratch.storage;
    let key = Key::new(PKEY, "m");
    let other = Key::new(PKEY, "other");

    assert_eq!(storage.get_linearizable(&key, soon()).await.unwrap(), None);
    assert_eq!(storage.get_values(&[key.clone(), other], soon()).await.unwrap(), [None, None]);
    assert_eq!(storage.ttl_get(&key, PATIENCE).await.unwrap(), None);
    for consistency in [Consistency::Plain, Consistency::Linearizable] {
        let rows = storage.read(PKEY.into(), Range::all(), consistency, PATIENCE);
        assert_eq!(rows.try_collect::<Vec<_>>().await.unwrap(), []);
    }

    let absent = Outcome::NotApplied(vec![Conflict { op: 0, actual: None }]);
    let old = Bytes::from_static(&[2]);
    let swap = storage.compare_and_swap(key.clone(), old.clone(), "new".into(), None, soon()).await;
    assert_eq!(swap.unwrap(), absent);
    assert_eq!(storage.compare_and_delete(key.clone(), old, soon()).await.unwrap(), absent);

    let insert = storage.insert_if_not_exists(key.clone(), "fresh".into(), None, soon()).await;
    assert_eq!(insert.unwrap(), Outcome::Applied);
    assert_eq!(storage.get(&key, Consistency::Plain, soon()).await.unwrap(), Some("fresh".into()));
    scratch.drop().await;
}

pub(crate) async fn a_batch_inserts_over_a_marker(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    leave_marker(&scratch, "m").await;
    let storage = &scratch.storage;
    for ccols in ["swapped", "deleted"] {
        let insert =
            storage.insert_if_not_exists(Key::new(PKEY, ccols), "old".into(), None, soon()).await;
        assert_eq!(insert.unwrap(), Outcome::Applied);
    }
    let ttl = Some(Duration::from_secs(1_000));
    let insert =
        |ccols: &'static str| Conditional::Insert { ccols: ccols.into(), value: "new".into(), ttl };
    let swap = Conditional::Swap {
        ccols: "swapped".into(),
        old: "old".into(),
        new: "new".into(),
        ttl: None,
    };
    let delete = Conditional::Delete { ccols: "deleted".into(), old: "old".into() };
    let ops = vec![insert("m"), swap, delete, insert("never was")];
    assert_eq!(storage.write_if(PKEY.into(), ops, soon()).await.unwrap(), Outcome::Applied);

    let rows = storage
        .ttl_read(PKEY.into(), Range::all(), PATIENCE)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
    let rows: Vec<_> =
        rows.iter().map(|row| (&row.ccols[..], &row.value[..], row.ttl.is_some())).collect();
    let expected: [(&[u8], &[u8], bool); 3] =
        [(b"m", b"new", true), (b"never was", b"new", true), (b"swapped", b"new", false)];
    assert_eq!(rows, expected);
    scratch.drop().await;
}

pub(crate) async fn the_rest_of_a_ttl_is_not_more_than_the_requested_ttl(
    cluster: CassandraCluster,
) {
    let scratch = cluster.scratch().await;
    let asked = Duration::from_secs(100);
    let key = Key::new(PKEY, "c");
    let insert =
        scratch.storage.insert_if_not_exists(key.clone(), "v".into(), Some(asked), soon()).await;
    assert_eq!(insert.unwrap(), Outcome::Applied);
    let left = scratch.storage.query_ttl(&key, PATIENCE).await.unwrap().unwrap().unwrap();
    assert!(left <= asked && left > asked - PATIENCE, "{left:?}");
    scratch.drop().await;
}
