//! The numbers of a partition, in the hands of whoever gives them out.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use tokio::task::JoinHandle;

use crate::{
    Offset, SeqId, SeqStorage, Sequences, StorageError, Unflushed, WsId,
    cache::Cache,
    defect::{self, Defect},
    engine::Phase,
    keeper::Keeper,
    meters::Meters,
    shared::Shared,
    transaction::{Draw, Transaction},
};

/// What a sequencer is given.
#[derive(Clone, Debug)]
pub struct Params {
    /// Its name in metrics and logs.
    pub partition: String,
    /// Which sequences there are.
    pub sequences: Sequences,
    /// How many numbers may wait to be stored, and a twentieth of how many events may wait for their offset to be.
    pub max_unflushed: NonZeroUsize,
    /// How many numbers are kept in memory.
    pub cached_numbers: usize,
    /// How long numbers wait for others to be stored with them, unless they are many. Nobody waits for that.
    pub flush_delay: Duration,
    /// When a call to the storage that failed is made again.
    pub retry_after: Duration,
}

impl Params {
    /// 500 numbers may wait, for 5 ms at most if the storage works, 100,000 are kept, and what failed is tried again after half a second.
    pub fn new(partition: impl Into<String>, sequences: Sequences) -> Params {
        Params {
            partition: partition.into(),
            sequences,
            max_unflushed: NonZeroUsize::MIN.saturating_add(499),
            cached_numbers: 100_000,
            flush_delay: Duration::from_millis(5),
            retry_after: Duration::from_millis(500),
        }
    }
}

/// Why no transaction can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// The log is being read.
    #[error("the numbers are being read from the log")]
    Actualizing,
    /// Too many numbers wait to be stored, or too many events for their offset to be.
    #[error("too many numbers or events wait to be stored")]
    Unflushed,
    /// It has ended, and will not begin again.
    #[error("the sequencer has ended")]
    Closed,
}

/// Why a sequencer did not end in order. Nothing is lost: the next start finds the numbers in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotClosed {
    /// Numbers were not stored in time.
    #[error(
        "{} numbers and the offset of {} events were not stored in time; the next start finds them in the log",
        .0.numbers, .0.events
    )]
    NotFlushed(Unflushed),
    /// The task that reads the log was cut off, and may have left a write that still lands.
    #[error("the log was being read, and that did not end in time")]
    CutOff,
}

/// The numbers of a partition. It has one owner, who opens one transaction at a time.
#[derive(Debug)]
pub struct Sequencer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) storage: Arc<dyn SeqStorage>,
    pub(crate) sequences: Sequences,
    pub(crate) max_unflushed: usize,
    pub(crate) meters: Arc<Meters>,
    /// The numbers as the open transaction sees them.
    pub(crate) cache: Cache,
    /// What the open transaction drew.
    pub(crate) drawn: Vec<Draw>,
    /// A transaction has begun and not ended.
    pub(crate) is_open: bool,
    clock: Clock,
    keeper: Option<JoinHandle<()>>,
}

impl Sequencer {
    /// Begins to read the log at once, in a task of its own.
    ///
    /// # Panics
    /// Outside of a tokio runtime. It must be one with timers.
    pub fn new(params: Params, storage: Arc<dyn SeqStorage>, clock: Clock) -> Sequencer {
        let (mut sequencer, keeper) = Sequencer::with_keeper(params, storage, clock);
        #[expect(clippy::disallowed_methods, reason = "the sequencer owns the task and ends it")]
        let task = tokio::spawn(keeper.run());
        sequencer.keeper = Some(task);
        sequencer
    }

