//! The waits of a partition before a group: until numbers are stored, and until rows can be read.

use causes::with_causes;
use isequencer::SequencerBusy;

use super::{CHECK_INTERVAL, LONG_WRITE, StopReason, Worker};
use crate::Status;

impl Worker {
    /// Waits while too many numbers are not stored. Returns whether a group can begin; if not, the
    /// partition is not ready.
    ///
    /// Commands wait meanwhile. If the storage does not take the numbers, commands are refused with
    /// the reason. Otherwise no command could be done in time, and no sender would learn why.
    pub(super) async fn wait_for_flush(&mut self) -> Result<bool, StopReason> {
        let start = self.groups.partition.clock.now();
        let mut is_stalled = false;
        loop {
            let monitor = self.sequencer.monitor();
            match monitor.busy() {
                Some(SequencerBusy::Unflushed) => {}
                None => {
                    if is_stalled {
                        self.groups.set(Status::Ready);
                    }
                    return Ok(true);
                }
                Some(_) => return Ok(false),
            }
            self.groups.check_leadership()?;
            let error = monitor.last_error();
            if error.is_some() || self.groups.partition.clock.now() - start >= LONG_WRITE {
                let why = error
                    .map_or_else(|| "the storage is slow".to_owned(), |why| with_causes(&*why));
                self.groups.set(Status::Stalled(format!("numbers cannot be stored: {why}")));
                is_stalled = true;
            }
            tokio::select! {
                _ = self.sequencer.ready() => {}
                _ = self.stop.changed() => return Err(StopReason::Requested),
                () = self.groups.partition.clock.sleep(CHECK_INTERVAL) => {}
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
