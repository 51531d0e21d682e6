//! The pause of balancing, to the byte.

use bytes::Bytes;
use clock::WallTime;
use serde::{Deserialize, Serialize};

/// Whether operators have paused the balancing of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancingPause {
    /// Whether balancing is paused.
    pub paused: bool,
    /// The time of the change, by the clock of the node that made it, in milliseconds.
    pub at: WallTime,
    /// The author of the change, for people.
    pub by: String,
}

/// The row as it is stored: JSON. Fields that this program does not know are skipped.
#[derive(Serialize, Deserialize)]
struct StoredPause {
    paused: bool,
    at: u64,
    by: String,
}

impl BalancingPause {
    /// The row that replaces the present one.
    ///
    /// The time of a row is always later than that of its predecessor, so the row never returns to
    /// an earlier value. Otherwise a late attempt could find its condition true again.
    pub(super) fn after(
        there: Option<&Bytes>,
        paused: bool,
        now: WallTime,
        by: &str,
    ) -> BalancingPause {
        let last = there.and_then(|bytes| BalancingPause::from_bytes(bytes));
        let later = last.map_or(0, |last| last.at.as_millis().saturating_add(1));
        let at = WallTime::from_millis(now.as_millis().max(later));
        BalancingPause { paused, at, by: by.to_owned() }
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        let (at, by) = (self.at.as_millis(), self.by.clone());
        let stored = StoredPause { paused: self.paused, at, by };
        serde_json::to_vec(&stored).expect("a pause is JSON").into()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<BalancingPause> {
        let StoredPause { paused, at, by } = serde_json::from_slice(bytes).ok()?;
        Some(BalancingPause { paused, at: WallTime::from_millis(at), by })
    }
}