    /// One whose keeper is run by the caller.
    pub(crate) fn with_keeper(
        params: Params,
        storage: Arc<dyn SeqStorage>,
        clock: Clock,
    ) -> (Sequencer, Keeper) {
        let Params {
            partition,
            sequences,
            max_unflushed,
            cached_numbers,
            flush_delay,
            retry_after,
        } = params;
        let max_unflushed = max_unflushed.get();
        let shared = Arc::new(Shared::new(max_unflushed));
        let meters = Arc::new(Meters::new(partition));
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            storage: Arc::clone(&storage),
            clock: clock.clone(),
            meters: Arc::clone(&meters),
            max_unflushed,
            flush_delay,
            retry_after,
        };
        let sequencer = Sequencer {
            shared,
            storage,
            sequences,
            max_unflushed,
            meters,
            cache: Cache::new(cached_numbers),
            drawn: Vec::new(),
            is_open: false,
            clock,
            keeper: None,
        };
        (sequencer, keeper)
    }

    /// Opens the one transaction.
    ///
    /// # Errors
    /// Why not now. When nothing waits to be stored, and the log is read, it is never refused.
    pub fn start(&mut self) -> Result<Transaction<'_>, Busy> {
        self.end_forgotten();
        let (next, unflushed) = self.shared.engine().admit()?;
        Ok(Transaction::new(self, next, unflushed))
    }

    pub(crate) fn actualize(&mut self) {
        self.drawn.clear();
        if !defect::has(Defect::CacheKept) {
            self.cache.clear();
        }
        self.shared.actualize();
    }

    /// A transaction that was forgotten: nobody knows what became of its events.
    fn end_forgotten(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.actualize();
        }
    }

    /// Waits until [`Sequencer::start`] opens a transaction, for as long as it takes: [`Monitor::trouble`] says what keeps it.
    ///
    /// # Errors
    /// If it never will again.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ready(&mut self) -> Result<(), Busy> {
        self.end_forgotten();
        self.shared.until_admitted().await
    }

    /// What it is doing, for any thread.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Stores what waits, and ends. If the log is being read, nothing waits, and the sequencer ends when the next event is read.
    ///
    /// # Errors
    /// If that was not done at the deadline.
    ///
    /// # Cancel safety
    /// A dropped call stores no more; its task ends.
    pub async fn close(mut self, deadline: Instant) -> Result<(), NotClosed> {
        self.shared.close();
        let mut is_cut_off = false;
        if let Some(keeper) = &mut self.keeper {
            match self.clock.timeout_at(deadline, &mut *keeper).await {
                Ok(ended) => is_cut_off = ended.is_err(),
                Err(_) => {
                    keeper.abort();
                    // A task that ended at the last moment was not aborted.
                    is_cut_off = keeper.await.is_err();
                }
            }
        }
        match self.shared.engine().unflushed() {
            Unflushed { numbers: 0, events: 0 } if is_cut_off => Err(NotClosed::CutOff),
            Unflushed { numbers: 0, events: 0 } => Ok(()),
            unflushed => Err(NotClosed::NotFlushed(unflushed)),
        }
    }
}

/// A sequencer that is dropped stores no more, and its task ends.
impl Drop for Sequencer {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

/// Tells what a sequencer is doing.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// Whether numbers can be drawn now: `None` if so.
    pub fn busy(&self) -> Option<Busy> {
        self.0.engine().admit().err()
    }

    /// What waits to be stored.
    pub fn unflushed(&self) -> Unflushed {
        self.0.engine().unflushed()
    }

    /// The last number that a finished transaction drew from a sequence of a workspace, if it waits to be stored. A number that is asked
    /// for here, and then in the storage, is found in one of the two.
    pub fn waiting(&self, ws: WsId, seq: SeqId) -> Option<u64> {
        let numbers = self.0.engine().waiting(ws, &[seq]);
        numbers.first().copied().filter(|number| *number > 0)
    }

    /// The offset of the next event, when the log is read.
    pub fn next_offset(&self) -> Option<Offset> {
        self.0.engine().next_offset()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.0.engine().phase()
    }

    /// What the storage said, if it does not do what it is asked to.
    pub fn trouble(&self) -> Option<Arc<StorageError>> {
        self.0.engine().trouble()
    }
}
