//! The queue from the senders of commands to the task of the partition.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::{Log, Offset};
use isequencer::{Monitor, Unflushed};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use crate::{Busy, Command, Done, Refused, damage::Damage, meters::PartitionMeters};

/// The answer to a command.
pub(crate) type Answered = Result<Done, Refused>;

/// The status of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The log is being read. The text is the error that delays the recovery.
    Recovering(Option<String>),
    /// The partition runs commands.
    Ready,
    /// The partition runs no commands because the storage does not take a write that must come
    /// first, or does not answer reads. The text is the reason. The partition goes on by itself.
    Stalled(String),
    /// A row holds something else than it must. The partition goes on when the row is put right.
    Violation(String),
    /// The partition has ended for good because another node leads.
    LeadLost(String),
    /// The partition has ended, and may still have a write under way. It can be deployed again only
    /// under a new leadership.
    Failed(String),
    /// The partition is being stopped, or has stopped.
    Stopped,
}

impl Status {
    /// The reason why the partition runs no commands now.
    fn busy(&self) -> Option<Busy> {
        Some(match self {
            Status::Ready => return None,
            Status::Recovering(trouble) => Busy::Recovering(trouble.clone()),
            Status::Stalled(what) => Busy::Storage(what.clone()),
            Status::Violation(what) => Busy::Violation(what.clone()),
            Status::LeadLost(why) => Busy::LeadLost(why.clone()),
            Status::Failed(why) => Busy::Failed(why.clone()),
            Status::Stopped => Busy::Stopping,
        })
    }
}

/// Prints the status in a few words, with its reason.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Recovering(None) => f.write_str("recovering"),
            Status::Recovering(Some(trouble)) => write!(f, "recovering: {trouble}"),
            Status::Ready => f.write_str("ready"),
            Status::Stalled(what) => write!(f, "stalled: {what}"),
            Status::Violation(what) => write!(f, "violation: {what}"),
            Status::LeadLost(why) => write!(f, "leadership lost: {why}"),
            Status::Failed(why) => write!(f, "failed: {why}"),
            Status::Stopped => f.write_str("stopped"),
        }
    }
}

/// The state that the task of the partition and the senders of commands share.
#[derive(Debug)]
pub(crate) struct PartitionShared {
    status: Mutex<Status>,
    is_ready: AtomicBool,
    /// The offset of the first event that is not known to be applied; 0 before the log was read.
    applied: AtomicU64,
    pub(crate) damage: Damage,
    pub(crate) clock: Clock,
    pub(crate) meters: PartitionMeters,
}

impl PartitionShared {
    pub(crate) fn new(clock: Clock, meters: PartitionMeters) -> PartitionShared {
        let status = Mutex::new(Status::Recovering(None));
        let (is_ready, applied) = (AtomicBool::new(false), AtomicU64::new(0));
        let damage = Damage::default();
        PartitionShared { status, is_ready, applied, damage, clock, meters }
    }

    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the status. Returns whether the status changed.
    pub(crate) fn set(&self, status: Status) -> bool {
        let mut current = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_ready.store(status == Status::Ready, Ordering::Release);
        self.meters.status(&status);
        let is_news = *current != status;
        *current = status;
        is_news
    }

    /// Notes that all events before this offset are applied.
    pub(crate) fn set_applied(&self, next: Offset) {
        self.applied.store(next.0, Ordering::Release);
    }

    /// The reason why the partition runs no commands now.
    pub(crate) fn busy(&self) -> Option<Busy> {
        if self.is_ready.load(Ordering::Acquire) { None } else { self.status().busy() }
    }
}

/// The command waits for its turn.
const WAITING: u8 = 0;
/// The partition has taken the command and runs it.
const TAKEN: u8 = 1;
/// The sender no longer waits for the command.
const GIVEN_UP: u8 = 2;

/// A command that waits for its turn.
#[derive(Debug)]
pub(crate) struct QueuedCommand {
    pub(crate) command: Command,
    pub(crate) reply: Reply,
    /// The time at which the command began to wait.
    pub(crate) since: Instant,
    /// Whether the rows of the command were read ahead.
    pub(crate) is_read_for: bool,
}

#[cfg(test)]
impl QueuedCommand {
    /// Creates a queued command without a sender.
    pub(crate) fn of(command: Command, is_read_for: bool) -> QueuedCommand {
        let (answer, _) = oneshot::channel();
        let reply = Reply { answer, turn: Arc::new(AtomicU8::new(WAITING)) };
        let since = command.deadline;
        QueuedCommand { command, reply, since, is_read_for }
    }
}

/// The way back to the sender of a command.
///
/// Invariant: if the sender is told `Busy` at its deadline, the command is never done. The sender
/// gives up by changing `turn` from `WAITING`, and the partition takes the command in the same way.
/// Only one of the two succeeds. If the partition has taken the command, the sender is told that
/// the outcome is unknown.
///
/// Two flags, each set by one side, would not be enough. The partition sees that the sender waits.
/// The sender sees that the command is not taken, and reports `Busy`. Then the partition takes the
/// command and does it.
#[derive(Debug)]
pub(crate) struct Reply {
    answer: oneshot::Sender<Answered>,
    turn: Arc<AtomicU8>,
}

