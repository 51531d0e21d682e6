//! The content of an item that was read.

use std::time::Duration;

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
