//! A storage in memory, for tests.
//!
//! The storage keeps the contract of [`SeqStorage`]. A hook can decide the outcome of each call.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures::{StreamExt, future::BoxFuture, stream, stream::BoxStream};

use crate::{LoggedEvent, NumberKey, Offset, SeqId, SeqStorage, StorageError, WsId};

/// A call of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeqStorageCall {
    /// [`SeqStorage::read_numbers`]
    ReadNumbers,
    /// [`SeqStorage::next_offset`]
    NextOffset,
    /// The numbers of a [`SeqStorage::write`]
    WriteNumbers,
    /// The offset of a [`SeqStorage::write`]
    WriteOffset,
    /// One event of [`SeqStorage::events`]
    NextEvent,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The call is done and answered.
    Done,
    /// The call is not done, and fails.
    Failed,
    /// The call is done, and returns an error.
    AnswerLost,
    /// The call returns an error. A write is done later, by [`MemSeqStorage::land`].
    LandsLater,
}

/// A function that decides the outcome of each call. The decision may take any time.
pub type CallHook = Arc<dyn Fn(SeqStorageCall) -> BoxFuture<'static, CallOutcome> + Send + Sync>;

/// Numbers, an offset and a log in memory.
#[derive(Clone, Default)]
pub struct MemSeqStorage {
    inner: Arc<Mutex<MemState>>,
    hook: Option<CallHook>,
}

#[derive(Debug, Default)]
struct MemState {
    numbers: HashMap<NumberKey, u64>,
    next: Option<Offset>,
    log: Vec<Vec<(NumberKey, u64)>>,
    late: Vec<Write>,
    /// A mistake for tests: a write that lands replaces a higher value too.
    #[cfg(test)]
    numbers_may_decrease: bool,
}

#[derive(Clone, Debug)]
enum Write {
    Numbers(Vec<(NumberKey, u64)>),
    Offset(Offset),
}

impl fmt::Debug for MemSeqStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemSeqStorage").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl MemSeqStorage {
    /// Makes an empty storage.
    pub fn new() -> MemSeqStorage {
        MemSeqStorage::default()
    }

    /// Returns the same storage with a hook that decides the outcome of each call.
    #[must_use]
    pub fn with_hook(&self, hook: CallHook) -> MemSeqStorage {
        MemSeqStorage { inner: Arc::clone(&self.inner), hook: Some(hook) }
    }

    /// Returns the same storage with the mistake that a write replaces a higher value too.
    #[cfg(test)]
    pub(crate) fn with_decreasing_numbers(self) -> MemSeqStorage {
        self.inner().numbers_may_decrease = true;
        self
    }

    /// Writes an event that drew these numbers at the end of the log.
    pub fn append(&self, numbers: Vec<(NumberKey, u64)>) -> Offset {
        let mut inner = self.inner();
        inner.log.push(numbers);
        offset_of(inner.log.len() - 1)
    }

    /// Returns a stored number; 0 if none is stored.
    pub fn number(&self, key: NumberKey) -> u64 {
        self.inner().numbers.get(&key).copied().unwrap_or(0)
    }

    /// Returns the numbers that each event of the log drew.
    pub fn log(&self) -> Vec<Vec<(NumberKey, u64)>> {
        self.inner().log.clone()
    }

    /// Returns the stored offset.
    pub fn offset(&self) -> Option<Offset> {
        self.inner().next
    }

    /// Lets the writes with the outcome [`CallOutcome::LandsLater`] land.
    pub fn land(&self) {
        let mut inner = self.inner();
        for late in std::mem::take(&mut inner.late) {
            inner.apply(&late);
        }
    }

    fn inner(&self) -> MutexGuard<'_, MemState> {
        // The state is consistent at every moment, so a poisoned lock does no harm.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn decide_outcome(&self, call: SeqStorageCall) -> CallOutcome {
        match &self.hook {
            Some(hook) => hook(call).await,
            None => CallOutcome::Done,
        }
    }

    async fn read_outcome(&self, call: SeqStorageCall) -> Result<(), StorageError> {
        match self.decide_outcome(call).await {
            CallOutcome::Done => Ok(()),
            outcome => Err(failed(call, outcome)),
        }
    }

    async fn write_outcome(&self, call: SeqStorageCall, write: Write) -> Result<(), StorageError> {
        let outcome = self.decide_outcome(call).await;
        let mut inner = self.inner();
        match outcome {
            CallOutcome::Done | CallOutcome::AnswerLost => inner.apply(&write),
            CallOutcome::LandsLater => inner.late.push(write),
            CallOutcome::Failed => {}
        }
        if outcome == CallOutcome::Done { Ok(()) } else { Err(failed(call, outcome)) }
    }
}

impl MemState {
    /// Applies a write. No stored value is replaced by a lower one.
    fn apply(&mut self, write: &Write) {
        #[cfg(test)]
        if self.numbers_may_decrease {
            match write {
                Write::Numbers(numbers) => self.numbers.extend(numbers.iter().copied()),
                Write::Offset(next) => self.next = Some(*next),
            }
            return;
        }
        match write {
            Write::Numbers(numbers) => {
                for (key, number) in numbers {
                    let stored = self.numbers.entry(*key).or_default();
                    *stored = (*stored).max(*number);
                }
            }
            Write::Offset(next) => self.next = self.next.max(Some(*next)),
        }
    }
}

fn failed(call: SeqStorageCall, outcome: CallOutcome) -> StorageError {
    StorageError(format!("{call:?}: {outcome:?}").into())
}

fn offset_of(index: usize) -> Offset {
    Offset::new(index as u64 + 1).unwrap_or(Offset::FIRST)
}

#[async_trait]
impl SeqStorage for MemSeqStorage {
    async fn read_numbers(&self, ws: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError> {
        // Read before the hook runs: the answer may be outdated when it arrives.
        let numbers = {
            let inner = self.inner();
            let number = |seq: &SeqId| inner.numbers.get(&NumberKey { ws, seq: *seq });
            seqs.iter().map(|seq| number(seq).copied().unwrap_or(0)).collect()
        };
        self.read_outcome(SeqStorageCall::ReadNumbers).await?;
        Ok(numbers)
    }

    async fn next_offset(&self) -> Result<Offset, StorageError> {
        self.read_outcome(SeqStorageCall::NextOffset).await?;
        Ok(self.offset().unwrap_or(Offset::FIRST))
    }

    async fn write(&self, numbers: &[(NumberKey, u64)], next: Offset) -> Result<(), StorageError> {
        let sequences: HashSet<NumberKey> = numbers.iter().map(|(key, _)| *key).collect();
        assert_eq!(sequences.len(), numbers.len(), "a sequence occurs twice in {numbers:?}");
        self.write_outcome(SeqStorageCall::WriteNumbers, Write::Numbers(numbers.to_vec())).await?;
        self.write_outcome(SeqStorageCall::WriteOffset, Write::Offset(next)).await
    }

    fn events(&self, from: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>> {
        let next = move |offset: Offset| async move {
            if let Err(error) = self.read_outcome(SeqStorageCall::NextEvent).await {
                return Some((Err(error), offset));
            }
            let numbers = self.inner().log.get((offset.0 as usize).checked_sub(1)?).cloned()?;
            Some((Ok(LoggedEvent { offset, numbers }), offset.next()))
        };
        stream::unfold(from, next).boxed()
    }
}
