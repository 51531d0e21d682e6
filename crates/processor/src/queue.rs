//! A command in the queue of a partition, and the way back to its sender.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use clock::Instant;
use tokio::sync::oneshot;

use crate::{Busy, Command, Refused, command::Answered, spans::CommandSpan};

/// The command waits for its turn.
const WAITING: u8 = 0;
/// The partition has taken the command and runs it.
const TAKEN: u8 = 1;
/// The sender no longer waits for the command.
const GIVEN_UP: u8 = 2;

/// The turn of a command. The sender and the partition share it.
///
/// Invariant: if the sender is told `Busy` at its deadline, the command is never done. The sender
/// gives up by changing the turn from `WAITING`, and the partition takes the command in the same
/// way. Only one of the two succeeds. If the partition has taken the command, the sender is told
/// that the outcome is unknown.
///
/// A simpler version has two flags, and each side sets one. The partition sees that the sender
/// waits; the sender sees that the command is not taken, and reports `Busy`; the partition takes
/// the command. So a command is done after its sender was told that it is not.
#[derive(Clone, Debug)]
pub(crate) struct Turn(Arc<AtomicU8>);

impl Turn {
    fn new() -> Turn {
        Turn(Arc::new(AtomicU8::new(WAITING)))
    }

    /// Gives the command up. Returns false if the partition has taken the command.
    pub(crate) fn give_up(&self) -> bool {
        self.change(WAITING, GIVEN_UP)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A command that waits for its turn.
#[derive(Debug)]
pub(crate) struct QueuedCommand {
    /// Boxed, because the command moves several times until it runs.
    pub(crate) command: Box<Command>,
    pub(crate) reply: Reply,
    /// When the command began to wait.
    pub(crate) since: Instant,
    /// Whether the rows of the command were read ahead.
    pub(crate) was_read_ahead: bool,
}

/// The way back to the sender of a command.
#[derive(Debug)]
pub(crate) struct Reply {
    answer: oneshot::Sender<Answered>,
    turn: Turn,
    pub(crate) span: CommandSpan,
}

impl Reply {
    /// Creates a reply, the turn of its command, and the receiver of the answer.
    pub(crate) fn new(span: CommandSpan) -> (Reply, Turn, oneshot::Receiver<Answered>) {
        let (answer, answered) = oneshot::channel();
        let turn = Turn::new();
        (Reply { answer, turn: turn.clone(), span }, turn, answered)
    }

    /// Takes the command because its turn has come. Returns whether the sender still waits.
    pub(crate) fn take(&self) -> bool {
        !self.answer.is_closed() && self.turn.change(WAITING, TAKEN)
    }

    /// Whether the sender still waits for the command.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.answer.is_closed() && self.turn.0.load(Ordering::Acquire) != GIVEN_UP
    }

    /// Puts the command back: it waits for another turn.
    pub(crate) fn put_back(&self) {
        self.turn.change(TAKEN, WAITING);
    }

    /// Refuses the command. Nothing of the command was done.
    pub(crate) fn refuse(self, busy: &Busy) {
        if self.take() {
            self.answer(Err(Refused::Busy(busy.clone())));
        }
    }

    pub(crate) fn answer(self, answer: Answered) {
        self.span.end(&answer);
        // The sender may be gone.
        let _ = self.answer.send(answer);
    }
}
