//! Sequences as a command processor likes them: one event at a time.

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
    BadSequences, Busy, Monitor, NoNumber, NotClosed, NotJoined, NumberKey, Offset, Params, SeqId,
    SeqStorage, Sequencer, Transaction, WsId, WsKind,
    engine::Phase,
    standard::{CRECORD_ID, RECORD_ID, WLOG_OFFSET},
    transaction::Joined,
};

/// Makes the sequencer of each partition of an application.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use clock::Clock;
/// # use isequencer::{EventSequencerFactory, MemStorage, Params, Sequences, WsId, WsKind, standard};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kind = WsKind(1);
/// let params = Params::new("shop", Sequences::new().with(kind, standard::sequences())?);
/// let storage = Arc::new(MemStorage::new());
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
    storage: StorageOf,
    clock: Clock,
}

/// The storage of the numbers of a partition.
pub type StorageOf = Arc<dyn Fn(u16) -> Arc<dyn SeqStorage> + Send + Sync>;

impl fmt::Debug for EventSequencerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSequencerFactory")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

impl EventSequencerFactory {
    /// For workspaces of one kind, which has the [standard](crate::standard) sequences and perhaps others. In logs and metrics a partition is
    /// called by the name in `params` and its number.
    ///
    /// # Errors
    /// If the kind lacks a standard sequence.
    pub fn new(
        params: Params,
        kind: WsKind,
        storage: StorageOf,
        clock: Clock,
    ) -> Result<EventSequencerFactory, BadSequences> {
        for seq in [WLOG_OFFSET, RECORD_ID, CRECORD_ID] {
            if !params.sequences.has(kind, seq) {
                return Err(BadSequences::NotStandard(kind, seq));
            }
        }
        Ok(EventSequencerFactory { params, kind, storage, clock })
    }

    /// The sequencer of a partition, which begins to read its log at once.
    ///
    /// # Panics
    /// Outside of a tokio runtime. It must be one with timers.
    pub fn partition(&self, partition: u16) -> EventSequencer {
        let name = format!("{}/{partition}", self.params.partition);
        let params = Params { partition: name, ..self.params.clone() };
        let storage = (self.storage)(partition);
        let sequencer = Sequencer::new(params, storage, self.clock.clone());
        let is_eventing = Arc::new(AtomicBool::new(false));
        EventSequencer { sequencer, kind: self.kind, clock: self.clock.clone(), is_eventing }
    }
}

/// What the sequences of a partition are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing yet.
    None,
    /// Reading the log.
    Recovering,
    /// Waiting for an event.
    Ready,
    /// Drawing numbers for one.
    Eventing,
    /// Nothing any more.
    Finished,
}

/// Tells the [`Status`], in any thread.
#[derive(Clone, Debug)]
pub struct StatusMonitor {
    monitor: Monitor,
    is_eventing: Arc<AtomicBool>,
}

impl StatusMonitor {
    /// Why they are not ready, what waits, and what the storage says.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// What the sequences are doing now.
    pub fn status(&self) -> Status {
        match self.monitor.phase() {
            Phase::New => Status::None,
            Phase::Actualizing => Status::Recovering,
            Phase::Ready if self.is_eventing.load(Ordering::Acquire) => Status::Eventing,
            Phase::Ready => Status::Ready,
            Phase::Closed => Status::Finished,
        }
    }
}

/// Why an event does not start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// Not in the time that was given.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// Its workspace cannot be known.
    #[error(transparent)]
    NotJoined(#[from] NotJoined),
    /// The workspace has no more offsets.
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
    /// An event of a workspace. While the sequences are recovered, or too many numbers wait to be stored, it is waited for that.
    ///
    /// # Errors
    /// If they are not ready in this time, or the workspace's numbers cannot be read.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn start_event(&mut self, wait: Duration, ws: WsId) -> Result<Event<'_>, NotStarted> {
        // An event that was forgotten is over.
        self.is_eventing.store(false, Ordering::Release);
        let deadline = self.clock.now() + wait;
        if self.clock.timeout_at(deadline, self.sequencer.ready()).await.is_err()
            && let Some(busy) = self.sequencer.monitor().busy()
        {
            return Err(busy.into());
        }
        let mut transaction = self.sequencer.start()?;
        let joined = transaction.joined(self.kind, ws).await?;
        let wlog_offset = transaction.draw(joined, WLOG_OFFSET)?;
        let plog_offset = transaction.keep();
        let eventing = Eventing::new(&self.is_eventing);
        Ok(Event { transaction, joined, plog_offset, wlog_offset, _eventing: eventing })
    }

    /// Tells what they are doing, in any thread.
    pub fn monitor(&self) -> StatusMonitor {
        let is_eventing = Arc::clone(&self.is_eventing);
        StatusMonitor { monitor: self.sequencer.monitor(), is_eventing }
    }

    /// Stores what waits, and ends.
    ///
    /// # Errors
    /// If that was not done at the deadline. Nothing is lost: what is not stored is in the log.
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

/// An event that draws its numbers. It ends by [`finish`](Event::finish) when it is in the log and applied. Otherwise, and if it is dropped, nobody
/// knows whether it will be found in the log, and the sequences are recovered from there.
#[must_use = "an event ends by `finish` or `cancel`"]
#[derive(Debug)]
pub struct Event<'s> {
    transaction: Transaction<'s>,
    joined: Joined,
    plog_offset: Offset,
    wlog_offset: u64,
    _eventing: Eventing,
}

impl Event<'_> {
    /// Its place in the log of the partition.
    pub fn plog_offset(&self) -> Offset {
        self.plog_offset
    }

    /// Its place in the log of the workspace.
    pub fn wlog_offset(&self) -> u64 {
        self.wlog_offset
    }

    /// An id for a record of a document of the workspace or of the operation.
    ///
    /// # Errors
    /// If there are no more.
    pub fn next_record_id(&mut self) -> Result<u64, NoNumber> {
        self.next(RECORD_ID)
    }

    /// An id for a record of a collection.
    ///
    /// # Errors
    /// If there are no more.
    pub fn next_crecord_id(&mut self) -> Result<u64, NoNumber> {
        self.next(CRECORD_ID)
    }

    /// The next number of a sequence of the application's own.
    ///
    /// # Errors
    /// If there is none.
    pub fn next(&mut self, seq: SeqId) -> Result<u64, NoNumber> {
        let number = self.transaction.draw(self.joined, seq)?;
        self.transaction.keep_draws();
        Ok(number)
    }

    /// The last number of each sequence that it drew from: what must be in the log, to be found there.
    pub fn drawn(&self) -> impl Iterator<Item = (NumberKey, u64)> {
        self.transaction.drawn(self.joined)
    }

    /// It is in the log, and applied.
    pub fn finish(self) {
        self.transaction.flush();
    }

    /// It could not be written to the log, or nobody knows. No write of it may be under way any more.
    pub fn cancel(self) {
        self.transaction.actualize();
    }
}
