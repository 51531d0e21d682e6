//! DynamoDB takes everything that the capabilities promise.

use std::time::Duration;

use bytes::Bytes;
use istorage::{
    AppStorage, AtomicBatch, Conditional, ErrorKind, Key, Order, OrderedPut, Put, Range, Row,
};

use crate::support::{DynamoDbServer, get, insert, put, read, soon};

const TTL: Option<Duration> = Some(Duration::from_secs(3600));

/// A key with parts of the greatest length, a different key for each `n`.
fn longest_key(storage: &dyn AppStorage, n: usize) -> Key {
    let limits = storage.capabilities().row;
    let mut ccols = vec![0xff; limits.ccols];
    ccols[..8].copy_from_slice(&n.to_be_bytes());
    Key::new(vec![0xff; limits.pkey], ccols)
}

fn value(len: usize) -> Bytes {
    vec![0xab; len].into()
}

fn largest(storage: &dyn AppStorage) -> Bytes {
    value(storage.capabilities().row.value)
}

pub(crate) async fn the_largest_items_of_every_kind_are_accepted(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    let (key, value) = (|n| longest_key(storage, n), largest(storage));
    storage.put_batch(vec![put(key(0), value.clone())], soon()).await.unwrap();
    let ordered = OrderedPut {
        key: key(1),
        value: value.clone(),
        order: Order::new(Order::MAX).unwrap(),
        ttl: TTL,
    };
    storage.put_ordered(vec![ordered], soon()).await.unwrap();
    let insert = Conditional::Insert { ccols: key(2).ccols, value: value.clone(), ttl: TTL };
    let swap =
        Conditional::Swap { ccols: key(2).ccols, old: value.clone(), new: value.clone(), ttl: TTL };
    for op in [insert, swap] {
        let outcome = storage.write_if(key(2).pkey, vec![op], soon()).await.unwrap();
        assert!(outcome.is_applied());
    }
    for n in 0..3 {
        assert_eq!(get(storage, &key(n)).await, Some(value.clone()));
    }
    scratch.remove().await;
}

pub(crate) async fn a_batch_of_the_largest_items_is_accepted(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    let puts: Vec<Put> = (0..26).map(|n| put(longest_key(storage, n), largest(storage))).collect();
    storage.put_batch(puts.clone(), soon()).await.unwrap();
    let keys: Vec<Key> = puts.iter().map(|put| put.key.clone()).collect();
    let found = storage.get_values(&keys, soon()).await.unwrap();
    assert!(found.iter().zip(&puts).all(|(found, put)| found.as_ref() == Some(&put.value)));
    scratch.remove().await;
}

pub(crate) async fn the_largest_transactions_are_accepted(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    let limits = storage.capabilities().atomic.unwrap();
    assert_eq!(storage.capabilities().conditional, limits);

    // The largest number of rows, with the longest keys and all attributes that a row can have.
    let each = limits.bytes / limits.rows;
    let op = |n| {
        let key = longest_key(storage, n);
        let value = value(each - key.pkey.len() - key.ccols.len());
        Conditional::Insert { ccols: key.ccols, value, ttl: TTL }
    };
    let ops: Vec<_> = (0..limits.rows).map(op).collect();
    let outcome = storage.write_if(longest_key(storage, 0).pkey, ops, soon()).await.unwrap();
    assert!(outcome.is_applied());

    // The largest rows.
    let row = storage.capabilities().row.value;
    let count = limits.bytes / (row + 8);
    let sizes = (0..count).map(|_| row).chain([limits.bytes - count * (row + 8) - 8]);
    let ordered = sizes.enumerate().map(|(n, size)| OrderedPut {
        key: Key::new("p", format!("{n:07}")),
        value: value(size),
        order: Order::new(Order::MAX).unwrap(),
        ttl: TTL,
    });
    let batch = AtomicBatch { ordered: ordered.collect(), ..AtomicBatch::default() };
    assert!(storage.write_atomic(batch, soon()).await.unwrap().is_applied());
    scratch.remove().await;
}

pub(crate) async fn a_transaction_with_a_row_too_many_is_invalid(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    let ops = |count: u32| (0..count).map(|n| insert(n.to_be_bytes().to_vec(), "v")).collect();
    let error = storage.write_if("p".into(), ops(101), soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(read(storage, "p", Range::all()).await, []);
    assert!(storage.write_if("p".into(), ops(100), soon()).await.unwrap().is_applied());
    assert_eq!(read(storage, "p", Range::all()).await.len(), 100);
    scratch.remove().await;
}

pub(crate) async fn empty_keys_are_accepted(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    let key = |ccols: &'static [u8]| Key::new("p", ccols);
    let rows = [key(b""), key(b"\0"), key(b"\xff")].map(|key| put(key, ""));
    storage.put_batch(rows.to_vec(), soon()).await.unwrap();
    assert_eq!(get(storage, &key(b"")).await, Some(Bytes::new()));
    let row = |ccols: &'static [u8]| Row { ccols: ccols.into(), value: Bytes::new() };
    let all = [row(b""), row(b"\0"), row(b"\xff")];
    assert_eq!(read(storage, "p", Range::all()).await, all);
    assert_eq!(read(storage, "p", Range::between("", "\0")).await, all[..1]);
    assert_eq!(read(storage, "p", Range::only(b"")).await, all[..1]);
    let error = storage.put_batch(vec![put(Key::new("", "c"), "v")], soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    scratch.remove().await;
}
