//! The layout of keys and rows in a table, and the expressions over them. A change here changes the
//! format.
//!
//! The attributes of an item:
//!
//! - `p`, binary, hash key: the partition key.
//! - `c`, binary, range key: [`FIRST`], then the clustering columns, because a key of DynamoDB is
//!   never empty.
//! - `v`, binary: the value.
//! - `x`, number, only if an ordered row expires: the first millisecond since 1970 at which the row
//!   has expired, by the service's time.
//! - `t`, number, only if an ordered row expires: the second from which DynamoDB's own expiry may
//!   remove the item.
//! - `o`, number, only if the row is ordered: the order.
//! - `l`, number, only if the row is a lease, that is a conditional row that expires: the number of
//!   milliseconds that the lease lasts.
//! - `n`, number, only if the row is a lease: the version, random and new for each write.
//!
//! Invariants:
//! - `t` is so far behind `x` that an item is never removed while its row may still be seen.
//! - A lease has neither `x` nor `t`: no date decides about a lease, and DynamoDB's own expiry does
//!   not either. An expired lease stays until the next lease replaces it.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use bytes::Bytes;
use clock::WallTime;
use istorage::{Conditional, Error, OrderedPut, Range, Result};

use crate::{
    lease::{AttemptTerms, StoredLease},
    time::ServiceTime,
};

/// The attributes of an item by their names.
pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) const PARTITION: &str = "p";
pub(crate) const COLUMNS: &str = "c";
const VALUE: &str = "v";
const EXPIRES: &str = "x";
pub(crate) const PURGED: &str = "t";
const ORDER: &str = "o";
const LASTS: &str = "l";
const VERSION: &str = "n";

/// The first byte of every range key.
const FIRST: u8 = 0;

/// The longest keys that DynamoDB takes, less the byte that this driver adds.
pub(crate) const PKEY_MAX: usize = 2048;
pub(crate) const CCOLS_MAX: usize = 1024 - 1;
/// An item may have 409,600 bytes, including its keys and the names of its attributes.
pub(crate) const VALUE_MAX: usize = 400_000;

/// The delay after which an item may be removed when its row has expired. No node can be wrong
/// about the time by more than this delay.
const PURGE_DELAY_SECONDS: u64 = 24 * 3600;

/// The attributes that a read needs of a row. [`ROW`] is for a row with a known key,
/// [`ROW_IN_PARTITION`] for a row of a known partition, [`ROW_ANYWHERE`] for any row.
pub(crate) const ROW: &str = "v, x, l, n";
pub(crate) const ROW_IN_PARTITION: &str = "c, v, x, l, n";
pub(crate) const ROW_ANYWHERE: &str = "p, c, v, x, l, n";

fn binary(bytes: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn columns(ccols: &[u8]) -> AttributeValue {
    let mut bytes = Vec::with_capacity(1 + ccols.len());
    bytes.push(FIRST);
    bytes.extend_from_slice(ccols);
    binary(bytes)
}

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
    item.insert(ORDER.to_owned(), number(put.order.get()));
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

/// An expression with the values for its placeholders.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: &'static str,
    pub(crate) values: Item,
}

impl Expression {
    fn new<const N: usize>(text: &'static str, values: [(&str, AttributeValue); N]) -> Expression {
        let values = values.map(|(name, value)| (name.to_owned(), value));
        Expression { text, values: Item::from(values) }
    }
}

/// The condition of a conditional write. A row with the version of an expired lease counts as
/// absent.
pub(crate) fn condition(op: &Conditional, terms: AttemptTerms) -> Expression {
    let expired = number(terms.expired);
    match op.expected() {
        None => Expression::new("attribute_not_exists(p) OR n = :expired", [(":expired", expired)]),
        Some(old) => Expression::new(
            "v = :old AND (attribute_not_exists(n) OR n <> :expired)",
            [(":old", binary(old.clone())), (":expired", expired)],
        ),
    }
}

