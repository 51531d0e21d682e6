//! The rows of an election, to the byte.

use std::{fmt, net::SocketAddr, num::NonZeroU32};

use base::Epoch;
use bytes::Bytes;

/// A place that nodes compete for. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(NonZeroU32);

impl Seat {
    /// Seat 1.
    pub const FIRST: Seat = Seat(NonZeroU32::MIN);

    /// Returns the seat with this number; `None` for 0, which is not a seat.
    pub fn new(number: u32) -> Option<Seat> {
        NonZeroU32::new(number).map(Seat)
    }

    /// Returns the number of the seat.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl From<NonZeroU32> for Seat {
    fn from(number: NonZeroU32) -> Seat {
        Seat(number)
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A random number that is new for each attempt to lead. So a request of an earlier attempt cannot
/// change the lease of a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The row that a leader holds. It expires unless it is renewed.
///
/// An attempt owns the lease only if all bytes of the row are those that it wrote.
///
/// ```
/// use ielections::{Epoch, Incarnation, Lease};
///
/// let lease = Lease { owner: "10.0.0.5:8080".parse().unwrap(), incarnation: Incarnation(0xabc), epoch: Epoch(7) };
/// assert_eq!(lease.to_bytes(), "10.0.0.5:8080|00000000000000000000000000000abc|7");
/// assert_eq!(Lease::from_bytes(&lease.to_bytes()), Some(lease));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address of the leader.
    pub owner: SocketAddr,
    /// The incarnation of the attempt that took the lease.
    pub incarnation: Incarnation,
    /// The epoch of the leadership.
    pub epoch: Epoch,
}

impl Lease {
    /// Returns the lease as it is stored: as text, so that an operator can read it.
    pub fn to_bytes(&self) -> Bytes {
        self.to_string().into()
    }

    /// Reads a lease; `None` if the bytes are not a lease.
    pub fn from_bytes(bytes: &[u8]) -> Option<Lease> {
        let mut parts = std::str::from_utf8(bytes).ok()?.split('|');
        let owner = parts.next()?.parse().ok()?;
        let incarnation = Incarnation(u128::from_str_radix(parts.next()?, 16).ok()?);
        let epoch = Epoch(parts.next()?.parse().ok()?);
        let lease = Lease { owner, incarnation, epoch };
        // Other spellings of the same values are refused: each lease has exactly one text.
        (lease.to_bytes() == bytes).then_some(lease)
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}|{}", self.owner, self.incarnation, self.epoch)
    }
}

/// The row that never expires: the highest epoch, and the attempt that raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRow {
    /// The highest epoch of the seat.
    pub epoch: Epoch,
    /// The incarnation of the attempt that raised the epoch.
    pub incarnation: Incarnation,
}

impl EpochRow {
    /// Returns the row as it is stored: the epoch in 8 bytes and the incarnation in 16, big endian.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(24);
        bytes.extend_from_slice(&self.epoch.0.to_be_bytes());
        bytes.extend_from_slice(&self.incarnation.0.to_be_bytes());
        bytes.into()
    }

    /// Reads an epoch row; `None` if the bytes are not an epoch row.
    pub fn from_bytes(bytes: &[u8]) -> Option<EpochRow> {
        let (epoch, incarnation) = bytes.split_first_chunk::<8>()?;
        Some(EpochRow {
            epoch: Epoch(u64::from_be_bytes(*epoch)),
            incarnation: Incarnation(u128::from_be_bytes(incarnation.try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_lease_is_pinned() {
        let lease = Lease {
            owner: "[::1]:80".parse().unwrap(),
            incarnation: Incarnation(u128::MAX),
            epoch: Epoch(u64::MAX),
        };
        let text = "[::1]:80|ffffffffffffffffffffffffffffffff|18446744073709551615";
        assert_eq!(lease.to_bytes(), text);
        assert_eq!(Lease::from_bytes(text.as_bytes()), Some(lease));
    }

    #[test]
    fn bytes_that_are_not_a_lease_are_refused() {
        let foreign = [
            "",
            "10.0.0.5",
            "10.0.0.5:80|abc|7",
            "10.0.0.5:80|00000000000000000000000000000ABC|7",
            "10.0.0.5:80|00000000000000000000000000000abc|7|",
            "10.0.0.5:80|00000000000000000000000000000abc|+7",
            "10.0.0.5|00000000000000000000000000000abc|7",
        ];
        for text in foreign {
            assert_eq!(Lease::from_bytes(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Lease::from_bytes(&[0xff]), None);
    }

    #[test]
    fn every_byte_of_an_epoch_row_is_pinned() {
        let row = EpochRow { epoch: Epoch(0x0102), incarnation: Incarnation(0x0304) };
        let mut bytes = [0; 24];
        (bytes[6], bytes[7], bytes[22], bytes[23]) = (1, 2, 3, 4);
        assert_eq!(row.to_bytes(), &bytes[..]);
        assert_eq!(EpochRow::from_bytes(&bytes), Some(row));
        assert_eq!(EpochRow::from_bytes(&bytes[..23]), None);
        assert_eq!(EpochRow::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }
}
