//! The rows and writes that trials use.

use std::time::Duration;

use bytes::Bytes;
use istorage::{Conditional, Key, Order, OrderedPut, Put, Row};

use crate::trial::Verdict;

/// A value that is different for each `n`.
pub(super) fn value(n: usize) -> Bytes {
    format!("value {n}").into()
}

/// A value of `len` bytes that does not compress well.
pub(super) fn value_of(len: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(len as u64);
    let mut value = vec![0; len];
    random.fill(&mut value);
    value.into()
}

/// Clustering columns that sort like `n`.
pub(super) fn place(n: usize) -> Bytes {
    Bytes::copy_from_slice(&(n as u32).to_be_bytes())
}

/// Keys that test comparing and sorting, in their right order. Only a storage that takes keys for
/// unsigned bytes and nothing else tells these keys apart and sorts them rightly.
pub(super) fn awkward_keys() -> Vec<Bytes> {
    let mut keys: Vec<Bytes> = (0..=u8::MAX).map(|byte| Bytes::from(vec![byte])).collect();
    let others: [&'static [u8]; 20] = [
        b"",
        b"\x00\x00",
        b"\x00\x00\x00",
        b"\x00\x01",
        b"\x00\xff",
        b"\x01\x00",
        b"a\x00",
        b"a\x00b",
        b"aa",
        b"ab",
        b"abc",
        b"a\xff",
        b"\x7f\xff",
        b"\x80\x00",
        b"\xc3\x28",
        b"\xfe\xff",
        b"\xff\x00",
        b"\xff\xfe",
        b"\xff\xff",
        b"\xff\xff\xff\xff",
    ];
    keys.extend(others.into_iter().map(Bytes::from_static));
    keys.sort_unstable();
    keys
}

pub(super) fn row(ccols: impl Into<Bytes>, value: impl Into<Bytes>) -> Row {
    Row { ccols: ccols.into(), value: value.into() }
}

pub(super) fn put(key: Key, value: impl Into<Bytes>) -> Put {
    Put { key, value: value.into() }
}

pub(super) fn ordered(key: Key, value: impl Into<Bytes>, order: u64) -> Verdict<OrderedPut> {
    Ok(OrderedPut { key, value: value.into(), order: Order::new(order)?, ttl: None })
}

pub(super) fn insert(ccols: impl Into<Bytes>, value: impl Into<Bytes>) -> Conditional {
    insert_for(ccols, value, None)
}

pub(super) fn insert_for(
    ccols: impl Into<Bytes>,
    value: impl Into<Bytes>,
    ttl: impl Into<Option<Duration>>,
) -> Conditional {
    Conditional::Insert { ccols: ccols.into(), value: value.into(), ttl: ttl.into() }
}

pub(super) fn swap(
    ccols: impl Into<Bytes>,
    old: impl Into<Bytes>,
    new: impl Into<Bytes>,
) -> Conditional {
    swap_for(ccols, old, new, None)
}

pub(super) fn swap_for(
    ccols: impl Into<Bytes>,
    old: impl Into<Bytes>,
    new: impl Into<Bytes>,
    ttl: impl Into<Option<Duration>>,
) -> Conditional {
    Conditional::Swap { ccols: ccols.into(), old: old.into(), new: new.into(), ttl: ttl.into() }
}

pub(super) fn delete(ccols: impl Into<Bytes>, old: impl Into<Bytes>) -> Conditional {
    Conditional::Delete { ccols: ccols.into(), old: old.into() }
}
