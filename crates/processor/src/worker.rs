//! The task of a partition: it forms groups, writes them, and answers their commands.
//!
//! Invariant: the task ends as [`PartitionEnd::Stopped`] only if every write was answered. If the
//! task is dropped during a write, for example at a deadline, the next leader must find out which
//! events were written.

mod form;
mod pace;
mod runner;
mod waits;

use std::time::Duration;

use base::with_causes;
use clock::Instant;
use eventlog::{Error, LeadershipLost, Obstacle, Tail};
use isequencer::{Sequencer, StorageError};
use tokio::sync::watch;
use tracing::info;

pub(crate) use pace::GroupPace;
use runner::{CHECK_INTERVAL, NextStep, StopReason};
pub(crate) use runner::{GroupLimits, GroupRunner};

use crate::{Status, partition_context::is_lasting, state::LogEnd};

/// The interval of the leadership check while there is no command. A command that arrives causes a
/// check at once. After a takeover the first of these checks also fences the end of the log, if no
/// command did.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// One part in `ANSWER_SHARE` of the time to stop is reserved for the answer to the caller. The
/// rest is for storing numbers.
const ANSWER_SHARE: u32 = 8;

/// How a partition ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionEnd {
    /// The partition was stopped, and every write was answered.
    Stopped,
    /// The partition did not end in time, and may still be at work.
    Late,
    /// The partition was stopped without a proof. A write may still be under way, or numbers are
    /// not stored. The next leader finds these numbers in the log.
    Unproved(String),
    /// This node no longer leads.
    LeadershipLost(String),
}

pub(crate) struct Worker {
    pub(crate) sequencer: Sequencer,
    pub(crate) groups: GroupRunner,
    /// The deadline of the stop; `None` while the partition works.
    pub(crate) stop: watch::Receiver<Option<Instant>>,
}

impl Worker {
    pub(crate) async fn run(mut self) -> PartitionEnd {
        let stop = loop {
            if let Err(stop) = self.until_ready().await {
                break stop;
            }
            if let Err(stop) = self.run_groups().await {
                break stop;
            }
        };
        let Worker { sequencer, mut groups, stop: asked } = self;
        // The partition may be asked to stop because the leadership is lost. Then it ends as
        // `LeadershipLost`.
        let stop = match (stop, groups.check_leadership()) {
            (StopReason::Requested, Err(lost)) => lost,
            (stop, _) => stop,
        };
        let ended = match stop {
            StopReason::Requested => {
                groups.end(Status::Stopped);
                let asked = asked.borrow().unwrap_or(Instant::FAR_FUTURE);
                // The caller must get the reason before its deadline. Otherwise the caller knows
                // only that the stop is late.
                let deadline = asked - (asked - groups.partition.clock.now()) / ANSWER_SHARE;
                let monitor = sequencer.monitor();
                let is_recovering = monitor.busy() == Some(isequencer::SequencerBusy::Actualizing);
                tokio::select! {
                    biased;
                    closed = sequencer.close(deadline) => match closed {
                        // The recovery ended between two calls. An earlier call that failed may
                        // have left a write that still lands.
                        Ok(()) if is_recovering && groups.has_unsettled_writes(&monitor) => {
                            PartitionEnd::Unproved("the partition was recovering".to_owned())
                        }
                        Ok(()) => PartitionEnd::Stopped,
                        Err(not_flushed) => PartitionEnd::Unproved(not_flushed.to_string()),
                    },
                    // After the leadership is lost nothing may be stored, so the task does not wait
                    // for its numbers.
                    LeadershipLost(why) = groups.until_leadership_lost() => {
                        PartitionEnd::LeadershipLost(why)
                    }
                }
            }
            StopReason::LeadershipLost(LeadershipLost(why)) => {
                groups.end(Status::LeadershipLost(why.clone()));
                PartitionEnd::LeadershipLost(why)
            }
            StopReason::Unproved(why) => {
                groups.end(Status::Failed(why.clone()));
                PartitionEnd::Unproved(why)
            }
        };
        info!(partition = groups.name, ?ended, "partition ended");
        ended
    }

