//! The time that a replay measures the age of events against.
//!
//! The answer to a command with a key is kept for a time after its event. A replay does not store
//! an answer that is older.

use clock::WallTime;

use super::Replay;
use crate::{AppRow, Epoch, Offset, PreparedEvent, Result, calls::Calls, writer::Tail};

impl Replay<'_> {
    /// Returns the time that the ages of the events of a batch are measured against: the time of
    /// the last event of the log, or the time of the clock, if that one is earlier. The result may
    /// be earlier still.
    ///
    /// Invariant: an answer is left out only if the clock and the log say that it is old. A simpler
    /// version asks the clock alone. Leader A writes event 7, of a command with a key, and crashes
    /// before it stores the answer; the clock of leader B is a day ahead, so B does not store the
    /// answer either. So the command is done again when it is sent again.
    ///
    /// The times of the log may be wrong, too, but not for the answers that are missing. A leader
    /// whose clock is ahead writes its first event after its replay, and this replay has stored the
    /// answers of all earlier events.
    pub(super) async fn age_at(&mut self, group: &[PreparedEvent]) -> Result<WallTime> {
        let now = self.log.calls.clock.wall();
        if group.iter().all(|event| event.answer.is_none()) {
            return Ok(now);
        }
        let tail = self.entries.tail();
        if self.is_over || self.failed.is_some() {
            return Ok(tail.time.min(now));
        }
        let late = match self.latest_time {
            Some(late) => late,
            None => *self.latest_time.insert(latest_time(&self.log.calls, tail).await?),
        };
        Ok(late.max(tail.time).min(now))
    }
}

/// Searches the end of the log, after the events that were read, with few reads. Returns the latest
/// time that it sees: that of the last event, or an earlier one.
async fn latest_time(calls: &Calls, read: Tail) -> Result<WallTime> {
    let (mut seen, mut time) = (read.next.0 - 1, read.time);
    let (mut step, mut has_missed) = (1, false);
    while step > 0 {
        match time_at(calls, Offset(seen + step), read.epoch).await? {
            Some(at) => (seen, time) = (seen + step, at.max(time)),
            None => has_missed = true,
        }
        step = if has_missed { step / 2 } else { step * 2 };
    }
    Ok(time)
}

/// Returns the time of the entry at an offset, or zero if the entry does not tell it; `None` if
/// there is no entry. `epoch` is the epoch of an earlier event.
async fn time_at(calls: &Calls, plog: Offset, epoch: Epoch) -> Result<Option<WallTime>> {
    let row = AppRow::Plog(calls.partition, plog);
    let Some(bytes) = calls.reader.row(row).await? else { return Ok(None) };
    Ok(match calls.reader.entry(row, &bytes) {
        // A leader that had lost its leadership left this event behind.
        Ok(entry) if entry.epoch() < epoch => None,
        entry => {
            let time = entry.ok().and_then(|entry| entry.time());
            Some(time.unwrap_or(WallTime::from_nanos(0)))
        }
    })
}
