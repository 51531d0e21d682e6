use std::time::Duration;

use clock::WallTime;
use istorage::{Key, Order, OrderedPut};

use super::*;
use crate::time::ServiceTime;

fn put(ttl: Option<Duration>) -> OrderedPut {
    let (key, order) = (Key::new("p", "c"), Order::new(1).unwrap());
    OrderedPut { key, value: "v".into(), order, ttl }
}

fn number_of(item: &Item, name: &str) -> Option<u64> {
    item.get(name).map(|value| value.as_n().unwrap().parse().unwrap())
}

/// A time that is known to a second.
fn time(nanos: u64) -> ServiceTime {
    let earliest = WallTime::from_nanos(nanos);
    ServiceTime { earliest, latest: earliest + Duration::from_secs(1) }
}

#[test]
fn a_row_lives_at_least_as_long_as_asked_within_all_bounds_of_the_time() {
    let ttl = Duration::from_millis(10);
    // The writer counts from the latest possible time. Here the latest possible time is the
    // true time.
    let written_at = time(1_000_000_000_700_000);
    let mut item = ordered_item(&put(Some(ttl)), written_at);
    let ItemExpiry::At(expires) = ItemContent::read(&mut item).unwrap().expiry else {
        panic!("the row has a TTL")
    };
    let left = |now| time_left(expires, time(now));
    let truth = written_at.latest.as_nanos();
    assert!(left(truth + 9_999_999).is_some());
    assert_eq!(left(truth + 11_000_000), None);
    assert_eq!(left(truth), Some(Duration::from_nanos(10_300_000)));
    // A reader that knows the time no better than the writer judges by the earliest possible
    // time.
    assert!(left(truth + 9_999_999 - 1_000_000_000).is_some());
}

#[test]
fn an_item_is_removed_a_day_after_its_row_and_not_before() {
    let ttl = Some(Duration::from_millis(1_000));
    let item = ordered_item(&put(ttl), time(1_000_999_000_000));
    let expires = number_of(&item, EXPIRES).unwrap();
    let purged = number_of(&item, PURGED).unwrap();
    assert_eq!(expires, 1_002_999);
    assert!(purged * 1_000 > expires + 24 * 3600 * 1_000);
    assert!(purged * 1_000 <= expires + 24 * 3600 * 1_000 + 1_000);
}

#[test]
fn a_row_without_a_ttl_is_never_removed() {
    let mut item = ordered_item(&put(None), time(1_000_000_000));
    assert_eq!((number_of(&item, EXPIRES), number_of(&item, PURGED)), (None, None));
    let stored = ItemContent::read(&mut item).unwrap();
    assert_eq!(stored.expiry, ItemExpiry::Never);
}

#[test]
fn empty_columns_make_a_key_that_sorts_first() {
    let bytes = |ccols: &[u8]| columns(ccols).as_b().unwrap().clone().into_inner();
    assert!(!bytes(b"").is_empty());
    assert!(bytes(b"") < bytes(b"\0") && bytes(b"\x7f") < bytes(b"\x80"));
    assert_eq!(take_ccols(&mut key(&"p".into(), b"")).unwrap(), "");
    assert_eq!(take_ccols(&mut key(&"p".into(), b"\0a")).unwrap(), "\0a");
}

#[test]
fn an_item_that_this_driver_did_not_write_is_corrupt() {
    let foreign = [
        Item::new(),
        Item::from([(VALUE.to_owned(), AttributeValue::S("text".to_owned()))]),
        Item::from([
            (VALUE.to_owned(), binary("v")),
            (EXPIRES.to_owned(), AttributeValue::N("1.5".to_owned())),
        ]),
        // A lease without a duration.
        Item::from([(VALUE.to_owned(), binary("v")), (VERSION.to_owned(), number(7))]),
        // A lease with a date.
        Item::from([
            (VALUE.to_owned(), binary("v")),
            (EXPIRES.to_owned(), number(1)),
            (VERSION.to_owned(), number(7)),
            (LASTS.to_owned(), number(1)),
        ]),
    ];
    for mut item in foreign {
        let error = ItemContent::read(&mut item).unwrap_err();
        assert_eq!(error.kind(), istorage::ErrorKind::Corrupt);
    }
}
