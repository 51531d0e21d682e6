//! A transaction: the commands of a group, from the first number drawn to the last.
//!
//! Invariant: only the command that joined last can draw numbers or give them back.

use futures::future::join_all;

use crate::{
    NumberKey, Offset, SeqId, Sequencer, StorageError, WsId, WsKind,
    cache::{At, Numbers},
    defect::{self, Defect},
    engine::Last,
};

/// The numbers that a command drew from one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    key: NumberKey,
    /// The index of the sequence among the sequences of the workspace.
    place: usize,
    /// The last number before the command drew.
    before: u64,
    /// The last number that the command drew.
    number: u64,
}

impl Draw {
    fn last(&self) -> Last {
        (self.key, self.number)
    }
}

/// The reason for which a command cannot join.
#[derive(Debug, thiserror::Error)]
pub enum NotJoined {
    /// No sequences are declared for this kind of workspace.
    #[error("no sequences are declared for workspaces of kind {0}")]
    UnknownKind(WsKind),
    /// The transaction has drawn as many numbers as there was room for. A sequence counts once for
    /// each command that drew from it. End the transaction, and begin another.
    #[error("the transaction has drawn as many numbers as there was room for")]
    Full,
    /// The numbers of the workspace could not be read.
    #[error("the numbers of workspace {0} cannot be read")]
    Storage(WsId, #[source] StorageError),
}

/// The reason for which there is no next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNumber {
    /// The sequence is not declared.
    #[error("no sequence {seq} is declared for workspaces of kind {kind}")]
    UnknownSequence {
        /// The kind of the workspace.
        kind: WsKind,
        /// The sequence.
        seq: SeqId,
    },
    /// All ranges of the sequence are used up.
    #[error("sequence {seq} of workspace {ws} has no number after {last}")]
    Exhausted {
        /// The workspace.
        ws: WsId,
        /// The sequence.
        seq: SeqId,
        /// The last number given.
        last: u64,
    },
}

/// A command that has joined. The place of its numbers in the cache is valid until the next command
/// joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    kind: WsKind,
    /// The index of the kind among all kinds.
    place: usize,
    ws: WsId,
    at: At,
    /// The count of the draws before the command joined.
    drawn: usize,
}

