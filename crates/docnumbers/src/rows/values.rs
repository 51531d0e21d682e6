//! The bytes of counters and of ledger rows. All numbers are big endian.
//!
//! Invariant: the bytes of a row that one attempt writes are never those of another attempt,
//! because each attempt has a random token. So equal bytes prove that an attempt without an answer
//! was applied, and an attempt that lands late finds other bytes than it expects.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use clock::{Clock, WallTime};
use istorage::{Error, Result};

use super::{LedgerEntry, RangeState};

/// The version of both formats.
const VERSION: u8 = 1;

const OPEN: u8 = 0;
const NOT_ISSUED: u8 = 1;

/// The random number of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token([u64; 2]);

impl Token {
    pub(crate) fn new(clock: &Clock) -> Token {
        Token([clock.random(), clock.random()])
    }

    fn put(self, to: &mut BytesMut) {
        self.0.into_iter().for_each(|half| to.put_u64(half));
    }

    fn take(from: &mut &[u8]) -> Option<Token> {
        Some(Token([from.try_get_u64().ok()?, from.try_get_u64().ok()?]))
    }
}

/// The row of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterRow {
    /// The next counter to reserve.
    pub(crate) next: u64,
    pub(crate) token: Token,
}

impl CounterRow {
    pub(crate) fn bytes(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(1 + 8 + 16);
        bytes.put_u8(VERSION);
        bytes.put_u64(self.next);
        self.token.put(&mut bytes);
        bytes.freeze()
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<CounterRow> {
        let parse = |mut bytes: &[u8]| {
            check_version(&mut bytes)?;
            let next = bytes.try_get_u64().ok()?;
            let token = Token::take(&mut bytes)?;
            bytes.is_empty().then_some(CounterRow { next, token })
        };
        parse(bytes).ok_or_else(|| damaged("a counter"))
    }
}

/// A row of the ledger. Its key has the first counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LedgerRow {
    pub(crate) until: u64,
    pub(crate) state: RangeState,
    pub(crate) reserved_at: WallTime,
    pub(crate) owner: String,
    pub(crate) token: Token,
}

impl LedgerRow {
    /// The size of the row without its owner.
    pub(super) const SIZE: usize = 2 + 8 + 8 + 16;

    pub(crate) fn bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(Self::SIZE + self.owner.len());
        bytes.put_u8(VERSION);
        bytes.put_u8(match self.state {
            RangeState::Open => OPEN,
            RangeState::NotIssued => NOT_ISSUED,
        });
        bytes.put_u64(self.until);
        bytes.put_u64(self.reserved_at.as_millis());
        self.token.put(&mut bytes);
        bytes.put_slice(self.owner.as_bytes());
        bytes.freeze()
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<LedgerRow> {
        let parse = |mut bytes: &[u8]| {
            check_version(&mut bytes)?;
            let state = match bytes.try_get_u8().ok()? {
                OPEN => RangeState::Open,
                NOT_ISSUED => RangeState::NotIssued,
                _ => return None,
            };
            let until = bytes.try_get_u64().ok()?;
            let reserved_at = WallTime::from_millis(bytes.try_get_u64().ok()?);
            let token = Token::take(&mut bytes)?;
            let owner = str::from_utf8(bytes).ok()?.to_owned();
            Some(LedgerRow { until, state, reserved_at, owner, token })
        };
        parse(bytes).ok_or_else(|| damaged("a range"))
    }

    pub(super) fn entry(self, first: u64) -> LedgerEntry {
        let LedgerRow { until, state, reserved_at, owner, .. } = self;
        LedgerEntry { first, until, owner, reserved_at, state }
    }
}

fn check_version(bytes: &mut &[u8]) -> Option<()> {
    (bytes.try_get_u8().ok()? == VERSION).then_some(())
}

fn damaged(row: &str) -> Error {
    Error::corrupt(format!(
        "the row of {row} of document numbers is damaged, or of a later version"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_every_row_is_pinned() {
        let token = Token([0x0a, 0x0b]);
        let token_bytes = [0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0x0b];
        let counter = CounterRow { next: 0x0102, token };
        let expected = [&[1, 0, 0, 0, 0, 0, 0, 1, 2][..], &token_bytes].concat();
        assert_eq!(counter.bytes(), expected);
        assert_eq!(CounterRow::read(&expected).unwrap(), counter);
        for (state, tag) in [(RangeState::Open, 0), (RangeState::NotIssued, 1)] {
            let reserved_at = WallTime::from_millis(3);
            let row = LedgerRow { until: 2, state, reserved_at, owner: "ab".to_owned(), token };
            let numbers = [1, tag, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3];
            let expected = [&numbers[..], &token_bytes, b"ab"].concat();
            assert_eq!(row.bytes(), expected);
            assert_eq!(row.clone().entry(1).row_size(), expected.len());
            assert_eq!(LedgerRow::read(&expected).unwrap(), row);
        }
    }

    #[test]
    fn damaged_rows_are_refused() {
        let token = Token([1, 2]);
        let counter = CounterRow { next: 7, token }.bytes();
        for end in 0..counter.len() {
            assert!(CounterRow::read(&counter[..end]).is_err());
        }
        assert!(CounterRow::read(&[&counter[..], b"x"].concat()).is_err());
        assert!(CounterRow::read(&[&[2], &counter[1..]].concat()).is_err(), "a later version");
        let (state, reserved_at) = (RangeState::Open, WallTime::from_millis(3));
        let row = LedgerRow { until: 2, state, reserved_at, owner: "ä".to_owned(), token }.bytes();
        for end in 0..34 {
            assert!(LedgerRow::read(&row[..end]).is_err());
        }
        assert!(LedgerRow::read(&row[..35]).is_err(), "half a letter");
        assert!(LedgerRow::read(&[&[1, 2], &row[2..]].concat()).is_err(), "no such state");
    }
}