impl Reply {
    /// Takes the command because its turn has come. Returns whether the sender still waits.
    pub(crate) fn take(&self) -> bool {
        !self.answer.is_closed() && self.turn(WAITING, TAKEN)
    }

    /// Whether the sender still waits for the command.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.answer.is_closed() && self.turn.load(Ordering::Acquire) != GIVEN_UP
    }

    /// Puts the command back: it waits for another turn.
    pub(crate) fn put_back(&self) {
        self.turn(TAKEN, WAITING);
    }

    fn turn(&self, from: u8, to: u8) -> bool {
        self.turn.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Refuses the command. Nothing of the command was done.
    pub(crate) fn refuse(self, busy: &Busy) {
        if self.take() {
            self.answer(Err(Refused::Busy(busy.clone())));
        }
    }

    pub(crate) fn answer(self, answer: Answered) {
        // The sender may be gone.
        let _ = self.answer.send(answer);
    }
}

/// The handle to which the commands of a partition are sent.
#[derive(Clone, Debug)]
pub struct Commands {
    queue: mpsc::Sender<QueuedCommand>,
    pub(crate) shared: Arc<PartitionShared>,
    pub(crate) numbers: Monitor,
    pub(crate) log: Arc<Log>,
}

impl Commands {
    pub(crate) fn new(
        queue: mpsc::Sender<QueuedCommand>,
        shared: Arc<PartitionShared>,
        numbers: Monitor,
        log: Arc<Log>,
    ) -> Commands {
        Commands { queue, shared, numbers, log }
    }

    /// Runs a command and waits for its answer, at most until the deadline of the command.
    ///
    /// # Errors
    /// The reason why the command was not done, or why its outcome is not known.
    ///
    /// # Cancel safety
    /// If the future is dropped, the command may be done or not.
    pub async fn run(&self, command: Command) -> Answered {
        let answered = self.send(command).await;
        self.shared.meters.answered(&answered);
        answered
    }

    async fn send(&self, command: Command) -> Answered {
        if let Some(busy) = self.shared.busy() {
            return Err(Refused::Busy(busy));
        }
        let deadline = command.deadline;
        let (answer, answered) = oneshot::channel();
        let turn = Arc::new(AtomicU8::new(WAITING));
        let reply = Reply { answer, turn: Arc::clone(&turn) };
        let since = self.shared.clock.now();
        let queued = QueuedCommand { command, reply, since, is_read_for: false };
        if let Err(error) = self.queue.try_send(queued) {
            return Err(Refused::Busy(match error {
                TrySendError::Full(_) => Busy::QueueFull,
                TrySendError::Closed(_) => self.shared.busy().unwrap_or(Busy::Stopping),
            }));
        }
        let given_up = |busy, unknown: &str| {
            let is_waiting =
                turn.compare_exchange(WAITING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire);
            Err(match is_waiting {
                Ok(_) => Refused::Busy(busy),
                Err(_) => Refused::Unknown(unknown.to_owned()),
            })
        };
        match self.shared.clock.timeout_at(deadline, answered).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) => {
                given_up(Busy::Stopping, "the partition ended before it answered the command")
            }
            Err(_) => given_up(
                Busy::TimedOut,
                "the command was begun, and not answered before its deadline",
            ),
        }
    }

    /// The status of the partition.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Waits until the partition runs commands.
    ///
    /// # Errors
    /// The status of the partition, if it has ended or if the deadline comes first.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ready(&self, deadline: Instant) -> Result<(), Status> {
        const LOOK: Duration = Duration::from_millis(2);
        loop {
            let status = self.status();
            match status {
                Status::Ready => return Ok(()),
                Status::LeadLost(_) | Status::Failed(_) | Status::Stopped => return Err(status),
                _ if self.shared.clock.now() >= deadline => return Err(status),
                Status::Recovering(_) | Status::Stalled(_) | Status::Violation(_) => {
                    self.shared.clock.sleep(LOOK).await;
                }
            }
        }
    }

    /// The offset of the first event in the PLog that is not known to be applied. Readers of the
    /// logs see only events before this offset. A client that reads right after the answer to its
    /// command finds the event of that command.
    ///
    /// # Errors
    /// The reason why the log was not read yet. Nothing of the log may be shown before that,
    /// because events that another leader acknowledged would be missing.
    pub fn applied(&self) -> Result<Offset, Busy> {
        match self.shared.applied.load(Ordering::Acquire) {
            0 => Err(self.shared.busy().unwrap_or(Busy::Recovering(None))),
            offset => Ok(Offset(offset)),
        }
    }

    /// The number of commands that wait.
    pub fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Whether this node still leads, by the clock. Only then may a reader be given the rows that
    /// it read.
    pub fn may_answer(&self) -> bool {
        self.log.may_answer()
    }

    /// The numbers that are not stored yet. After a crash these numbers are found in the log again.
    pub fn unflushed(&self) -> Unflushed {
        self.numbers.unflushed()
    }
}
