//! The waits of a partition before a group: until numbers are stored, and until rows can be read.

use causes::with_causes;
use isequencer::SequencerBusy;

use super::{CHECK_INTERVAL, StopReason, Worker};
use crate::{FullQueue, Status};

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
            tokio::select! {
                _ = self.stop.changed() => return Err(StopReason::Requested),
                () = self.groups.partition.clock.sleep(CHECK_INTERVAL) => {}
            }
            match self.sequencer.monitor().busy() {
                None | Some(SequencerBusy::Unflushed) => {}
                Some(_) => return Ok(false),
            }
        }
    }
}
