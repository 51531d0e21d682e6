//! The settings of a log.

use std::{num::NonZeroU16, time::Duration};

use crate::TrustLevel;

/// The settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// The number of partitions of the application. A workspace is in the partition of its number
    /// modulo this number.
    pub partitions: NonZeroU16,
    /// The way in which events and records are written.
    pub level: TrustLevel,
    /// The limit of each call to the storage. The lease reserves time for such a call.
    pub timeout: Duration,
    /// The time for tries to apply the events in the log. Afterwards the caller gets the error.
    pub apply_for: Duration,
    /// The time after an event for which its answer is kept. A command that is sent again in this
    /// time gets the first answer.
    pub answers_kept: Duration,
}

impl LogSettings {
    /// The default settings: level 0, 2 s for a call, 5 s to apply, 24 h for answers.
    pub fn new(partitions: NonZeroU16) -> LogSettings {
        LogSettings {
            partitions,
            level: TrustLevel::Zero,
            timeout: Duration::from_secs(2),
            apply_for: Duration::from_secs(5),
            answers_kept: Duration::from_secs(24 * 60 * 60),
        }
    }
}
