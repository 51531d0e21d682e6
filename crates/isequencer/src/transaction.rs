//! A transaction: the commands of a group, from the first number drawn to the last.
//!
//! Invariant: only the command that joined last can draw numbers or give them back.

use futures::future::join_all;

use crate::{
    DrawError, JoinError, NumberKey, Offset, SeqId, Sequencer, StorageError, WsId, WsKind,
    cache::{CacheIndex, WorkspaceNumbers},
    defect::{self, SequencerDefect},
    engine::KeyedNumber,
};

/// The numbers that a command drew from one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    key: NumberKey,
    /// The index of the sequence among the sequences of the workspace.
    seq_index: usize,
    /// The last number before the command drew.
    before: u64,
    /// The last number that the command drew.
    number: u64,
}

impl Draw {
    fn keyed_number(&self) -> KeyedNumber {
        (self.key, self.number)
    }
}

/// A command that has joined. The index of its numbers in the cache is valid until the next command
/// joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinState {
    kind: WsKind,
    /// The index of the kind among all kinds.
    kind_index: usize,
    ws: WsId,
    at: CacheIndex,
    /// The count of the draws before the command joined.
    drawn: usize,
}

/// Commands that draw numbers together, one after another.
///
/// The owner ends a transaction with [`flush`](Transaction::flush) if all its events are in the log
/// and applied. Otherwise the owner ends it with [`actualize`](Transaction::actualize). A dropped
/// transaction with kept commands is actualized, because the outcome of their events is unknown.
///
/// In each case, the owner must ensure that no write of these events lands afterwards.
#[must_use = "a transaction ends by `flush` or `actualize`"]
#[derive(Debug)]
pub struct Transaction<'s> {
    sequencer: &'s mut Sequencer,
    first: Offset,
    next: Offset,
    /// The count of unflushed numbers when the transaction began.
    unflushed: usize,
    /// The count of the draws that belong to kept commands.
    kept: usize,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(sequencer: &'s mut Sequencer, next: Offset, unflushed: usize) -> Self {
        sequencer.has_open_transaction = true;
        Transaction { sequencer, first: next, next, unflushed, kept: 0 }
    }

    /// Determines the state of a command that joins. If the numbers of the workspace are not in
    /// memory, all of them are read.
    pub(crate) async fn join_workspace(
        &mut self,
        kind: WsKind,
        ws: WsId,
    ) -> Result<JoinState, JoinError> {
        self.discard_forgotten_command();
        let Sequencer { sequences, max_unflushed, drawn, cache, meters, .. } = &mut *self.sequencer;
        let kind_index = sequences.kind_index(kind).ok_or(JoinError::UnknownKind(kind))?;
        if !drawn.is_empty() && self.unflushed + drawn.len() >= *max_unflushed {
            return Err(JoinError::Full);
        }
        let drawn = drawn.len();
        let at = match cache.find(ws, kind_index) {
            Some(at) => {
                meters.hits.increment(1);
                at
            }
            None => {
                meters.misses.increment(1);
                match self.read_into_cache(kind_index, ws).await {
                    Ok(at) => at,
                    Err(error) => {
                        self.sequencer.meters.failed_reads.increment(1);
                        return Err(JoinError::Storage(ws, error));
                    }
                }
            }
        };
        Ok(JoinState { kind, kind_index, ws, at, drawn })
    }

    /// Returns whether a command on a workspace can join without a call to the storage.
    pub fn is_cached(&self, kind: WsKind, ws: WsId) -> bool {
        let Sequencer { sequences, cache, .. } = &*self.sequencer;
        sequences.kind_index(kind).is_none_or(|kind_index| cache.has(ws, kind_index))
    }

    /// Reads the numbers of workspaces concurrently, so that commands on them can join at once.
    ///
    /// The caller bounds the count of workspaces. If a read fails, the command that joins reads
    /// again.
    ///
    /// # Cancel safety
    /// Safe to drop: a dropped call has drawn nothing.
    pub async fn read_ahead(&mut self, workspaces: impl IntoIterator<Item = (WsKind, WsId)>) {
        self.discard_forgotten_command();
        let this = &*self;
        let uncached = workspaces.into_iter().filter(|(kind, ws)| !this.is_cached(*kind, *ws));
        let reads =
            uncached.filter_map(|(kind, ws)| {
                let kind_index = this.sequencer.sequences.kind_index(kind)?;
                Some(async move {
                    Some((ws, kind_index, this.current_numbers(kind_index, ws).await.ok()?))
                })
            });
        let read = join_all(reads).await;
        let Sequencer { cache, meters, .. } = &mut *self.sequencer;
        for (ws, kind_index, numbers) in read.into_iter().flatten() {
            meters.misses.increment(1);
            cache.insert(ws, kind_index, numbers);
        }
    }

    async fn read_into_cache(
        &mut self,
        kind_index: usize,
        ws: WsId,
    ) -> Result<CacheIndex, StorageError> {
        let numbers = self.current_numbers(kind_index, ws).await?;
        Ok(self.sequencer.cache.insert(ws, kind_index, numbers))
    }

    /// Reads the numbers of a workspace: the highest of the unflushed, the stored and the drawn
    /// numbers.
    ///
    /// The unflushed numbers must be read before the storage is asked. A simpler version reads them
    /// after the storage has answered. The storage reads 3; the keeper stores 4, and 4 is no longer
    /// unflushed; the answer 3 arrives. So 4 would be given twice.
    ///
    /// No number becomes unflushed during the call, because only the owner of this transaction
    /// flushes.
    async fn current_numbers(
        &self,
        kind_index: usize,
        ws: WsId,
    ) -> Result<WorkspaceNumbers, StorageError> {
        let Sequencer { shared, storage, sequences, drawn, .. } = &*self.sequencer;
        let seqs = &sequences.kind(kind_index).ids;
        let mut numbers: WorkspaceNumbers = shared.engine().unflushed_numbers(ws, seqs);
        let stored = storage.read_numbers(ws, seqs).await?;
        if defect::is_put_back(SequencerDefect::UnflushedReadTooLate) {
            numbers = shared.engine().unflushed_numbers(ws, seqs);
        }
        if stored.len() != seqs.len() {
            let (count, wanted) = (stored.len(), seqs.len());
            let message = format!("the storage returned {count} numbers instead of {wanted}");
            return Err(StorageError(message.into()));
        }
        for (number, stored) in numbers.iter_mut().zip(stored) {
            *number = stored.max(*number);
        }
        let known =
            if defect::is_put_back(SequencerDefect::OpenDrawsForgotten) { &[] } else { &drawn[..] };
        for draw in known.iter().filter(|draw| draw.key.ws == ws) {
            if let Some(seq_index) = seqs.iter().position(|seq| *seq == draw.key.seq) {
                numbers[seq_index] = draw.number.max(numbers[seq_index]);
            }
        }
        Ok(numbers)
    }

    /// Draws the next number of a sequence, for the command that joined last.
    pub(crate) fn draw(&mut self, joined: JoinState, seq: SeqId) -> Result<u64, DrawError> {
        let JoinState { kind, ws, at, .. } = joined;
        let Sequencer { sequences, cache, drawn, .. } = &mut *self.sequencer;
        let declared = sequences.kind(joined.kind_index);
        let seq_index = declared.seq_index(seq).ok_or(DrawError::UnknownSequence { kind, seq })?;
        let last = cache.number(at, seq_index);
        let before = *last;
        let next = declared.sequences[seq_index].after(before);
        let number = next.ok_or(DrawError::Exhausted { ws, seq, last: before })?;
        *last = number;
        match drawn[joined.drawn..].iter_mut().find(|draw| draw.seq_index == seq_index) {
            Some(draw) => draw.number = number,
            None => drawn.push(Draw { key: NumberKey { ws, seq }, seq_index, before, number }),
        }
        Ok(number)
    }

    /// Returns the last number of each sequence that the command that joined last drew from.
    pub(crate) fn drawn(&self, joined: JoinState) -> impl Iterator<Item = KeyedNumber> {
        self.sequencer.drawn[joined.drawn..].iter().map(Draw::keyed_number)
    }

    /// Gives back the numbers that the command that joined last drew.
    pub(crate) fn leave(&mut self, joined: JoinState) {
        let Sequencer { cache, drawn, .. } = &mut *self.sequencer;
        for draw in drawn.drain(joined.drawn..) {
            if !defect::is_put_back(SequencerDefect::NumbersNotGivenBack) {
                *cache.number(joined.at, draw.seq_index) = draw.before;
            }
        }
    }

    /// Gives back the numbers of a command that was forgotten: the command was neither kept nor
    /// dropped. The index of its workspace in the cache is lost, so the cache is cleared.
    fn discard_forgotten_command(&mut self) {
        let Sequencer { cache, drawn, .. } = &mut *self.sequencer;
        if drawn.len() > self.kept {
            drawn.truncate(self.kept);
            cache.clear();
        }
    }

    /// Returns the offset of the next event.
    pub(crate) fn next_offset(&self) -> Offset {
        self.next
    }

    /// Keeps the command that joined last. From now on its event may be written.
    pub(crate) fn keep(&mut self) -> Offset {
        let offset = self.next;
        self.next = offset.next();
        self.keep_draws();
        offset
    }

    /// Takes the next offset for an entry of the log that draws no number. From now on the entry
    /// may be written.
    pub fn keep_without_numbers(&mut self) -> Offset {
        self.discard_forgotten_command();
        self.keep()
    }

    /// Records that all draws belong to kept commands.
    pub(crate) fn keep_draws(&mut self) {
        self.kept = self.sequencer.drawn.len();
    }

    /// Ends the transaction: the events of all commands are in the log and applied. The keeper
    /// stores their numbers soon.
    pub fn flush(mut self) {
        self.discard_forgotten_command();
        let next = std::mem::replace(&mut self.next, self.first);
        let Sequencer { shared, drawn, .. } = &mut *self.sequencer;
        if next != self.first {
            shared.flush(drawn.drain(..).map(|draw| draw.keyed_number()), next);
        }
    }

    /// Ends the transaction: the outcome of the events is unknown. The keeper reads all numbers
    /// from the log again.
    pub fn actualize(mut self) {
        self.next = self.first;
        self.sequencer.actualize();
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.sequencer.has_open_transaction = false;
        if self.next != self.first {
            self.sequencer.actualize();
        } else {
            self.discard_forgotten_command();
        }
    }
}
