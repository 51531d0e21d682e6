//! The settings of a log.

use std::{num::NonZeroU16, time::Duration};

use crate::{Epoch, TrustLevel};

/// The first pause before a call is made again. Each later pause is twice as long.
pub(crate) const MIN_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause before a call is made again.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// The number of partitions of the application. A workspace is in the partition of its number
    /// modulo this number.
    pub partitions: NonZeroU16,
    /// How events and records are written. The level may change between two leaderships, while no
    /// node works. A change from or to level 2 also waits until all late writes have landed.
    pub level: TrustLevel,
    /// Before the last change from level 2 all epochs were below this one; 0 if the level never was
    /// changed from 2. A row of such an epoch may be a *stray*: a former leader wrote it, and its
    /// event is not in the log. At level 2 every epoch counts, whatever this bound is.
    pub stray_before: Epoch,
    /// The limit of each call to the storage. The lease reserves time for such a call.
    pub timeout: Duration,
    /// The time for tries to apply the events in the log. Afterwards the caller gets the error.
    pub apply_for: Duration,
    /// How long an answer is kept after its event. A command that is sent again in this time gets
    /// the first answer.
    pub answers_kept: Duration,
}

impl LogSettings {
    /// The default settings: level 0, no strays, 2 s for a call, 5 s to apply, 24 h for answers.
    pub fn new(partitions: NonZeroU16) -> LogSettings {
        LogSettings {
            partitions,
            level: TrustLevel::Zero,
            stray_before: Epoch(0),
            timeout: Duration::from_secs(2),
            apply_for: Duration::from_secs(5),
            answers_kept: Duration::from_secs(24 * 60 * 60),
        }
    }
}
