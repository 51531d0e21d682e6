//! The status of a sequencer for one event at a time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{Monitor, engine::Phase};

/// The state of the sequencer of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStatus {
    /// The sequencer has not begun.
    None,
    /// The sequencer reads the log.
    Recovering,
    /// The sequencer waits for an event.
    Ready,
    /// An event draws numbers.
    Eventing,
    /// The sequencer has ended.
    Finished,
}

/// A view of the [`SequenceStatus`] of a sequencer, for any thread.
#[derive(Clone, Debug)]
pub struct StatusMonitor {
    pub(crate) monitor: Monitor,
    pub(crate) is_eventing: Arc<AtomicBool>,
}

impl StatusMonitor {
    /// Returns the monitor of the sequencer: why it is busy, its unflushed numbers, and the error
    /// of the storage.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Returns the current status.
    pub fn status(&self) -> SequenceStatus {
        match self.monitor.phase() {
            Phase::New => SequenceStatus::None,
            Phase::Actualizing => SequenceStatus::Recovering,
            Phase::Ready if self.is_eventing.load(Ordering::Acquire) => SequenceStatus::Eventing,
            Phase::Ready => SequenceStatus::Ready,
            Phase::Closed => SequenceStatus::Finished,
        }
    }
}
