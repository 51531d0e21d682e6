//! The limits that the capabilities promise.

use bytes::Bytes;
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, BatchLimits, Conditional, Consistency, Key, Order, OrderedPut, Outcome, Put,
    Range, Row,
};

use crate::support::{CassandraCluster, PATIENCE, noise, soon};

pub(crate) async fn the_largest_row_fits_into_every_call(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    let storage = &scratch.storage;
    let row = storage.capabilities().row;
    let key = |first: u8| {
        let mut ccols = noise(row.ccols).to_vec();
        ccols[0] = first;
        Key::new(noise(row.pkey), ccols)
    };
    let (one, other) = (noise(row.value), Bytes::from(vec![7; row.value]));

    let (plain, conditional, ordered) = (key(1), key(2), key(3));
    storage.put(plain.clone(), one.clone(), soon()).await.unwrap();
    let insert = storage.insert_if_not_exists(conditional.clone(), one.clone(), None, soon()).await;
    assert_eq!(insert.unwrap(), Outcome::Applied);
    let swap = storage
        .compare_and_swap(conditional.clone(), one.clone(), other.clone(), None, soon())
        .await;
    assert_eq!(swap.unwrap(), Outcome::Applied);
    let refused = storage
        .compare_and_swap(conditional.clone(), one.clone(), other.clone(), None, soon())
        .await;
    assert!(
        matches!(refused.unwrap(), Outcome::NotApplied(conflicts) if conflicts[0].actual.as_ref() == Some(&other))
    );
    let put = OrderedPut {
        key: ordered.clone(),
        value: one.clone(),
        order: Order::new(1).unwrap(),
        ttl: None,
    };
    storage.put_ordered(vec![put], soon()).await.unwrap();

    for consistency in [Consistency::Plain, Consistency::Linearizable] {
        assert!(
            storage.get(&conditional, consistency, soon()).await.unwrap().as_ref() == Some(&other)
        );
    }
    let found = storage
        .get_values(&[plain.clone(), conditional.clone(), ordered.clone()], soon())
        .await
        .unwrap();
    assert!(found == [Some(one.clone()), Some(other.clone()), Some(one.clone())]);
    let rows = storage.read(plain.pkey.clone(), Range::all(), Consistency::Plain, PATIENCE);
    let rows: Vec<Row> = rows.try_collect().await.unwrap();
    assert!(rows.iter().map(|row| &row.value).eq([&one, &other, &one]));
    let behind = storage.read(
        plain.pkey.clone(),
        Range::all().behind(&plain.ccols),
        Consistency::Plain,
        PATIENCE,
    );
    assert_eq!(behind.try_collect::<Vec<_>>().await.unwrap().len(), 2);
    assert!(storage.ttl_get(&ordered, PATIENCE).await.unwrap().is_some_and(|row| row.value == one));
    assert_eq!(
        storage.compare_and_delete(conditional, other, soon()).await.unwrap(),
        Outcome::Applied
    );
    scratch.drop().await;
}

/// The largest batch: as many rows as the limit allows, each as large as the limit then allows.
fn full(limits: BatchLimits, pkey: &str, values_per_row: usize) -> Vec<(Bytes, Bytes)> {
    let ccols = |i: usize| Bytes::from(format!("{i:08}"));
    let len = (limits.bytes / limits.rows - pkey.len() - 8) / values_per_row;
    (0..limits.rows).map(|i| (ccols(i), noise(len))).collect()
}

pub(crate) async fn the_largest_conditional_write_is_accepted(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    let storage = &scratch.storage;
    let limits = storage.capabilities().conditional;
    let inserts: Vec<Conditional> = full(limits, "p", 1)
        .into_iter()
        .map(|(ccols, value)| Conditional::Insert { ccols, value, ttl: None })
        .collect();
    assert_eq!(
        storage.write_if("p".into(), inserts.clone(), soon()).await.unwrap(),
        Outcome::Applied
    );
    let refused = storage.write_if("p".into(), inserts, soon()).await.unwrap();
    assert!(matches!(refused, Outcome::NotApplied(conflicts) if conflicts.len() == limits.rows));

    let rows = full(limits, "q", 2);
    let inserts =
        rows.iter().cloned().map(|(ccols, value)| Conditional::Insert { ccols, value, ttl: None });
    assert_eq!(
        storage.write_if("q".into(), inserts.collect(), soon()).await.unwrap(),
        Outcome::Applied
    );
    let swaps = rows.into_iter().map(|(ccols, old)| Conditional::Swap {
        ccols,
        new: old.clone(),
        old,
        ttl: None,
    });
    assert_eq!(
        storage.write_if("q".into(), swaps.collect(), soon()).await.unwrap(),
        Outcome::Applied
    );
    scratch.drop().await;
}

pub(crate) async fn the_largest_ordered_write_is_accepted(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    let limits = scratch.storage.capabilities().ordered.unwrap();
    let put = |order: u64| {
        move |(ccols, value): (Bytes, Bytes)| {
            let key = Key::new("p", ccols);
            OrderedPut { key, value, order: Order::new(order).unwrap(), ttl: None }
        }
    };
    for order in [2, 1] {
        let rows = full(limits, "p", 1).into_iter().map(put(order)).collect();
        scratch.storage.put_ordered(rows, soon()).await.unwrap();
    }
    let rows = scratch.storage.read("p".into(), Range::all(), Consistency::Plain, PATIENCE);
    assert_eq!(rows.try_collect::<Vec<_>>().await.unwrap().len(), limits.rows);
    scratch.drop().await;
}

/// The size of the page after the small rows was chosen by the size of the small rows.
pub(crate) async fn large_rows_behind_small_ones_are_read(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    let storage = &scratch.storage;
    let value = |i: u32| {
        if (100..150).contains(&i) { noise(1 << 20) } else { Bytes::from_static(b"small") }
    };
    let ccols = |i: u32| Bytes::copy_from_slice(&i.to_be_bytes());
    let rows: Vec<Row> = (0..2_000).map(|i| Row { ccols: ccols(i), value: value(i) }).collect();
    let put = |row: &Row| Put { key: Key::new("p", row.ccols.clone()), value: row.value.clone() };
    storage.put_batch(rows.iter().map(put).collect(), soon()).await.unwrap();
    for consistency in [Consistency::Plain, Consistency::Linearizable] {
        let found = storage.read("p".into(), Range::all(), consistency, PATIENCE);
        assert!(found.try_collect::<Vec<_>>().await.unwrap() == rows);
        let some =
            storage.read("p".into(), Range::between(ccols(5), ccols(1_900)), consistency, PATIENCE);
        assert!(some.try_collect::<Vec<_>>().await.unwrap() == rows[5..1_900]);
    }
    let keys: Vec<Key> = rows.iter().map(|row| Key::new("p", row.ccols.clone())).collect();
    let found = storage.get_values(&keys, soon()).await.unwrap();
    assert!(found.iter().map(Option::as_ref).eq(rows.iter().map(|row| Some(&row.value))));
    scratch.drop().await;
}
