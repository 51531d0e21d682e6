//! A sequencer for callers that write one event at a time.
//!
//! The module is for programs that embed this crate. A node of VVM writes events in groups, and
//! uses [`Sequencer`] itself.

mod factory;
mod sequenced_event;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};

pub use self::{
    factory::{EventSequencerFactory, SeqStorageFactory},
    sequenced_event::SequencedEvent,
};
use crate::{
    CloseError, DrawError, JoinError, Sequencer, SequencerBusy, StatusMonitor, WsId, WsKind,
};

/// Why an event cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sequencer was not ready within the given time.
    #[error(transparent)]
    Busy(#[from] SequencerBusy),
    /// The kind of the workspace is not declared, or the numbers of the workspace could not be
    /// read.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The workspace has no offset left.
    #[error(transparent)]
    Draw(#[from] DrawError),
}

/// The sequencer of a partition, for one event at a time.
#[derive(Debug)]
pub struct EventSequencer {
    sequencer: Sequencer,
    clock: Clock,
    is_eventing: Arc<AtomicBool>,
}

impl EventSequencer {
    /// Starts an event of a workspace of a kind.
    ///
    /// The call waits, for at most `wait`, while the log is read or while too many numbers wait to
    /// be stored.
    ///
    /// # Errors
    /// Fails if the sequencer is not ready within `wait`, if the kind is not declared, if the
    /// numbers of the workspace cannot be read, or if the workspace has no offset left.
    ///
    /// # Cancel safety
    /// Safe to drop.
    pub async fn start_event(
        &mut self,
        wait: Duration,
        kind: WsKind,
        ws: WsId,
    ) -> Result<SequencedEvent<'_>, StartError> {
        // An event that was forgotten (`mem::forget`) is over.
        self.is_eventing.store(false, Ordering::Release);
        let deadline = self.clock.now() + wait;
        if self.clock.timeout_at(deadline, self.sequencer.ready()).await.is_err()
            && let Some(busy) = self.sequencer.monitor().busy()
        {
            return Err(busy.into());
        }
        let mut transaction = self.sequencer.start()?;
        let joined = transaction.join_workspace(kind, ws).await?;
        Ok(SequencedEvent::new(transaction, joined, &self.is_eventing)?)
    }

    /// Returns a monitor of the status, for any thread.
    pub fn monitor(&self) -> StatusMonitor {
        let is_eventing = Arc::clone(&self.is_eventing);
        StatusMonitor { monitor: self.sequencer.monitor(), is_eventing }
    }

    /// Stores the unflushed numbers, and ends the sequencer.
    ///
    /// # Errors
    /// Fails if the sequencer has not ended at the deadline. Nothing is lost: numbers that are not
    /// stored are in the log.
    pub async fn close(self, deadline: Instant) -> Result<(), CloseError> {
        self.sequencer.close(deadline).await
    }
}
