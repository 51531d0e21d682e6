//! A sequencer for callers that write one event at a time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};

use crate::{
    BadSequences, NoNumber, NotClosed, NotJoined, NumberKey, Offset, Params, SeqId, SeqStorage,
    Sequencer, SequencerBusy, StatusMonitor, Transaction, WsId, WsKind,
    standard::{CRECORD_ID, RECORD_ID, WLOG_OFFSET},
    transaction::JoinState,
};

/// Makes the sequencer of each partition of an application.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use clock::Clock;
/// # use isequencer::{EventSequencerFactory, MemSeqStorage, Params, Sequences, WsId, WsKind, standard};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kind = WsKind(1);
/// let params = Params::new("shop", Sequences::new().with(kind, standard::sequences())?);
/// let storage = Arc::new(MemSeqStorage::new());
/// let factory = EventSequencerFactory::new(params, kind, Arc::new(move |_partition| storage.clone()), Clock::system())?;
///
/// let mut sequencer = factory.partition(1);
/// let mut event = sequencer.start_event(Duration::from_secs(1), WsId(7)).await?;
/// assert_eq!((event.plog_offset().get(), event.wlog_offset()), (1, 1));
/// assert_eq!(event.next_record_id()?, standard::FIRST_RECORD_ID);
/// event.finish(); // it is in the log, and applied
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EventSequencerFactory {
    params: Params,
    kind: WsKind,
    storage: SeqStorageFactory,
    clock: Clock,
}

/// A function that returns the storage of the numbers of a partition.
pub type SeqStorageFactory = Arc<dyn Fn(u16) -> Arc<dyn SeqStorage> + Send + Sync>;

impl fmt::Debug for EventSequencerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSequencerFactory")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

impl EventSequencerFactory {
    /// Makes a factory for workspaces of one kind. The kind has the [standard](crate::standard)
    /// sequences, and may have others.
    ///
    /// The name of a partition in logs and metrics is the name in `params`, a slash, and the number
    /// of the partition.
    ///
    /// # Errors
    /// Fails if the kind lacks a standard sequence.
    pub fn new(
        params: Params,
        kind: WsKind,
        storage: SeqStorageFactory,
        clock: Clock,
    ) -> Result<EventSequencerFactory, BadSequences> {
        for seq in [WLOG_OFFSET, RECORD_ID, CRECORD_ID] {
            if !params.sequences.has(kind, seq) {
                return Err(BadSequences::NotStandard(kind, seq));
            }
        }
        Ok(EventSequencerFactory { params, kind, storage, clock })
    }

    /// Makes the sequencer of a partition. It begins at once to read the log of the partition.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with timers.
    pub fn partition(&self, partition: u16) -> EventSequencer {
        let name = format!("{}/{partition}", self.params.partition);
        let params = Params { partition: name, ..self.params.clone() };
        let storage = (self.storage)(partition);
        let sequencer = Sequencer::new(params, storage, self.clock.clone());
        let is_eventing = Arc::new(AtomicBool::new(false));
        EventSequencer { sequencer, kind: self.kind, clock: self.clock.clone(), is_eventing }
    }
}

