//! The keeper: the only task of a sequencer that writes.
//!
//! At the start the keeper reads the log. Afterwards it stores numbers. Invariant: at most one
//! write is under way.

use std::{mem, sync::Arc, time::Duration};

use base::with_causes;
use clock::Clock;
use futures::StreamExt;
use hashbrown::HashMap;
use tokio::task::consume_budget;
use tracing::{info, warn};

use crate::{
    LoggedEvent, NumberKey, Offset, SeqStorage, StorageError, Unflushed,
    defect::{self, SequencerDefect},
    engine::{KeeperTask, KeyedNumber, max_events},
    meters::SequencerMeters,
    shared::SharedEngine,
};

/// The names of the keeper's tasks in log lines.
const STORE: &str = "store numbers";
const READ: &str = "read the log";

pub(crate) struct Keeper {
    pub(crate) shared: Arc<SharedEngine>,
    pub(crate) storage: Arc<dyn SeqStorage>,
    pub(crate) clock: Clock,
    pub(crate) meters: Arc<SequencerMeters>,
    pub(crate) max_unflushed: usize,
    pub(crate) flush_delay: Duration,
    pub(crate) retry_after: Duration,
}

/// Notifies waiting callers, however the keeper ends, even by a panic or an abort.
impl Drop for Keeper {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared
                .engine()
                .record_failure(Arc::new(StorageError("the storage panicked".into())));
        }
        self.shared.record_closed();
        self.meters.set_unflushed(Unflushed::default());
    }
}

impl Keeper {
    pub(crate) async fn run(self) {
        let mut numbers = Vec::new();
        let mut have_waited = false;
        loop {
            let task = self.shared.engine().next_task(have_waited, &mut numbers);
            have_waited = false;
            match task {
                KeeperTask::Wait => self.shared.wait_for_work().await,
                KeeperTask::Gather => have_waited = self.gather().await,
                KeeperTask::Flush(next) => self.flush(&numbers, next).await,
                KeeperTask::Actualize => self.actualize().await,
                KeeperTask::End => return,
            }
        }
    }

    /// Waits for more numbers. Returns whether the flush delay passed without a notification.
    async fn gather(&self) -> bool {
        let deadline = self.clock.now() + self.flush_delay;
        self.clock.timeout_at(deadline, self.shared.wait_for_work()).await.is_err()
    }

    /// Stores numbers and their offset. Repeats the write until it succeeds.
    ///
    /// Every try has the same numbers and the same offset. So a try that lands after the answered
    /// one changes nothing: the storage never replaces a value by a lower one.
    ///
    /// A simpler version takes the current offset for each try. The first try fails; a transaction
    /// raises the offset; the second try stores the higher offset without the numbers of that
    /// transaction; the node crashes; the next start reads the log from after the transaction's
    /// events. So their numbers would be given twice.
    async fn flush(&self, numbers: &[KeyedNumber], next: Offset) {
        let start = self.clock.now();
        self.meters.set_unflushed(self.shared.engine().unflushed());
        while let Err(error) = self.storage.write(numbers, self.offset_to_store(next)).await {
            self.handle_failure(STORE, error).await;
        }
        self.log_recovery(STORE);
        self.meters.record_flush(numbers.len(), self.clock.now() - start);
        self.shared.record_flushed(next);
        self.meters.set_unflushed(self.shared.engine().unflushed());
    }

    /// Returns the offset that was taken together with the numbers.
    fn offset_to_store(&self, taken: Offset) -> Offset {
        let later = defect::is_put_back(SequencerDefect::RetryWithLaterOffset)
            .then(|| self.shared.engine().next_offset());
        later.flatten().unwrap_or(taken)
    }

