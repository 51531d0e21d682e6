//! The layout of keys and rows in a table, and the expressions over them. A change here changes the
//! format.
//!
//! The attributes of an item:
//!
//! - `p`, binary, hash key: the partition key.
//! - `c`, binary, range key: [`FIRST`], then the clustering columns, because a key of DynamoDB is
//!   never empty.
//! - `v`, binary: the value.
//! - `x`, number, only if an ordered row expires: the first millisecond since 1970 when the row has
//!   expired, by the service's time.
//! - `t`, number, only if an ordered row expires: when DynamoDB's own expiry may remove the item,
//!   in seconds since 1970.
//! - `o`, number, only if the row is ordered: the rank of the order, which is negative in the band
//!   *first*.
//! - `l`, number, only if the row is a lease, that is a conditional row that expires: the number of
//!   milliseconds that the lease lasts.
//! - `n`, number, only if the row is a lease: the version, random and new for each write.
//!
//! Invariants:
//! - `t` is so long after `x` that an item is never removed while a node may still see its row.
//! - A lease has neither `x` nor `t`: neither a date nor DynamoDB's own expiry decides about a
//!   lease. An expired lease stays until the next lease replaces it.

mod content;
mod expression;
mod item;

use std::collections::HashMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use istorage::Order;

pub(crate) use self::{
    content::{ItemContent, ItemExpiry, take_ccols, take_pkey, time_left},
    expression::{Expression, condition, order_condition, range},
    item::{item, key, ordered_item, written_item},
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

/// The attributes that a read needs from a row. [`ROW`] is for a row with a known key,
/// [`ROW_IN_PARTITION`] for a row of a known partition, [`ROW_ANYWHERE`] for any row.
pub(crate) const ROW: &str = "v, x, l, n";
pub(crate) const ROW_IN_PARTITION: &str = "c, v, x, l, n";
pub(crate) const ROW_ANYWHERE: &str = "p, c, v, x, l, n, o";

fn binary(bytes: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn rank(order: Order) -> AttributeValue {
    AttributeValue::N(order.rank().to_string())
}

fn columns(ccols: &[u8]) -> AttributeValue {
    let mut bytes = Vec::with_capacity(1 + ccols.len());
    bytes.push(FIRST);
    bytes.extend_from_slice(ccols);
    binary(bytes)
}

#[cfg(test)]
mod tests;