/// Commands that draw numbers together, one after another.
///
/// The owner ends a transaction with [`flush`](Transaction::flush) if all its events are in the log
/// and applied. Otherwise the owner ends it with [`actualize`](Transaction::actualize). A dropped
/// transaction with kept commands is actualized, because the outcome of their events is unknown.
///
/// In each case, no write of these events may land afterwards. The owner of the transaction must
/// ensure this.
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
        sequencer.is_open = true;
        Transaction { sequencer, first: next, next, unflushed, kept: 0 }
    }

    /// Lets a command on a workspace join. If the numbers of the workspace are not in memory, all
    /// of them are read.
    ///
    /// # Errors
    /// Fails with the reason for which the command cannot join. The transaction can go on without
    /// the command.
    ///
    /// # Cancel safety
    /// Safe to drop: a dropped call has drawn nothing.
    pub async fn join(
        &mut self,
        kind: WsKind,
        ws: WsId,
    ) -> Result<JoinedCommand<'_, 's>, NotJoined> {
        let joined = self.joined(kind, ws).await?;
        Ok(JoinedCommand { transaction: self, joined, is_kept: false })
    }

    pub(crate) async fn joined(&mut self, kind: WsKind, ws: WsId) -> Result<Joined, NotJoined> {
        self.give_back_forgotten();
        let Sequencer { sequences, max_unflushed, drawn, cache, meters, .. } = &mut *self.sequencer;
        let place = sequences.place(kind).ok_or(NotJoined::UnknownKind(kind))?;
        if !drawn.is_empty() && self.unflushed + drawn.len() >= *max_unflushed {
            return Err(NotJoined::Full);
        }
        let drawn = drawn.len();
        let at = match cache.find(ws, place) {
            Some(at) => {
                meters.hits.increment(1);
                at
            }
            None => {
                meters.misses.increment(1);
                match self.read(place, ws).await {
                    Ok(at) => at,
                    Err(error) => {
                        self.sequencer.meters.failed_reads.increment(1);
                        return Err(NotJoined::Storage(ws, error));
                    }
                }
            }
        };
        Ok(Joined { kind, place, ws, at, drawn })
    }

    /// Returns whether a command on a workspace can join without a call to the storage.
    pub fn is_cached(&self, kind: WsKind, ws: WsId) -> bool {
        let Sequencer { sequences, cache, .. } = &*self.sequencer;
        sequences.place(kind).is_none_or(|place| cache.has(ws, place))
    }

    /// Reads the numbers of workspaces concurrently, so that commands on them can join at once.
    ///
    /// The caller bounds the count of workspaces. If a read fails, the command that joins reads
    /// again.
    ///
    /// # Cancel safety
    /// Safe to drop: a dropped call has drawn nothing.
    pub async fn read_ahead(&mut self, workspaces: impl IntoIterator<Item = (WsKind, WsId)>) {
        self.give_back_forgotten();
        let this = &*self;
        let cold = workspaces.into_iter().filter(|(kind, ws)| !this.is_cached(*kind, *ws));
        let reads = cold.filter_map(|(kind, ws)| {
            let place = this.sequencer.sequences.place(kind)?;
            Some(async move { Some((ws, place, this.stored(place, ws).await.ok()?)) })
        });
        let read = join_all(reads).await;
        let Sequencer { cache, meters, .. } = &mut *self.sequencer;
        for (ws, place, numbers) in read.into_iter().flatten() {
            meters.misses.increment(1);
            cache.insert(ws, place, numbers);
        }
    }

    async fn read(&mut self, place: usize, ws: WsId) -> Result<At, StorageError> {
        let numbers = self.stored(place, ws).await?;
        Ok(self.sequencer.cache.insert(ws, place, numbers))
    }

    /// Reads the numbers of a workspace: the highest of the unflushed, the stored and the drawn
    /// numbers.
    ///
    /// The unflushed numbers must be read before the storage is asked. A simpler version reads them
    /// after the storage has answered. The storage reads 3; the keeper stores 4, and 4 is no longer
    /// unflushed; the answer 3 arrives. The version would give 4 a second time.
    ///
    /// No number becomes unflushed during the call, because only the owner of this transaction
    /// flushes.
    async fn stored(&self, place: usize, ws: WsId) -> Result<Numbers, StorageError> {
        let Sequencer { shared, storage, sequences, drawn, .. } = &*self.sequencer;
        let seqs = &sequences.at(place).ids;
        let mut numbers: Numbers = shared.engine().unflushed_numbers(ws, seqs);
        let stored = storage.read_numbers(ws, seqs).await?;
        if defect::has(Defect::AskedTooLate) {
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
        let known = if defect::has(Defect::ForgottenDraws) { &[] } else { &drawn[..] };
        for draw in known.iter().filter(|draw| draw.key.ws == ws) {
            if let Some(place) = seqs.iter().position(|seq| *seq == draw.key.seq) {
                numbers[place] = draw.number.max(numbers[place]);
            }
        }
        Ok(numbers)
    }

    /// Draws the next number of a sequence, for the command that joined last.
    pub(crate) fn draw(&mut self, joined: Joined, seq: SeqId) -> Result<u64, NoNumber> {
        let Joined { kind, ws, at, .. } = joined;
        let Sequencer { sequences, cache, drawn, .. } = &mut *self.sequencer;
        let known = sequences.at(joined.place);
        let place = known.place(seq).ok_or(NoNumber::UnknownSequence { kind, seq })?;
        let last = cache.number(at, place);
        let before = *last;
        let next = known.sequences[place].after(before);
        let number = next.ok_or(NoNumber::Exhausted { ws, seq, last: before })?;
        *last = number;
        match drawn[joined.drawn..].iter_mut().find(|draw| draw.place == place) {
            Some(draw) => draw.number = number,
            None => drawn.push(Draw { key: NumberKey { ws, seq }, place, before, number }),
        }
        Ok(number)
    }

    /// Returns the last number of each sequence from which the command that joined last drew.
    pub(crate) fn drawn(&self, joined: Joined) -> impl Iterator<Item = Last> {
        self.sequencer.drawn[joined.drawn..].iter().map(Draw::last)
    }

    /// Gives back the numbers that the command that joined last drew.
    pub(crate) fn leave(&mut self, joined: Joined) {
        let Sequencer { cache, drawn, .. } = &mut *self.sequencer;
        for draw in drawn.drain(joined.drawn..) {
            if !defect::has(Defect::NothingGivenBack) {
                *cache.number(joined.at, draw.place) = draw.before;
            }
        }
    }

    /// Gives back the numbers of a command that was forgotten: the command was neither kept nor
    /// dropped. The place of its workspace in the cache is not known any more, so the cache is
    /// cleared.
    fn give_back_forgotten(&mut self) {
        let Sequencer { cache, drawn, .. } = &mut *self.sequencer;
        if drawn.len() > self.kept {
            drawn.truncate(self.kept);
            cache.clear();
        }
    }

    /// Keeps the command that joined last. From now on its event may be written.
    pub(crate) fn keep(&mut self) -> Offset {
        let offset = self.next;
        self.next = offset.next();
        self.keep_draws();
        offset
    }

    /// Records that all draws belong to kept commands.
    pub(crate) fn keep_draws(&mut self) {
        self.kept = self.sequencer.drawn.len();
    }

    /// Ends the transaction: the events of all commands are in the log and applied. The keeper
    /// stores their numbers soon.
    pub fn flush(mut self) {
        self.give_back_forgotten();
        let next = std::mem::replace(&mut self.next, self.first);
        let Sequencer { shared, drawn, .. } = &mut *self.sequencer;
        if next != self.first {
            shared.flush(drawn.drain(..).map(|draw| draw.last()), next);
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
        self.sequencer.is_open = false;
        if self.next != self.first {
            self.sequencer.actualize();
        } else {
            self.give_back_forgotten();
        }
    }
}

/// A command that draws numbers.
///
/// A dropped command leaves the transaction, and gives its numbers back. Drop a command that failed
/// before any part of its event was written.
///
/// A command must be [kept](JoinedCommand::keep) before its event is written. A kept command cannot
/// leave.
///
/// While a command is open, no other command can join:
///
/// ```compile_fail,E0499
/// # async fn example(transaction: &mut isequencer::Transaction<'_>) {
/// let (kind, ws) = (isequencer::WsKind(1), isequencer::WsId(1));
/// let first = transaction.join(kind, ws).await;
/// let second = transaction.join(kind, ws).await; // the first must have been kept, or have left
/// drop(first);
/// # }
/// ```
#[must_use = "a command that is dropped gives its numbers back"]
#[derive(Debug)]
pub struct JoinedCommand<'t, 's> {
    transaction: &'t mut Transaction<'s>,
    joined: Joined,
    is_kept: bool,
}

impl JoinedCommand<'_, '_> {
    /// Draws the next number of a sequence of the workspace. The number belongs to the command once
    /// the command is [kept](JoinedCommand::keep).
    ///
    /// # Errors
    /// Fails if the sequence is not declared, or if its ranges are used up.
    pub fn next(&mut self, seq: SeqId) -> Result<u64, NoNumber> {
        self.transaction.draw(self.joined, seq)
    }

    /// Returns the last number of each sequence that the command drew from. The event must contain
    /// these numbers, so that they can be found in the log.
    pub fn drawn(&self) -> impl Iterator<Item = (NumberKey, u64)> {
        self.transaction.drawn(self.joined)
    }

    /// Returns the offset of the event in the log, if the command is [kept](JoinedCommand::keep).
    pub fn offset(&self) -> Offset {
        self.transaction.next
    }

    /// Keeps the command: its event is going to be written at the returned offset of the log.
    #[must_use = "the event is to be written at this offset and no other"]
    pub fn keep(mut self) -> Offset {
        self.is_kept = true;
        self.transaction.keep()
    }
}

impl Drop for JoinedCommand<'_, '_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.transaction.leave(self.joined);
        }
    }
}
