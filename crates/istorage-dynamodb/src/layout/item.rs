//! The items that writes leave.

use std::time::Duration;

use bytes::Bytes;
use istorage::{Conditional, OrderedPut};

use super::{
    COLUMNS, EXPIRES, Item, LASTS, ORDER, PARTITION, PURGED, VALUE, VERSION, binary, columns,
    number, rank,
};
use crate::{
    lease::{AttemptTerms, StoredLease},
    time::ServiceTime,
};

/// How long after the expiry of its row an item may be removed. No node can be wrong about the time
/// by more than this.
const PURGE_DELAY_SECONDS: u64 = 24 * 3600;

/// The key of an item.
pub(crate) fn key(pkey: &Bytes, ccols: &[u8]) -> Item {
    Item::from([(PARTITION.to_owned(), binary(pkey.clone())), (COLUMNS.to_owned(), columns(ccols))])
}

/// The item of a row that has no order and does not expire.
pub(crate) fn item(pkey: &Bytes, ccols: &[u8], value: &Bytes) -> Item {
    let mut item = key(pkey, ccols);
    item.insert(VALUE.to_owned(), binary(value.clone()));
    item
}

/// The item of an ordered row.
pub(crate) fn ordered_item(put: &OrderedPut, now: ServiceTime) -> Item {
    let mut item = item(&put.key.pkey, &put.key.ccols, &put.value);
    item.insert(ORDER.to_owned(), rank(put.order));
    expire(&mut item, put.ttl, now);
    item
}

/// The item that a conditional write leaves; `None` if the write leaves none.
pub(crate) fn written_item(pkey: &Bytes, op: &Conditional, terms: AttemptTerms) -> Option<Item> {
    let mut item = item(pkey, op.ccols(), op.written()?);
    if let Some(StoredLease { version, lasts }) = terms.lease {
        let millis = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        item.insert(LASTS.to_owned(), number(millis));
        item.insert(VERSION.to_owned(), number(version));
    }
    Some(item)
}

fn expire(item: &mut Item, ttl: Option<Duration>, now: ServiceTime) {
    let Some(ttl) = ttl else { return };
    // The expiry counts from the latest possible time, and is rounded up: a row never expires
    // early.
    let expires = (now.latest + ttl).as_nanos().div_ceil(1_000_000);
    item.insert(EXPIRES.to_owned(), number(expires));
    item.insert(PURGED.to_owned(), number(expires / 1_000 + 1 + PURGE_DELAY_SECONDS));
}
