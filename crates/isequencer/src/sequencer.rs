//! The sequencer of a partition, as its owner uses it.
//!
//! Invariant: at most one transaction is open. If a transaction with kept commands ends without
//! `flush`, the sequencer reads the log again before the next one begins.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use tokio::task::JoinHandle;

use crate::{
    Monitor, SeqStorage, Sequences, Unflushed,
    cache::NumberCache,
    defect::{self, SequencerDefect},
    keeper::Keeper,
    meters::SequencerMeters,
    shared::SharedEngine,
    transaction::{Draw, Transaction},
};

/// The parameters of a sequencer.
#[derive(Clone, Debug)]
pub struct Params {
    /// The name of the partition in metrics and logs.
    pub partition: String,
    /// The sequences that are declared.
    pub sequences: Sequences,
    /// The limit of the numbers that wait to be stored. Up to 20 times as many events may wait for
    /// their offset to be stored.
    pub max_unflushed: NonZeroUsize,
    /// The limit of the numbers that are kept in memory.
    pub cached_numbers: usize,
    /// How long numbers wait, so that more numbers are stored with them. The wait ends early if
    /// there are many numbers. No caller waits for it.
    pub flush_delay: Duration,
    /// The pause before a failed call to the storage is made again.
    pub retry_after: Duration,
}

impl Params {
    /// Returns parameters with the defaults:
    ///
    /// - At most 500 numbers wait to be stored. If the storage works, they wait for at most 100 ms.
    ///   The log has them too, so storing them late costs only time at the next start.
    /// - At most 100,000 numbers are kept in memory.
    /// - A failed call is made again after half a second.
    pub fn new(partition: impl Into<String>, sequences: Sequences) -> Params {
        Params {
            partition: partition.into(),
            sequences,
            max_unflushed: NonZeroUsize::MIN.saturating_add(499),
            cached_numbers: 100_000,
            flush_delay: Duration::from_millis(100),
            retry_after: Duration::from_millis(500),
        }
    }
}

/// Why no transaction can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequencerBusy {
    /// The log is being read.
    #[error("the numbers are being read from the log")]
    Actualizing,
    /// Too many numbers wait to be stored, or too many events wait for their offset to be stored.
    #[error("too many numbers or events wait to be stored")]
    Unflushed,
    /// The sequencer has ended, and will not begin again.
    #[error("the sequencer has ended")]
    Closed,
}

/// Why a sequencer was closed before its work was done.
///
/// Nothing is lost: the next start finds the numbers in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// Numbers were not stored in time.
    #[error(
        "{} numbers and the offset of {} events were not stored in time; the next start finds them in the log",
        .0.numbers, .0.events
    )]
    NotFlushed(Unflushed),
    /// The task that reads the log was aborted, or panicked. One of its writes may still land.
    #[error("the log was still being read at the deadline")]
    CutOff,
}

/// The sequencer of a partition. It has one owner. The owner opens one transaction at a time.
#[derive(Debug)]
pub struct Sequencer {
    pub(crate) shared: Arc<SharedEngine>,
    pub(crate) storage: Arc<dyn SeqStorage>,
    pub(crate) sequences: Sequences,
    pub(crate) max_unflushed: usize,
    pub(crate) meters: Arc<SequencerMeters>,
    /// The numbers as the open transaction sees them.
    pub(crate) cache: NumberCache,
    /// The numbers that the open transaction drew.
    pub(crate) drawn: Vec<Draw>,
    /// Whether a transaction has begun and has not ended.
    pub(crate) has_open_transaction: bool,
    clock: Clock,
    keeper: Option<JoinHandle<()>>,
}

impl Sequencer {
    /// Makes a sequencer. Its keeper, a task of its own, begins at once to read the log.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with timers.
    pub fn new(params: Params, storage: Arc<dyn SeqStorage>, clock: Clock) -> Sequencer {
        let (mut sequencer, keeper) = Sequencer::with_keeper(params, storage, clock);
        #[expect(clippy::disallowed_methods, reason = "the sequencer owns the task and ends it")]
        let task = tokio::spawn(keeper.run());
        sequencer.keeper = Some(task);
        sequencer
    }

    /// Makes a sequencer and its keeper, which the caller must run.
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
        let shared = Arc::new(SharedEngine::new(max_unflushed));
        let meters = Arc::new(SequencerMeters::new(partition));
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
            cache: NumberCache::new(cached_numbers),
            drawn: Vec::new(),
            has_open_transaction: false,
            clock,
            keeper: None,
        };
        (sequencer, keeper)
    }

    /// Opens a transaction. A second transaction cannot be open at the same time.
    ///
    /// # Errors
    /// Fails if no transaction can begin now, with the reason. The call succeeds if the log was
    /// read, the numbers and the events that wait to be stored are below their limits, and the
    /// sequencer has not ended.
    pub fn start(&mut self) -> Result<Transaction<'_>, SequencerBusy> {
        self.end_forgotten();
        let (next, unflushed) = self.shared.engine().admit()?;
        Ok(Transaction::new(self, next, unflushed))
    }

    pub(crate) fn actualize(&mut self) {
        self.drawn.clear();
        if !defect::is_put_back(SequencerDefect::CacheNotCleared) {
            self.cache.clear();
        }
        self.shared.actualize();
    }

    /// Ends a transaction that the owner forgot (`mem::forget`). The outcome of its events is
    /// unknown, so the log is read again.
    fn end_forgotten(&mut self) {
        if std::mem::take(&mut self.has_open_transaction) {
            self.actualize();
        }
    }

    /// Waits until [`Sequencer::start`] can open a transaction.
    ///
    /// The wait has no limit. While the storage fails, [`Monitor::last_error`] returns its error.
    ///
    /// # Errors
    /// Fails if no transaction can ever begin again.
    ///
    /// # Cancel safety
    /// Safe to drop.
    pub async fn ready(&mut self) -> Result<(), SequencerBusy> {
        self.end_forgotten();
        self.shared.wait_until_admitted().await
    }

    /// Returns a monitor of this sequencer, for any thread.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Stores the unflushed numbers, and ends the sequencer.
    ///
    /// While the log is being read, no number waits to be stored. The sequencer then ends as soon
    /// as the next event is read.
    ///
    /// # Errors
    /// Fails if the sequencer has not ended at the deadline.
    ///
    /// # Cancel safety
    /// A dropped call stops storing numbers, and the keeper ends.
    pub async fn close(mut self, deadline: Instant) -> Result<(), CloseError> {
        self.shared.close();
        let mut is_cut_off = false;
        if let Some(keeper) = &mut self.keeper {
            match self.clock.timeout_at(deadline, &mut *keeper).await {
                Ok(ended) => is_cut_off = ended.is_err(),
                Err(_) => {
                    keeper.abort();
                    // A task that ended just before the abort was not aborted.
                    is_cut_off = keeper.await.is_err();
                }
            }
        }
        match self.shared.engine().unflushed() {
            Unflushed { numbers: 0, events: 0 } if is_cut_off => Err(CloseError::CutOff),
            Unflushed { numbers: 0, events: 0 } => Ok(()),
            unflushed => Err(CloseError::NotFlushed(unflushed)),
        }
    }
}

/// A dropped sequencer stores nothing more, and its keeper ends.
impl Drop for Sequencer {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}