    /// Reads the log. Repeats the attempt until it succeeds, or until the sequencer is to be
    /// closed. No number is unflushed meanwhile.
    ///
    /// Reading an event also writes the rows that follow from the event. So reading ends only
    /// between two events, when no write is under way.
    async fn actualize(&self) {
        let start = self.clock.now();
        while !self.shared.engine().is_closing() {
            match self.read_log().await {
                Ok(Some(next)) => {
                    self.log_recovery(READ);
                    self.meters.record_actualization(self.clock.now() - start);
                    self.shared.record_actualized(next);
                    return self.meters.set_unflushed(Unflushed::default());
                }
                Ok(None) => return,
                Err(error) => tokio::select! {
                    biased;
                    () = self.handle_failure(READ, error) => {}
                    () = self.shared.wait_for_closing() => {}
                },
            }
        }
    }

    /// Reads the log from the stored offset. Stores the highest numbers and the offset each time
    /// `max_unflushed` sequences or [`max_events`] events were read. So memory is bounded, and a
    /// failed attempt resumes there. Stores the offset at the end even without events, so a late
    /// write of an earlier leader has no effect.
    ///
    /// Returns `None` if the sequencer is to be closed before the end of the log is read.
    async fn read_log(&self) -> Result<Option<Offset>, StorageError> {
        let mut next = self.storage.next_offset().await?;
        let mut lasts: HashMap<NumberKey, u64> = HashMap::new();
        let mut buffer = Vec::new();
        let mut progress = self.progress_offset(next);
        let mut events = self.storage.events(next);
        while let Some(event) = events.next().await {
            let LoggedEvent { offset, numbers } = event?;
            // A storage may answer every call at once. Without this yield, no other task would run
            // meanwhile, and this loop would not see that the sequencer is to be closed.
            consume_budget().await;
            if self.shared.engine().is_closing() {
                return Ok(None);
            }
            if offset != next {
                return Err(StorageError(
                    format!("the log has event {offset} instead of event {next}").into(),
                ));
            }
            for (key, number) in numbers {
                let last = lasts.entry(key).or_default();
                *last = number.max(*last);
            }
            next = next.next();
            if lasts.len() >= self.max_unflushed || next >= progress {
                self.store(&mut lasts, &mut buffer, next).await?;
                progress = self.progress_offset(next);
            }
        }
        self.store(&mut lasts, &mut buffer, next).await?;
        Ok(Some(next))
    }

    /// Returns the offset where progress is stored even if few numbers changed. If reading the log
    /// fails later, the next try goes on from this offset.
    fn progress_offset(&self, next: Offset) -> Offset {
        next.after(max_events(self.max_unflushed))
    }

    async fn store(
        &self,
        lasts: &mut HashMap<NumberKey, u64>,
        buffer: &mut Vec<KeyedNumber>,
        next: Offset,
    ) -> Result<(), StorageError> {
        let mut numbers = mem::take(buffer);
        numbers.clear();
        numbers.extend(lasts.drain());
        let stored = self.storage.write(&numbers, next).await;
        *buffer = numbers;
        stored
    }

    /// Records a failed call, and waits before the next try.
    ///
    /// An error is logged when it begins and when its text changes, not at every try, because there
    /// are many tries.
    async fn handle_failure(&self, task: &'static str, error: StorageError) {
        self.meters.record_retry();
        self.meters.set_unflushed(self.shared.engine().unflushed());
        let (before, text) = (self.shared.engine().last_error(), with_causes(&error));
        if before.is_none_or(|before| with_causes(&*before) != text) {
            warn!(
                partition = self.meters.partition(),
                task,
                retry_after = ?self.retry_after,
                error = text,
                "sequencer storage error"
            );
        }
        self.shared.engine().record_failure(Arc::new(error));
        self.clock.sleep(self.retry_after).await;
    }

    /// Logs that the storage works again. Must be called before the recorded error is cleared.
    fn log_recovery(&self, task: &'static str) {
        if self.shared.engine().last_error().is_some() {
            info!(partition = self.meters.partition(), task, "sequencer storage works again");
        }
    }
}