    /// Waits until the log is read and no violation is left. Commands are refused meanwhile. A
    /// violation of a write is checked here, time after time. One of a recovery is found again by
    /// the keeper, which repeats its read.
    async fn until_ready(&mut self) -> Result<(), StopReason> {
        loop {
            self.groups.check_leadership()?;
            if self.stop.borrow().is_some() {
                return Err(StopReason::Requested);
            }
            if let Some(violation) = &self.groups.violation {
                // If the check fails, the violation stays, and the next round checks again.
                if matches!(self.groups.partition.log.is_unchanged(violation).await, Ok(false)) {
                    self.groups.violation = None;
                }
            }
            let monitor = self.sequencer.monitor();
            let error = monitor.last_error();
            self.groups.shared.set_obstacle(match &self.groups.violation {
                Some(violation) => Error::from(Box::new(violation.clone())).obstacle(),
                None => error.as_deref().and_then(obstacle_of),
            });
            let status = match (&self.groups.violation, monitor.busy()) {
                (Some(violation), _) => Status::Violation(violation.to_string()),
                (None, None | Some(isequencer::SequencerBusy::Unflushed)) => break,
                (None, Some(isequencer::SequencerBusy::Closed)) => {
                    return Err(StopReason::Unproved("the sequencer has ended".to_owned()));
                }
                (None, Some(isequencer::SequencerBusy::Actualizing)) => match error {
                    Some(error) => status_of(&error),
                    None => Status::Recovering(None),
                },
            };
            self.groups.set(status);
            let is_violated = self.groups.violation.is_some();
            tokio::select! {
                _ = self.sequencer.ready(), if !is_violated => {}
                _ = self.stop.changed() => {}
                () = self.groups.partition.clock.sleep(CHECK_INTERVAL) => {}
            }
        }
        let Tail { next, epoch, time } = self.groups.partition.log.tail();
        self.groups.partition.time.advance(time);
        let searched_to = self.groups.partition.search_to;
        self.groups.set_log_end(LogEnd { next, epoch, searched_to });
        self.groups.shared.watchers.applied_some();
        self.groups.shared.set_obstacle(None);
        self.groups.set(Status::Ready);
        Ok(())
    }

    /// Writes one group after another, until the partition must recover.
    async fn run_groups(&mut self) -> Result<(), StopReason> {
        loop {
            if self.groups.waiting.is_empty() {
                tokio::select! {
                    biased;
                    queued = self.groups.queue.recv() => match queued {
                        Some(queued) => self.groups.waiting.push_back(queued),
                        None => return Err(StopReason::Requested),
                    },
                    _ = self.stop.changed() => return Err(StopReason::Requested),
                    () = self.groups.partition.clock.sleep(IDLE_CHECK_INTERVAL) => {
                        self.groups.check_leadership()?;
                        if !self.until_restored().await? || !self.wait_for_flush().await? {
                            return Ok(());
                        }
                        // Without commands, the group fences the end of the log. A simpler version
                        // does nothing. A late event of the former leader would stay invisible
                        // until the next command, which may come much later.
                        if self.groups.partition.is_fenced() {
                            continue;
                        }
                    }
                }
            }
            self.groups.check_leadership()?;
            if self.stop.borrow().is_some() {
                return Err(StopReason::Requested);
            }
            if !self.until_restored().await? {
                return Ok(());
            }
            let Ok(transaction) = self.sequencer.start() else {
                if !self.wait_for_flush().await? {
                    return Ok(());
                }
                continue;
            };
            match self.groups.run_group(transaction).await? {
                NextStep::Group => {}
                NextStep::CheckReads => {
                    if !self.until_readable().await? {
                        return Ok(());
                    }
                }
                NextStep::Recover => return Ok(()),
            }
        }
    }
}

/// The row that keeps the log from being read.
fn obstacle_of(error: &StorageError) -> Option<Obstacle> {
    error.0.downcast_ref::<Error>()?.obstacle()
}

/// The status of a partition, if its log cannot be read.
fn status_of(error: &StorageError) -> Status {
    if is_lasting(error) {
        Status::Violation(with_causes(&*error.0))
    } else {
        Status::Recovering(Some(with_causes(error)))
    }
}
