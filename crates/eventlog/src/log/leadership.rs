//! The leadership under which a log is written, and its end.

use std::time::Duration;

use clock::WallTime;

use super::MIN_PAUSE;
use crate::{Epoch, Error, FencingEntry, LeadershipLost, Log, Offset, PreparedEvent, TrustLevel};

impl Log {
    /// Returns the epoch of the leadership.
    pub fn epoch(&self) -> Epoch {
        self.fence.epoch()
    }

    /// Returns whether the success of a write may be reported.
    pub fn may_answer(&self) -> bool {
        self.later_leader.get().is_none() && self.fence.may_send(Duration::ZERO)
    }

    /// Returns whether a statement about the log stays true after this node has lost the
    /// leadership. At level 2 another leader may replace events of this one.
    pub fn events_are_final(&self) -> bool {
        self.settings.level != TrustLevel::Two
    }

    /// Returns whether the end of the log is *fenced*: no write of a former leader can put an event
    /// there any more. `last` is the epoch of the last entry of the log.
    ///
    /// The end is fenced if the last entry is of this leadership. A former leader writes its event
    /// at the end of the log that it knew, which is not behind this entry. An insert is refused
    /// there, however late it lands, and an inserted entry hides a put of level 2. Where no write
    /// lands late, every end is fenced.
    ///
    /// The trust level does not matter. At level 2 the lease waits for late writes, but a server
    /// that stood still may let one land even later.
    pub fn is_fenced(&self, last: Epoch) -> bool {
        self.storage().capabilities().late_write.is_zero() || last == self.epoch()
    }

    /// Returns a fencing entry of this leadership, ready to be [written](Log::write) at the end of
    /// the log. `time` is not lower than that of the last entry.
    pub fn fencing_entry(&self, plog: Offset, time: WallTime) -> PreparedEvent {
        let (epoch, partition) = (self.epoch(), self.partition);
        PreparedEvent::fencing(&FencingEntry { epoch, partition, plog, time })
    }

    /// Waits until the fence permits a write that is given up after the
    /// [timeout](crate::LogSettings::timeout) of a call. Every write under the leadership waits
    /// here first, also a write of another crate.
    ///
    /// # Errors
    /// Fails if no write may ever be sent again.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn wait_to_send(&self) -> Result<(), LeadershipLost> {
        while !self.may_send() {
            match self.lost() {
                Some(lost) => return Err(lost),
                // The lease is renewed soon, or the leadership ends.
                None => self.clock.sleep(MIN_PAUSE).await,
            }
        }
        Ok(())
    }

    fn may_send(&self) -> bool {
        self.later_leader.get().is_none() && self.fence.may_send(self.settings.timeout)
    }

    /// Returns the reason for which no write will ever be sent here again; `None` while a write may
    /// still be sent.
    pub fn lost(&self) -> Option<LeadershipLost> {
        self.later_leader.get().map(|by| seen_later(*by)).or_else(|| self.fence.lost())
    }

    /// Records that an event of a later leader was seen. This node does not lead, even if its lease
    /// says that it does.
    pub(crate) fn note_later_leader(&self, by: Epoch) -> Error {
        seen_later(*self.later_leader.get_or_init(|| by)).into()
    }

    /// Returns the epoch of the later leader whose event was seen in the log.
    pub fn later_leader(&self) -> Option<Epoch> {
        self.later_leader.get().copied()
    }
}

fn seen_later(by: Epoch) -> LeadershipLost {
    LeadershipLost(format!("the log has an event of the later epoch {}", by.0))
}
