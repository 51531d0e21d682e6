//! From the first number of a group of commands to the last.

use futures::future::join_all;

use crate::{
    NumberKey, Offset, SeqId, Sequencer, StorageError, WsId, WsKind,
    cache::{At, Numbers},
    defect::{self, Defect},
    engine::Last,
};

/// What a command drew from a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    key: NumberKey,
    /// Where the sequence is among those of the workspace.
    place: usize,
    /// The last number before the command drew.
    before: u64,
    /// The last number since.
    number: u64,
}

impl Draw {
    fn last(&self) -> Last {
        (self.key, self.number)
    }
}

/// Why a command cannot join.
#[derive(Debug, thiserror::Error)]
pub enum NotJoined {
    /// There are no such workspaces.
    #[error("no sequences are declared for workspaces of kind {0}")]
    UnknownKind(WsKind),
    /// The transaction has drawn as many numbers as there was room for, of each command its own: end it, and begin another.
    #[error("the transaction has drawn as many numbers as there was room for")]
    Full,
    /// The numbers of the workspace could not be read.
    #[error("the numbers of workspace {0} cannot be read")]
    Storage(WsId, #[source] StorageError),
}

/// Why there is no next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNumber {
    /// There is no such sequence.
    #[error("no sequence {seq} is declared for workspaces of kind {kind}")]
    UnknownSequence {
        /// The kind of the workspace.
        kind: WsKind,
        /// The sequence.
        seq: SeqId,
    },
    /// All its ranges are used up.
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

/// A command that has joined, and where its numbers are until the next one joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    kind: WsKind,
    /// Where the kind is among all.
    place: usize,
    ws: WsId,
    at: At,
    /// How much was drawn before.
    drawn: usize,
}