/// The condition of an ordered write. If a write is sent several times, the row lives as long as
/// the longest of these writes asks for.
pub(crate) fn order_condition(put: &OrderedPut, item: &Item) -> Expression {
    let order = (":order", number(put.order.get()));
    match item.get(EXPIRES) {
        None => Expression::new("attribute_not_exists(p) OR o < :order", [order]),
        Some(expires) => Expression::new(
            "attribute_not_exists(p) OR o < :order OR (o = :order AND x < :x)",
            [order, (":x", expires.clone())],
        ),
    }
}

/// The rows of a range, and the row at its end: DynamoDB has no range that excludes its end.
pub(crate) fn range(pkey: &Bytes, range: &Range) -> Expression {
    let (partition, start) = (binary(pkey.clone()), columns(&range.start));
    match &range.end {
        None => Expression::new("p = :p AND c >= :start", [(":p", partition), (":start", start)]),
        Some(end) => Expression::new(
            "p = :p AND c BETWEEN :start AND :end",
            [(":p", partition), (":start", start), (":end", columns(end))],
        ),
    }
}

/// The content of an item, beside its keys.
#[derive(Debug)]
pub(crate) struct ItemContent {
    pub(crate) value: Bytes,
    /// The expiry of an ordered row.
    pub(crate) expires: Option<u64>,
    pub(crate) order: Option<u64>,
    pub(crate) lease: Option<StoredLease>,
}

impl ItemContent {
    /// Takes the content out of an item.
    ///
    /// # Errors
    /// `Corrupt` if this driver did not write the item.
    pub(crate) fn read(item: &mut Item) -> Result<ItemContent> {
        Ok(ItemContent {
            value: take_binary(item, VALUE)?,
            expires: take_number(item, EXPIRES)?,
            order: take_number(item, ORDER)?,
            lease: take_lease(item)?,
        })
    }

    /// The time that an expiring ordered row has left; `None` if the row has expired.
    pub(crate) fn left(&self, now: ServiceTime) -> Option<Duration> {
        if now.earliest.as_millis() >= self.expires? {
            return None;
        }
        let expires = WallTime::from_millis(self.expires?);
        Some(Duration::from_nanos(expires.as_nanos().saturating_sub(now.earliest.as_nanos())))
    }
}

fn take_lease(item: &mut Item) -> Result<Option<StoredLease>> {
    match (take_number(item, VERSION)?, take_number(item, LASTS)?) {
        (Some(version), Some(millis)) => {
            Ok(Some(StoredLease { version, lasts: Duration::from_millis(millis) }))
        }
        (None, None) => Ok(None),
        _ => Err(foreign_item(VERSION)),
    }
}

/// The partition key of an item.
pub(crate) fn take_pkey(item: &mut Item) -> Result<Bytes> {
    take_binary(item, PARTITION)
}

/// The clustering columns of an item.
pub(crate) fn take_ccols(item: &mut Item) -> Result<Bytes> {
    let key = take_binary(item, COLUMNS)?;
    match key.first() {
        Some(&FIRST) => Ok(key.slice(1..)),
        _ => Err(foreign_item(COLUMNS)),
    }
}

fn take_binary(item: &mut Item, name: &str) -> Result<Bytes> {
    match item.remove(name) {
        Some(AttributeValue::B(blob)) => Ok(blob.into_inner().into()),
        _ => Err(foreign_item(name)),
    }
}

fn take_number(item: &mut Item, name: &str) -> Result<Option<u64>> {
    match item.remove(name) {
        None => Ok(None),
        Some(AttributeValue::N(text)) => {
            text.parse().map(Some).map_err(|error| foreign_item(name).with_source(error))
        }
        Some(_) => Err(foreign_item(name)),
    }
}

fn foreign_item(name: &str) -> Error {
    Error::corrupt(format!(
        "the attribute `{name}` of a DynamoDB item is not as this driver writes it"
    ))
}

#[cfg(test)]
mod tests;
