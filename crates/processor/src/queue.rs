//! From whoever sends commands to the task that does them.

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

use crate::{Busy, Command, Done, Refused, damage::Damage, meters::Meters};

/// What a command is answered.
pub(crate) type Answered = Result<Done, Refused>;

/// What a partition is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its log is being read; with what is in the way.
    Recovering(Option<String>),
    /// It does commands.
    Ready,
    /// It does no commands because the storage does not take what must be stored first; with what
    /// is in the way. It goes on by itself.
    Stalled(String),
    /// A row holds what it cannot. It goes on when that is mended.
    Violation(String),
    /// It has ended, and does not begin again: another node leads.
    LeadLost(String),
    /// It has ended, and nobody knows whether something of it is still written: it is deployed again under a new lead.
    Failed(String),
    /// It is being stopped, or has been.
    Stopped,
}

impl Status {
    /// Why it does no command now.
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

/// In a few words, with the reason.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Recovering(None) => f.write_str("recovering"),
            Status::Recovering(Some(trouble)) => write!(f, "recovering: {trouble}"),
            Status::Ready => f.write_str("ready"),
            Status::Stalled(what) => write!(f, "stalled: {what}"),
            Status::Violation(what) => write!(f, "violation: {what}"),
            Status::LeadLost(why) => write!(f, "lead lost: {why}"),
            Status::Failed(why) => write!(f, "failed: {why}"),
            Status::Stopped => f.write_str("stopped"),
        }
    }
}

/// What the partition's task and those who send commands both know.
#[derive(Debug)]
pub(crate) struct Shared {
    status: Mutex<Status>,
    is_ready: AtomicBool,
    /// Of the first event that is not known to be applied; 0 before the log was read.
    applied: AtomicU64,
    pub(crate) damage: Damage,
    pub(crate) clock: Clock,
    pub(crate) meters: Meters,
}

impl Shared {
    pub(crate) fn new(clock: Clock, meters: Meters) -> Shared {
        let status = Mutex::new(Status::Recovering(None));
        let (is_ready, applied) = (AtomicBool::new(false), AtomicU64::new(0));
        let damage = Damage::default();
        Shared { status, is_ready, applied, damage, clock, meters }
    }

    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that is news.
    pub(crate) fn set(&self, status: Status) -> bool {
        let mut current = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_ready.store(status == Status::Ready, Ordering::Release);
        self.meters.status(&status);
        let is_news = *current != status;
        *current = status;
        is_news
    }

    /// All events before this one are applied.
    pub(crate) fn set_applied(&self, next: Offset) {
        self.applied.store(next.0, Ordering::Release);
    }

    /// Why no command is done now.
    pub(crate) fn busy(&self) -> Option<Busy> {
        if self.is_ready.load(Ordering::Acquire) { None } else { self.status().busy() }
    }
}

/// It waits for its turn.
const WAITING: u8 = 0;
/// It is being done.
const TAKEN: u8 = 1;
/// Nobody waits for it any more.
const GIVEN_UP: u8 = 2;

/// A command that waits for its turn.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) command: Command,
    pub(crate) reply: Reply,
    /// Since when it waits.
    pub(crate) since: Instant,
    /// Its rows were read ahead.
    pub(crate) is_read_for: bool,
}

#[cfg(test)]
impl Queued {
    /// A command whose sender is gone.
    pub(crate) fn of(command: Command, is_read_for: bool) -> Queued {
        let (answer, _) = oneshot::channel();
        let reply = Reply { answer, turn: Arc::new(AtomicU8::new(WAITING)) };
        let since = command.deadline;
        Queued { command, reply, since, is_read_for }
    }
}

/// To whoever waits for the answer.
#[derive(Debug)]
pub(crate) struct Reply {
    answer: oneshot::Sender<Answered>,
    turn: Arc<AtomicU8>,
}

impl Reply {
    /// It is this command's turn. Whether anybody still waits for it.
    pub(crate) fn take(&self) -> bool {
        !self.answer.is_closed() && self.turn(WAITING, TAKEN)
    }

    /// Whether anybody still waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.answer.is_closed() && self.turn.load(Ordering::Acquire) != GIVEN_UP
    }

    /// It has to wait on.
    pub(crate) fn put_back(&self) {
        self.turn(TAKEN, WAITING);
    }

    fn turn(&self, from: u8, to: u8) -> bool {
        self.turn.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Nothing of it is done.
    pub(crate) fn refuse(self, busy: &Busy) {
        if self.take() {
            self.answer(Err(Refused::Busy(busy.clone())));
        }
    }

    pub(crate) fn answer(self, answer: Answered) {
        // Whoever waited for it may have gone.
        let _ = self.answer.send(answer);
    }
}

/// Where the commands of a partition are sent.
#[derive(Clone, Debug)]
pub struct Commands {
    queue: mpsc::Sender<Queued>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) numbers: Monitor,
    pub(crate) log: Arc<Log>,
}

impl Commands {
    pub(crate) fn new(
        queue: mpsc::Sender<Queued>,
        shared: Arc<Shared>,
        numbers: Monitor,
        log: Arc<Log>,
    ) -> Commands {
        Commands { queue, shared, numbers, log }
    }

    /// Has a command done, and waits for its end, at most until its deadline.
    ///
    /// # Errors
    /// Why it was not done, or why that is not known.
    ///
    /// # Cancel safety
    /// A command whose future is dropped is done, or not.
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
        let queued = Queued { command, reply, since, is_read_for: false };
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
            Ok(Err(_)) => given_up(Busy::Stopping, "the partition ended before it was answered"),
            Err(_) => given_up(Busy::TimedOut, "it was begun, and not answered in time"),
        }
    }

    /// What the partition is doing.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Waits until it does commands.
    ///
    /// # Errors
    /// What it is doing instead, if it has ended, or the deadline comes.
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

    /// The offset of the first event in the log of the partition that is not known to be applied. What is told of the logs to others ends in front of it.
    ///
    /// # Errors
    /// Why the log was not read yet. Nothing of it may be told before that: what was acknowledged by another leader would be missing.
    pub fn applied(&self) -> Result<Offset, Busy> {
        match self.shared.applied.load(Ordering::Acquire) {
            0 => Err(self.shared.busy().unwrap_or(Busy::Recovering(None))),
            offset => Ok(Offset(offset)),
        }
    }

    /// How many commands wait.
    pub fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Whether this node leads still, by the clock: what was read may be told only then.
    pub fn may_answer(&self) -> bool {
        self.log.may_answer()
    }

    /// Which of its numbers are not stored yet: after a crash they are found in the log again.
    pub fn unflushed(&self) -> Unflushed {
        self.numbers.unflushed()
    }
}