/// The reason for which an event cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The sequencer was not ready within the given time.
    #[error(transparent)]
    Busy(#[from] SequencerBusy),
    /// The numbers of the workspace could not be read.
    #[error(transparent)]
    NotJoined(#[from] NotJoined),
    /// The workspace has no offset left.
    #[error(transparent)]
    NoNumber(#[from] NoNumber),
}

/// The sequencer of a partition, for one event at a time.
#[derive(Debug)]
pub struct EventSequencer {
    sequencer: Sequencer,
    kind: WsKind,
    clock: Clock,
    is_eventing: Arc<AtomicBool>,
}

impl EventSequencer {
    /// Starts an event of a workspace.
    ///
    /// The call waits, for at most `wait`, while the log is read or while too many numbers wait to
    /// be stored.
    ///
    /// # Errors
    /// Fails if the sequencer is not ready within `wait`, if the numbers of the workspace cannot be
    /// read, or if the workspace has no offset left.
    ///
    /// # Cancel safety
    /// Safe to drop.
    pub async fn start_event(
        &mut self,
        wait: Duration,
        ws: WsId,
    ) -> Result<SequencedEvent<'_>, NotStarted> {
        // An event that was forgotten (`mem::forget`) is over.
        self.is_eventing.store(false, Ordering::Release);
        let deadline = self.clock.now() + wait;
        if self.clock.timeout_at(deadline, self.sequencer.ready()).await.is_err()
            && let Some(busy) = self.sequencer.monitor().busy()
        {
            return Err(busy.into());
        }
        let mut transaction = self.sequencer.start()?;
        let joined = transaction.join_workspace(self.kind, ws).await?;
        let wlog_offset = transaction.draw(joined, WLOG_OFFSET)?;
        let plog_offset = transaction.keep();
        let eventing = Eventing::new(&self.is_eventing);
        Ok(SequencedEvent { transaction, joined, plog_offset, wlog_offset, _eventing: eventing })
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
    pub async fn close(self, deadline: Instant) -> Result<(), NotClosed> {
        self.sequencer.close(deadline).await
    }
}

#[derive(Debug)]
struct Eventing(Arc<AtomicBool>);

impl Eventing {
    fn new(flag: &Arc<AtomicBool>) -> Eventing {
        flag.store(true, Ordering::Release);
        Eventing(Arc::clone(flag))
    }
}

impl Drop for Eventing {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// An event that draws its numbers.
///
/// End the event with [`finish`](SequencedEvent::finish) if it is in the log and applied. If the
/// event is cancelled or dropped, the outcome of its write is unknown, and the keeper reads the log
/// again.
#[must_use = "an event ends by `finish` or `cancel`"]
#[derive(Debug)]
pub struct SequencedEvent<'s> {
    transaction: Transaction<'s>,
    joined: JoinState,
    plog_offset: Offset,
    wlog_offset: u64,
    _eventing: Eventing,
}

impl SequencedEvent<'_> {
    /// Returns the offset of the event in the log of the partition.
    pub fn plog_offset(&self) -> Offset {
        self.plog_offset
    }

    /// Returns the offset of the event in the log of the workspace.
    pub fn wlog_offset(&self) -> u64 {
        self.wlog_offset
    }

    /// Draws an id for a record of a document of the workspace or of the operation.
    ///
    /// # Errors
    /// Fails if no id is left.
    pub fn next_record_id(&mut self) -> Result<u64, NoNumber> {
        self.next(RECORD_ID)
    }

    /// Draws an id for a record of a collection.
    ///
    /// # Errors
    /// Fails if no id is left.
    pub fn next_crecord_id(&mut self) -> Result<u64, NoNumber> {
        self.next(CRECORD_ID)
    }

    /// Draws the next number of a sequence of the application.
    ///
    /// # Errors
    /// Fails if the sequence is not declared, or if its ranges are used up.
    pub fn next(&mut self, seq: SeqId) -> Result<u64, NoNumber> {
        let number = self.transaction.draw(self.joined, seq)?;
        self.transaction.keep_draws();
        Ok(number)
    }

    /// Returns the last number of each sequence that the event drew from. The event in the log must
    /// contain these numbers, so that they can be found.
    pub fn drawn(&self) -> impl Iterator<Item = (NumberKey, u64)> {
        self.transaction.drawn(self.joined)
    }

    /// Ends the event: it is in the log, and applied.
    pub fn finish(self) {
        self.transaction.flush();
    }

    /// Ends the event: it was not written to the log, or the outcome of its write is unknown. No
    /// write of the event may be under way any more.
    pub fn cancel(self) {
        self.transaction.actualize();
    }
}