/// Commands that draw numbers together, one after another. It ends by [`flush`](Transaction::flush) when all their events are in the log
/// and applied, and else by [`actualize`](Transaction::actualize). One that is dropped with commands in it is actualized: nobody knows what became of
/// their events. Whichever way, no write of their events may still land then: whoever owns the transaction sees to that.
#[must_use = "a transaction ends by `flush` or `actualize`"]
#[derive(Debug)]
pub struct Transaction<'s> {
    sequencer: &'s mut Sequencer,
    first: Offset,
    next: Offset,
    /// How many numbers waited when it began.
    unflushed: usize,
    /// How much of what was drawn is of commands that are kept.
    kept: usize,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(sequencer: &'s mut Sequencer, next: Offset, unflushed: usize) -> Self {
        sequencer.is_open = true;
        Transaction { sequencer, first: next, next, unflushed, kept: 0 }
    }

    /// A command on a workspace. All numbers of the workspace are read if they are not in memory.
    ///
    /// # Errors
    /// Why not. The transaction can go on without it.
    ///
    /// # Cancel safety
    /// Safe: a dropped call has drawn nothing.
    pub async fn join(&mut self, kind: WsKind, ws: WsId) -> Result<Command<'_, 's>, NotJoined> {
        let joined = self.joined(kind, ws).await?;
        Ok(Command { transaction: self, joined, is_kept: false })
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

    /// Whether a command on a workspace can join without a call to the storage.
    pub fn is_cached(&self, kind: WsKind, ws: WsId) -> bool {
        let Sequencer { sequences, cache, .. } = &*self.sequencer;
        sequences.place(kind).is_none_or(|place| cache.has(ws, place))
    }

    /// Reads the numbers of workspaces side by side, so that commands on them can join at once. The
    /// caller bounds how many. If a read fails, the command that joins reads again.
    ///
    /// # Cancel safety
    /// Safe: a dropped call has drawn nothing.
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

    /// Reads the numbers of a workspace. What is not stored yet is asked for first: when the answer of the storage is here, it may have been
    /// stored, and the answer may be older. Nothing can begin to wait meanwhile, as only the owner of this transaction flushes.
    async fn stored(&self, place: usize, ws: WsId) -> Result<Numbers, StorageError> {
        let Sequencer { shared, storage, sequences, drawn, .. } = &*self.sequencer;
        let seqs = &sequences.at(place).ids;
        let mut numbers: Numbers = shared.engine().waiting(ws, seqs);
        let stored = storage.read_numbers(ws, seqs).await?;
        if defect::has(Defect::AskedTooLate) {
            numbers = shared.engine().waiting(ws, seqs);
        }
        if stored.len() != seqs.len() {
            let what =
                format!("{} numbers were read where {} were asked for", stored.len(), seqs.len());
            return Err(StorageError(what.into()));
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

    /// The next number of a sequence for the command that joined last.
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

    /// The last numbers that the command drew that joined last.
    pub(crate) fn drawn(&self, joined: Joined) -> impl Iterator<Item = Last> {
        self.sequencer.drawn[joined.drawn..].iter().map(Draw::last)
    }

    /// Gives back what the command drew that joined last.
    pub(crate) fn leave(&mut self, joined: Joined) {
        let Sequencer { cache, drawn, .. } = &mut *self.sequencer;
        for draw in drawn.drain(joined.drawn..) {
            if !defect::has(Defect::NothingGivenBack) {
                *cache.number(joined.at, draw.place) = draw.before;
            }
        }
    }

    /// A command that was forgotten, neither kept nor dropped: where its workspace is in memory is not known any more.
    fn give_back_forgotten(&mut self) {
        let Sequencer { cache, drawn, .. } = &mut *self.sequencer;
        if drawn.len() > self.kept {
            drawn.truncate(self.kept);
            cache.clear();
        }
    }

    /// From now on the event of the command that joined last may be written.
    pub(crate) fn keep(&mut self) -> Offset {
        let offset = self.next;
        self.next = offset.next();
        self.keep_draws();
        offset
    }

    /// All that was drawn is of commands that are kept.
    pub(crate) fn keep_draws(&mut self) {
        self.kept = self.sequencer.drawn.len();
    }

    /// The events of all commands are in the log and applied. Their numbers are stored soon.
    pub fn flush(mut self) {
        self.give_back_forgotten();
        let next = std::mem::replace(&mut self.next, self.first);
        let Sequencer { shared, drawn, .. } = &mut *self.sequencer;
        if next != self.first {
            shared.flush(drawn.drain(..).map(|draw| draw.last()), next);
        }
    }

    /// It is not known which events are in the log: all numbers are read from there anew.
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

/// A command that draws numbers. One that is dropped leaves the transaction, and gives its numbers back: it failed before
/// anything of it was written. One that is to be written must be [kept](Command::keep) first, and can leave no more. While there is a command,
/// no other one can join:
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
pub struct Command<'t, 's> {
    transaction: &'t mut Transaction<'s>,
    joined: Joined,
    is_kept: bool,
}

impl Command<'_, '_> {
    /// The next number of a sequence of its workspace. It is the command's own when that is [kept](Command::keep).
    ///
    /// # Errors
    /// If there is no such sequence, or its ranges are used up.
    pub fn next(&mut self, seq: SeqId) -> Result<u64, NoNumber> {
        self.transaction.draw(self.joined, seq)
    }

    /// The last number of each sequence that it drew from: what its event must say, so that it is found in the log.
    pub fn drawn(&self) -> impl Iterator<Item = (NumberKey, u64)> {
        self.transaction.drawn(self.joined)
    }

    /// Where its event will be in the log, if it is [kept](Command::keep).
    pub fn offset(&self) -> Offset {
        self.transaction.next
    }

    /// Its event is going to be written, at this offset of the log.
    #[must_use = "the event is to be written at this offset and no other"]
    pub fn keep(mut self) -> Offset {
        self.is_kept = true;
        self.transaction.keep()
    }
}

impl Drop for Command<'_, '_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.transaction.leave(self.joined);
        }
    }
}
