//! The handle of a partition for the senders of its commands.

use std::{sync::Arc, time::Duration};

use clock::Instant;
use eventlog::{LogWriter, Obstacle, Offset};
use isequencer::{Monitor, Unflushed};
use tokio::sync::{
    mpsc::{self, Permit, PermitIterator, error::TrySendError},
    oneshot,
};

use crate::{
    Busy, Command, FullQueue, Refused, Status,
    command::Answered,
    queue::{QueuedCommand, Reply, Turn},
    shared::PartitionShared,
    spans::CommandSpan,
};

/// The handle that takes the commands of a partition.
#[derive(Clone, Debug)]
pub struct Commands {
    pub(crate) queue: mpsc::Sender<QueuedCommand>,
    /// How long a command waits for a place in a full queue.
    pub(crate) queue_wait: Duration,
    pub(crate) shared: Arc<PartitionShared>,
    pub(crate) numbers: Monitor,
    pub(crate) log: Arc<LogWriter>,
}

/// A command in the queue, as its sender sees it.
struct SentCommand {
    turn: Turn,
    answered: oneshot::Receiver<Answered>,
    deadline: Instant,
}

impl Commands {
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

    /// Runs commands in their order, and waits for all their answers. Each command is done or
    /// refused by itself: the commands after a refused one still run. The answers have the order of
    /// the commands.
    ///
    /// The commands take their places in the queue together, so that they become one group if
    /// nothing else limits it. A batch with more commands than the queue has places takes its
    /// places in parts. Then commands of other senders may run between the parts.
    ///
    /// # Cancel safety
    /// If the future is dropped, the partition does no command that it has not begun. So some of
    /// the first commands are done, and the others are not.
    pub async fn run_batch(&self, mut commands: Vec<Command>) -> Vec<Answered> {
        let mut sent = Vec::with_capacity(commands.len());
        while !commands.is_empty() {
            let rest = commands.split_off(commands.len().min(self.queue.max_capacity()));
            let since = self.shared.clock.now();
            let earliest = commands.iter().map(|command| command.deadline).min();
            match self.places(commands.len(), earliest.unwrap_or(since), since).await {
                Ok(places) => {
                    let placed = places.zip(commands);
                    sent.extend(placed.map(|(place, one)| Ok(enqueue(place, one, since))));
                }
                Err(busy) => sent.extend(commands.iter().map(|_| Err(busy.clone()))),
            }
            commands = rest;
        }
        let mut answers = Vec::with_capacity(sent.len());
        // If the future is dropped, the last command is given up first. In the other order the
        // partition could skip a command and do the next one.
        sent.reverse();
        while let Some(last) = sent.last_mut() {
            let answered = match last {
                Ok(sent) => self.answer(sent).await,
                Err(busy) => Err(Refused::Busy(busy.clone())),
            };
            self.shared.meters.answered(&answered);
            answers.push(answered);
            sent.pop();
        }
        answers
    }

    async fn send(&self, command: Command) -> Answered {
        let since = self.shared.clock.now();
        let places = self.places(1, command.deadline, since).await;
        // The sender reserved exactly one place.
        let place = places.and_then(|mut places| places.next().ok_or(Busy::Stopping));
        let mut sent = enqueue(place.map_err(Refused::Busy)?, command, since);
        self.answer(&mut sent).await
    }

    /// Takes places in the queue. If there are too few, the sender waits, but not for long: it can
    /// do something else.
    async fn places(
        &self,
        count: usize,
        deadline: Instant,
        since: Instant,
    ) -> Result<PermitIterator<'_, QueuedCommand>, Busy> {
        if let Some(busy) = self.shared.busy() {
            return Err(busy);
        }
        let places = match self.queue.try_reserve_many(count) {
            Err(TrySendError::Full(())) => {
                let until = deadline.min(since + self.queue_wait);
                match self.shared.clock.timeout_at(until, self.queue.reserve_many(count)).await {
                    Ok(places) => places.ok(),
                    Err(_) => return Err(self.shared.queue_full()),
                }
            }
            places => places.ok(),
        };
        places.ok_or_else(|| self.shared.busy().unwrap_or(Busy::Stopping))
    }

    async fn answer(&self, sent: &mut SentCommand) -> Answered {
        let SentCommand { turn, answered, deadline } = sent;
        let given_up = |busy, unknown: &str| {
            let is_never_done = turn.give_up();
            Err(if is_never_done {
                Refused::Busy(busy)
            } else {
                Refused::Unknown(unknown.to_owned())
            })
        };
        match self.shared.clock.timeout_at(*deadline, answered).await {
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
        match self.shared.status() {
            Status::Ready if self.queue.capacity() == 0 => Status::Full(FullQueue::Commands),
            status => status,
        }
    }

    /// The monitor of the sequencer of the partition. It tells the state of the sequencer, and
    /// draws nothing: a second owner of a sequencer could give a number twice.
    pub fn sequencer(&self) -> &Monitor {
        &self.numbers
    }

    /// The row that keeps the partition from working, while its status is
    /// [`Status::Violation`] and the cause is a row of the application.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.shared.obstacle()
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
                // Such a partition runs commands: there is only no place for more of them now.
                Status::Ready | Status::Full(FullQueue::Commands) => return Ok(()),
                Status::LeadershipLost(_) | Status::Failed(_) | Status::Stopped => {
                    return Err(status);
                }
                _ if self.shared.clock.now() >= deadline => return Err(status),
                Status::Recovering(_)
                | Status::Stalled(_)
                | Status::Full(FullQueue::Numbers)
                | Status::Violation(_) => {
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
        self.shared.applied()
    }

    /// The number of commands that wait.
    pub fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Whether this node still leads, by the clock. Only then may a reader get the rows that it
    /// read.
    pub fn may_answer(&self) -> bool {
        self.log.fence().may_answer()
    }

    /// The numbers that are not stored yet. After a crash these numbers are found in the log again.
    pub fn unflushed(&self) -> Unflushed {
        self.numbers.unflushed()
    }
}

/// Puts a command into its place in the queue. It began to wait for the place at `since`.
fn enqueue(place: Permit<'_, QueuedCommand>, command: Command, since: Instant) -> SentCommand {
    let deadline = command.deadline;
    let (reply, turn, answered) = Reply::new(CommandSpan::begin(&command.span, since));
    let command = Box::new(command);
    place.send(QueuedCommand { command, reply, since, was_read_ahead: false });
    SentCommand { turn, answered, deadline }
}
