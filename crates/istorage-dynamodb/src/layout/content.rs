//! The content of an item that was read.

use std::{num::ParseIntError, str::FromStr, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use clock::WallTime;
use istorage::{Error, Result};

use super::{COLUMNS, EXPIRES, FIRST, Item, LASTS, ORDER, PARTITION, VALUE, VERSION};
use crate::{lease::StoredLease, time::ServiceTime};

/// The content of an item, beside its keys.
#[derive(Debug)]
pub(crate) struct ItemContent {
    pub(crate) value: Bytes,
    /// The [rank](istorage::Order::rank) of an ordered row.
    pub(crate) rank: Option<i64>,
    pub(crate) expiry: ItemExpiry,
}

/// How an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemExpiry {
    Never,
    /// An ordered row expires at this time of the service, in milliseconds.
    At(u64),
    /// A conditional row expires for a node that has seen this lease for long enough.
    Watched(StoredLease),
}

impl ItemContent {
    /// Takes the content out of an item.
    ///
    /// # Errors
    /// `Corrupt` if this driver did not write the item.
    pub(crate) fn read(item: &mut Item) -> Result<ItemContent> {
        let (version, lasts) = (take_number(item, VERSION)?, take_number(item, LASTS)?);
        let expiry = match (take_number(item, EXPIRES)?, version, lasts) {
            (None, None, None) => ItemExpiry::Never,
            (Some(at), None, None) => ItemExpiry::At(at),
            (None, Some(version), Some(millis)) => {
                ItemExpiry::Watched(StoredLease { version, lasts: Duration::from_millis(millis) })
            }
            _ => return Err(foreign_item(VERSION)),
        };
        Ok(ItemContent {
            value: take_binary(item, VALUE)?,
            rank: take_number(item, ORDER)?,
            expiry,
        })
    }
}

/// The time until `expires`, which is a time of the service in milliseconds. `None` if `expires`
/// has passed.
pub(crate) fn time_left(expires: u64, now: ServiceTime) -> Option<Duration> {
    let left = WallTime::from_millis(expires).as_nanos().checked_sub(now.earliest.as_nanos())?;
    (left > 0).then(|| Duration::from_nanos(left))
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

fn take_number<N>(item: &mut Item, name: &str) -> Result<Option<N>>
where
    N: FromStr<Err = ParseIntError>,
{
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
