//! The keys of the rows. All numbers are big endian.

use bytes::{BufMut, Bytes, BytesMut};
use istorage::{Error, Result};

use super::CounterKey;
use crate::{Period, WsId};

/// The clustering columns of the row of a counter.
pub(crate) const COUNTER: Bytes = Bytes::from_static(&[0]);

/// The first byte of the clustering columns of ledger rows.
const LEDGER: u8 = 1;

/// The byte after the prefix in the partition key of all definitions. In the keys of counters this
/// byte is the length of the id of the series, which is never 0.
const DEFINITIONS: u8 = 0;

/// The partition key of all definitions.
pub(super) fn definitions(prefix: &[u8]) -> Bytes {
    [prefix, &[DEFINITIONS]].concat().into()
}

/// The partition key of a counter.
pub(super) fn counter(prefix: &[u8], of: &CounterKey) -> Bytes {
    let id = of.series.as_str().as_bytes();
    let mut key = BytesMut::with_capacity(prefix.len() + 1 + id.len() + 5 + 8);
    key.put_slice(prefix);
    // An id has at most 64 bytes.
    key.put_u8(id.len() as u8);
    key.put_slice(id);
    key.put_slice(&of.period.to_bytes());
    if let Some(ws) = of.ws {
        key.put_u64(ws.0);
    }
    key.freeze()
}

/// The counter with a partition key.
pub(super) fn counter_of(prefix: &[u8], pkey: &[u8]) -> Result<CounterKey> {
    let parse = || {
        let (length, rest) = pkey.strip_prefix(prefix)?.split_first()?;
        let (id, rest) = rest.split_at_checked((*length).into())?;
        let (period, ws) = rest.split_first_chunk::<5>()?;
        let series = str::from_utf8(id).ok()?.parse().ok()?;
        let ws = match ws {
            [] => None,
            ws => Some(WsId(u64::from_be_bytes(ws.try_into().ok()?))),
        };
        Some(CounterKey { series, period: Period::from_bytes(*period)?, ws })
    };
    let of = parse().filter(|of| counter(prefix, of) == *pkey);
    of.ok_or_else(|| Error::corrupt("the key of a counter of document numbers is damaged"))
}

/// The clustering columns of the ledger row of a range.
pub(crate) fn ledger(first: u64) -> Bytes {
    let [a, b, c, d, e, f, g, h] = first.to_be_bytes();
    Bytes::copy_from_slice(&[LEDGER, a, b, c, d, e, f, g, h])
}

/// The first counter of the range of a ledger row.
pub(super) fn first_of_ledger(ccols: &[u8]) -> Result<u64> {
    match ccols.split_first() {
        Some((&LEDGER, first)) => first.try_into().map(u64::from_be_bytes).ok(),
        _ => None,
    }
    .ok_or_else(|| Error::corrupt("the key of a ledger row of document numbers is damaged"))
}

#[cfg(test)]
mod tests {
    use clock::WallTime;

    use super::*;
    use crate::{Calendar, Reset};

    #[test]
    fn every_byte_of_every_key_is_pinned() {
        let date =
            Calendar::named("UTC").unwrap().day(WallTime::from_millis(1_369_180_800_000)).date;
        let period = Period::of(Reset::Day, date);
        let key = |ws| CounterKey { series: "Bill".parse().unwrap(), period, ws };
        let whole = [9, 8, 4, b'b', b'i', b'l', b'l', 4, 7, 221, 5, 22];
        assert_eq!(counter(&[9, 8], &key(None))[..], whole);
        let of_ws = counter(&[9, 8], &key(Some(WsId(0x0102))));
        assert_eq!(of_ws[..], [&whole[..], &[0, 0, 0, 0, 0, 0, 1, 2]].concat());
        for of in [key(None), key(Some(WsId(u64::MAX)))] {
            assert_eq!(counter_of(&[9, 8], &counter(&[9, 8], &of)).unwrap(), of);
        }
        let odd = [&whole[..3], &whole[..11], &of_ws[..19], &[9, 8, 0], &[9, 8], &[9, 7]];
        for odd in odd {
            assert!(counter_of(&[9, 8], odd).is_err(), "{odd:?}");
        }
        assert_eq!(definitions(&[9, 8])[..], [9, 8, 0]);
        assert_eq!(COUNTER[..], [0]);
        assert_eq!(ledger(0x0304)[..], [1, 0, 0, 0, 0, 0, 0, 3, 4]);
        assert_eq!(first_of_ledger(&ledger(u64::MAX)).unwrap(), u64::MAX);
        for damaged in [&[][..], &[0], &[1, 2], &[2, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 10]] {
            assert!(first_of_ledger(damaged).is_err(), "{damaged:?}");
        }
    }
}
