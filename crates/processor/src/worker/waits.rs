//! The waits of a partition before a group: until numbers are stored, until rows can be read, and
//! until an outdated record is whole.

use base::with_causes;
use isequencer::SequencerBusy;

use super::{
    Worker,
    runner::{CHECK_INTERVAL, StopReason},
};
use crate::{FullQueue, Status, outdated::OutdatedRecord};

impl Worker {
    /// Waits while too many numbers are not stored. Returns whether a group can begin; if not, the
    /// partition is not ready.
    ///
    /// Commands stay in the queue for `queue_wait`. Then all of them are refused. If the storage
    /// fails to store the numbers, they are refused at once. Otherwise no command could be done in
    /// time, and no sender would learn why.
    pub(super) async fn wait_for_flush(&mut self) -> Result<bool, StopReason> {
        let start = self.groups.partition.clock.now();
        let mut is_refusing = false;
        loop {
            let monitor = self.sequencer.monitor();
            match monitor.busy() {
                Some(SequencerBusy::Unflushed) => {}
                None => {
                    if is_refusing {
                        self.groups.set(Status::Ready);
                    }
                    return Ok(true);
                }
                Some(_) => return Ok(false),
            }
            self.groups.check_leadership()?;
            let error = monitor.last_error();
            let waited = self.groups.partition.clock.now() - start;
            if let Some(error) = error {
                let why = format!("numbers cannot be stored: {}", with_causes(&*error));
                self.groups.set(Status::Stalled(why));
                is_refusing = true;
            } else if waited >= self.groups.limits.queue_wait {
                self.groups.set(Status::Full(FullQueue::Numbers));
                is_refusing = true;
            }
            // The commands that wait are refused as soon as this wait has lasted for `queue_wait`.
            let left = self.groups.limits.queue_wait.saturating_sub(waited);
            let check = if is_refusing { CHECK_INTERVAL } else { left.min(CHECK_INTERVAL) };
            tokio::select! {
                _ = self.sequencer.ready() => {}
                _ = self.stop.changed() => return Err(StopReason::Requested),
                () = self.groups.partition.clock.sleep(check) => {}
            }
        }
    }

    /// Waits while the storage can read nothing. Returns whether a group can begin; if not, the
    /// partition is not ready.
    ///
    /// Commands are refused meanwhile. Otherwise each command would be refused because of its own
    /// reads, and the status would not show that the partition can do nothing.
    pub(super) async fn until_readable(&mut self) -> Result<bool, StopReason> {
        let mut is_stalled = false;
        loop {
            let error = tokio::select! {
                error = self.groups.partition.read_error() => error,
                _ = self.stop.changed() => return Err(StopReason::Requested),
            };
            self.groups.check_leadership()?;
            let Some(why) = error else {
                if is_stalled {
                    self.groups.set(Status::Ready);
                }
                return Ok(true);
            };
            self.groups.set(Status::Stalled(why));
            is_stalled = true;
            if !self.until_next_check().await? {
                return Ok(false);
            }
        }
    }

    /// Waits before the storage is asked again. Returns whether the sequencer still works; if not,
    /// the partition is not ready.
    async fn until_next_check(&mut self) -> Result<bool, StopReason> {
        tokio::select! {
            _ = self.stop.changed() => return Err(StopReason::Requested),
            () = self.groups.partition.clock.sleep(CHECK_INTERVAL) => {}
        }
        Ok(matches!(self.sequencer.monitor().busy(), None | Some(SequencerBusy::Unflushed)))
    }

    /// Waits while the storage shows an older version of a record than it has acknowledged. Returns
    /// whether a group can begin; if not, the partition is not ready.
    ///
    /// Invariant: no command runs while such a record is known, and only a read by this task ends
    /// the wait. A simpler version refuses only the commands that need the record. A quorum has
    /// lost version 2 of the record; a command is refused; a client reads version 1, and the
    /// report is over; the next leader, which knows nothing of version 2, changes version 1. So
    /// version 2, which a third server still has, is replaced, and no operator heard of it.
    ///
    /// The log is not replayed: all of it is applied. A replay would write the record again if its
    /// event comes after the stored offset, and hide that the storage has lost writes.
    pub(super) async fn until_restored(&mut self) -> Result<bool, StopReason> {
        let mut is_stopped = false;
        while let Some(outdated) = self.groups.shared.outdated.get() {
            let OutdatedRecord { row, acknowledged } = outdated;
            let is_outdated = tokio::select! {
                found = self.groups.partition.log.reader().is_outdated(row, acknowledged) => found,
                _ = self.stop.changed() => return Err(StopReason::Requested),
            };
            self.groups.check_leadership()?;
            // If the check fails, the record stays, and the next round checks again.
            if matches!(is_outdated, Ok(false)) {
                self.groups.shared.outdated.clear();
                continue;
            }
            let error = outdated.error();
            self.groups.shared.set_obstacle(error.obstacle());
            self.groups.set(Status::Violation(with_causes(&error)));
            is_stopped = true;
            if !self.until_next_check().await? {
                return Ok(false);
            }
        }
        if is_stopped {
            self.groups.shared.set_obstacle(None);
            self.groups.set(Status::Ready);
        }
        Ok(true)
    }
}
