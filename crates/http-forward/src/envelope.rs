//! The envelope of a forwarded request: its owner, its partition, and the time that it has left.
//!
//! The owner refuses a request unless the envelope names this owner, in the present epoch of the
//! partition. An incarnation belongs to one process of one cluster. So a process that took over the
//! address of another one, even of another cluster, refuses the request.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use vvm::{ielections::Incarnation, sysvvm::ownership::OwnerEpoch};

const INCARNATION: HeaderName = HeaderName::from_static("x-vvm-incarnation");
const PARTITION: HeaderName = HeaderName::from_static("x-vvm-partition");
const EPOCH: HeaderName = HeaderName::from_static("x-vvm-epoch");
const DEADLINE_MS: HeaderName = HeaderName::from_static("x-vvm-deadline-ms");

/// The header with the code of a problem, in answers to other nodes.
pub const PROBLEM: HeaderName = HeaderName::from_static("x-vvm-problem");

/// The envelope of a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The owner, as the sender saw it.
    pub incarnation: Incarnation,
    /// The partition of the request.
    pub partition: u16,
    /// The epoch of the partition, as the sender saw it.
    pub epoch: OwnerEpoch,
    /// The time that is left for the request.
    pub left: Duration,
}

impl Envelope {
    /// Writes the envelope.
    pub fn write(&self, headers: &mut HeaderMap) {
        let millis = u64::try_from(self.left.as_millis()).unwrap_or(u64::MAX);
        if let Ok(incarnation) = HeaderValue::try_from(self.incarnation.to_string()) {
            headers.insert(INCARNATION, incarnation);
        }
        headers.insert(PARTITION, self.partition.into());
        headers.insert(EPOCH, self.epoch.0.into());
        headers.insert(DEADLINE_MS, millis.into());
    }

    /// Reads the envelope. `None` if a part is missing or makes no sense.
    pub fn read(headers: &HeaderMap) -> Option<Envelope> {
        let text = |name| headers.get(name)?.to_str().ok();
        Some(Envelope {
            incarnation: Incarnation(u128::from_str_radix(text(INCARNATION)?, 16).ok()?),
            partition: text(PARTITION)?.parse().ok()?,
            epoch: OwnerEpoch(text(EPOCH)?.parse().ok()?),
            left: Duration::from_millis(text(DEADLINE_MS)?.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let envelope = Envelope {
            incarnation: Incarnation(0xabc << 100),
            partition: 7,
            epoch: OwnerEpoch(9),
            left: Duration::from_millis(1_500),
        };
        let mut headers = HeaderMap::new();
        envelope.write(&mut headers);
        assert_eq!(Envelope::read(&headers), Some(envelope));
        for name in [INCARNATION, PARTITION, EPOCH, DEADLINE_MS] {
            let mut other = headers.clone();
            other.insert(name.clone(), HeaderValue::from_static("x"));
            assert_eq!(Envelope::read(&other), None, "{name}");
            other.remove(&name);
            assert_eq!(Envelope::read(&other), None, "{name}");
        }
    }
}
