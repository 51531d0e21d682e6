//! What the rows of an election hold, to the byte.

use std::{fmt, net::SocketAddr, num::NonZeroU32};

use bytes::Bytes;

/// One of the places that nodes compete for. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(NonZeroU32);

impl Slot {
    /// Slot 1.
    pub const FIRST: Slot = Slot(NonZeroU32::MIN);

    /// `None` for 0, which is no slot.
    pub fn new(number: u32) -> Option<Slot> {
        NonZeroU32::new(number).map(Slot)
    }

    /// Its number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing token of a leadership. No two leaderships of a slot share one, and a later one has a higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A random number that is new for each attempt to lead, so that nothing an earlier attempt sent can touch a later one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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

/// The row that a leader holds: it expires unless it is renewed. Whoever owns it, owns all of its bytes.
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
    /// Where the leader is found.
    pub owner: SocketAddr,
    /// Of the attempt that took it.
    pub incarnation: Incarnation,
    /// Of the leadership.
    pub epoch: Epoch,
}

impl Lease {
    /// As it is stored: its text, so that an operator can read it.
    pub fn to_bytes(&self) -> Bytes {
        self.to_string().into()
    }

    /// `None` if the bytes are no lease.
    pub fn from_bytes(bytes: &[u8]) -> Option<Lease> {
        let mut parts = std::str::from_utf8(bytes).ok()?.split('|');
        let owner = parts.next()?.parse().ok()?;
        let incarnation = Incarnation(u128::from_str_radix(parts.next()?, 16).ok()?);
        let epoch = Epoch(parts.next()?.parse().ok()?);
        let lease = Lease { owner, incarnation, epoch };
        // Only what is written the one way that we write it.
        (lease.to_bytes() == bytes).then_some(lease)
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}|{}", self.owner, self.incarnation, self.epoch)
    }
}

/// The row that never expires: the highest epoch, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRow {
    /// The highest epoch to which the slot was raised.
    pub epoch: Epoch,
    /// The attempt that raised it.
    pub incarnation: Incarnation,
}

impl EpochRow {
    /// As it is stored: the epoch in 8 bytes, the incarnation in 16, big endian.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(24);
        bytes.extend_from_slice(&self.epoch.0.to_be_bytes());
        bytes.extend_from_slice(&self.incarnation.0.to_be_bytes());
        bytes.into()
    }

    /// `None` if the bytes are no such row.
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
    fn what_is_no_lease_is_told_so() {
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
