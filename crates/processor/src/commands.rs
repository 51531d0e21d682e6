//! The handle of a partition for the senders of its commands.

use std::{sync::Arc, time::Duration};

use clock::Instant;
use eventlog::{Log, Obstacle, Offset};
use isequencer::{Monitor, Unflushed};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::{
    Busy, Command, FullQueue, Refused, Status,
    queue::{Answered, QueuedCommand, Reply},
    status::PartitionShared,
};

/// The handle to which the commands of a partition are sent.
#[derive(Clone, Debug)]
pub struct Commands {
    queue: mpsc::Sender<QueuedCommand>,
    /// The time for which a command waits for a place in a full queue.
    queue_wait: Duration,
    pub(crate) shared: Arc<PartitionShared>,
    pub(crate) numbers: Monitor,
    pub(crate) log: Arc<Log>,
}

impl Commands {
    pub(crate) fn new(
        queue: mpsc::Sender<QueuedCommand>,
        queue_wait: Duration,
        shared: Arc<PartitionShared>,
        numbers: Monitor,
        log: Arc<Log>,
    ) -> Commands {
        Commands { queue, queue_wait, shared, numbers, log }
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
        let (reply, turn, answered) = Reply::new();
        let since = self.shared.clock.now();
        let queued = QueuedCommand { command, reply, since, was_read_ahead: false };
        // A command for which there is no place waits for a place, but not for long: its sender can
        // do something else.
        let place = match self.queue.try_reserve() {
            Err(TrySendError::Full(())) => {
                let until = deadline.min(since + self.queue_wait);
                match self.shared.clock.timeout_at(until, self.queue.reserve()).await {
                    Ok(place) => place.ok(),
                    Err(_) => return Err(Refused::Busy(self.shared.queue_full())),
                }
            }
            place => place.ok(),
        };
        let Some(place) = place else {
            return Err(Refused::Busy(self.shared.busy().unwrap_or(Busy::Stopping)));
        };
        place.send(queued);
        let given_up = |busy, unknown: &str| {
            let is_never_done = turn.give_up();
            Err(if is_never_done {
                Refused::Busy(busy)
            } else {
                Refused::Unknown(unknown.to_owned())
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
        match self.shared.status() {
            Status::Ready if self.queue.capacity() == 0 => Status::Full(FullQueue::Commands),
            status => status,
        }
    }

    /// The monitor of the sequencer of the partition. It tells the state of the sequencer, and draws
    /// nothing: a second owner of a sequencer could give a number twice.
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
