//! The groups of a partition: each is formed, written and answered, and then the next one begins.

use std::{collections::VecDeque, iter, mem, pin::pin, sync::Arc, time::Duration};

use base::with_causes;
use clock::Instant;
use eventlog::{Error, LeadershipLost, Obstacle, Offset, PreparedEvent, Violation, WriteOutcome};
use isequencer::{Monitor, Transaction};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::pace::GroupPace;
use crate::{
    Busy, Status,
    group::{CommandGroup, NodeRole, UnreadRows},
    outdated::OutdatedRecord,
    partition_context::{PartitionContext, is_lasting},
    queue::QueuedCommand,
    shared::PartitionShared,
    spans::{GroupFacts, GroupSpan},
    state::LogEnd,
};

/// How often a waiting task checks whether it can go on, and whether the leadership still lasts.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The status of the partition reports a write that takes longer than this time. If a part of a
/// group's write is sent again, the status shows the error of the last attempt.
const LONG_WRITE: Duration = Duration::from_secs(1);

/// The limits of a group: its commands, its bytes, and how long commands are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimits {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
    /// How long commands wait while the partition is full.
    pub(crate) queue_wait: Duration,
}

/// The step that follows a group.
#[derive(Clone, Copy, Debug)]
pub(super) enum NextStep {
    /// The next group can follow at once.
    Group,
    /// The group did nothing because the storage did not answer a read. The next step finds out
    /// whether the storage can read anything.
    CheckReads,
    /// The partition must recover.
    Recover,
}

/// The reason why the task ends.
pub(super) enum StopReason {
    /// The partition was asked to stop.
    Requested,
    LeadershipLost(LeadershipLost),
    /// It is not known whether an event was written.
    Unproved(String),
}

/// The groups of a partition, one after another: from the waiting commands to the answers.
pub(crate) struct GroupRunner {
    pub(crate) partition: PartitionContext,
    pub(crate) queue: mpsc::Receiver<QueuedCommand>,
    pub(crate) shared: Arc<PartitionShared>,
    pub(crate) limits: GroupLimits,
    pub(crate) name: String,
    /// The next commands, taken from the queue.
    pub(crate) waiting: VecDeque<QueuedCommand>,
    /// The violation that blocks the partition.
    pub(crate) violation: Option<Violation>,
    pub(crate) group: CommandGroup,
    pub(crate) pace: GroupPace,
}

/// Sets a final status when the task ends in any way. So the status never reports a partition at
/// work without a task.
impl Drop for GroupRunner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.set(Status::Failed("the task of the partition panicked".to_owned()));
        } else if !matches!(self.shared.status(), Status::LeadershipLost(_) | Status::Failed(_)) {
            self.shared.set(Status::Stopped);
        }
        self.shared.watchers.end();
    }
}

impl GroupRunner {
    /// Fails if this node no longer leads.
    pub(super) fn check_leadership(&self) -> Result<(), StopReason> {
        self.partition
            .log
            .fence()
            .lost()
            .map_or(Ok(()), |lost| Err(StopReason::LeadershipLost(lost)))
    }

    /// Whether a write may still land while the log is being read: a write of the last group or of
    /// the recovery. The recovery reports a violation only after all its other calls are settled,
    /// so a violation leaves no write open.
    pub(super) fn has_unsettled_writes(&self, monitor: &Monitor) -> bool {
        let error = monitor.last_error();
        self.partition.log.has_unsettled_writes() || error.is_some_and(|error| !is_lasting(&error))
    }

    /// Waits until this node no longer leads.
    pub(super) async fn until_leadership_lost(&self) -> LeadershipLost {
        loop {
            if let Some(lost) = self.partition.log.fence().lost() {
                return lost;
            }
            self.partition.clock.sleep(CHECK_INTERVAL).await;
        }
    }

    /// Notes that the log is known and applied up to this point.
    pub(super) fn set_log_end(&mut self, log_end: LogEnd) {
        self.partition.log_end = log_end;
        self.shared.set_applied(log_end.next);
    }

    pub(super) fn set(&mut self, status: Status) {
        let is_ready = status == Status::Ready;
        if self.shared.set(status.clone()) {
            match &status {
                Status::Violation(reason) => {
                    let help = "`vvm repair list` shows the row and its repair";
                    warn!(partition = self.name, reason, help, "partition takes no commands");
                }
                Status::Recovering(Some(reason)) | Status::Stalled(reason) => {
                    warn!(partition = self.name, reason, "partition takes no commands");
                }
                Status::Full(full) => {
                    warn!(partition = self.name, reason = %full, "partition takes no commands");
                }
                _ => debug!(partition = self.name, ?status, "partition status changed"),
            }
        }
        if !is_ready && let Some(busy) = self.shared.busy() {
            self.refuse_all(&busy);
        }
    }

    /// Refuses the waiting commands. They arrived before the new status was known.
    fn refuse_all(&mut self, busy: &Busy) {
        let queued = iter::from_fn(|| self.queue.try_recv().ok());
        for QueuedCommand { reply, .. } in self.waiting.drain(..).chain(queued) {
            reply.refuse(busy);
        }
        self.group.forget_rows();
        self.pace.forget();
    }

    pub(super) fn end(&mut self, status: Status) {
        self.shared.set(status);
        if let Some(busy) = self.shared.busy() {
            self.refuse_all(&busy);
        }
    }

    /// Notes the damaged and outdated rows that the commands of the group met.
    fn note_damage(&self, damaged: Vec<(Obstacle, String)>, outdated: Option<OutdatedRecord>) {
        for (obstacle, what) in damaged {
            self.shared.damage.note_obstacle(obstacle, &what);
        }
        if let Some(outdated) = outdated {
            self.shared.note_outdated(outdated, self.partition.log.partition());
        }
    }

    /// Forms a group of waiting commands, writes the group, and answers. Returns the next step.
    ///
    /// While the end of the log is not [fenced](eventlog::LogWriter::is_fenced), a group without
    /// events gets a fencing entry, even if no command waits.
    ///
    /// Invariant: the numbers of a group are flushed only if all its events are applied. A simpler
    /// version flushes the numbers when the events are in the PLog. Leader A's sequencer stores the
    /// offset after event 5, and A crashes before the records of event 5 are written; leader B
    /// replays from that offset. So the records are never written.
    pub(super) async fn run_group(
        &mut self,
        mut transaction: Transaction<'_>,
    ) -> Result<NextStep, StopReason> {
        // 1. The handlers run, and make the events of the group.
        let start = self.partition.clock.now();
        self.form(&mut transaction, start).await;
        self.group.fence(&self.partition, &mut transaction);
        let UnreadRows { ends_group, unexpected_event, damaged, outdated } =
            mem::take(&mut self.group.unread);
        self.note_damage(damaged, outdated);
        let formed = self.partition.clock.now();
        self.shared.meters.ran(formed - start);
        // 2. The events and what follows from them are written.
        let span = GroupSpan::of(self.group.spans(), start, &self.name, &self.partition.clock);
        let outcome = self.write(formed).await;
        let now = self.partition.clock.now();
        span.end(&self.facts(formed - start, now - formed, &outcome));
        if !self.group.events.is_empty() {
            self.pace.note_write(now - formed);
            self.shared.note_group(now - start);
        }
        // The check comes before the answers, because clients send their next commands after the
        // answers.
        if self.waiting.is_empty() && self.queue.is_empty() {
            self.pace.forget();
        }
        // 3. The numbers are stored with the next flush, or all that is not applied is read again.
        let is_done =
            outcome.commit_error.is_none() && outcome.applied.is_ok() && unexpected_event.is_none();
        if is_done {
            transaction.flush();
        } else {
            transaction.actualize();
        }
        // 4. Readers see what was applied.
        if outcome.committed > 0 && outcome.applied.is_ok() {
            // The answers follow after this line. A client that reads the log right after its
            // answer finds its event, even if later events of the group failed.
            let next = Offset(self.partition.log_end.next.0 + outcome.committed as u64);
            self.set_log_end(LogEnd {
                next,
                epoch: self.partition.log.fence().epoch(),
                ..self.partition.log_end
            });
            let applied = &self.group.events[..outcome.committed];
            let places = applied.iter().filter_map(PreparedEvent::place);
            self.shared.watchers.applied(places.map(|place| place.ws));
        }
        if is_done && self.shared.busy().is_some() {
            self.set(Status::Ready);
        }
        if !is_done {
            // The status changes before the answers. A client that sends a command right after its
            // answer is told to wait.
            self.set(Status::Recovering(None));
            self.partition.search_to = unexpected_event.unwrap_or(Offset(0));
        }
        // 5. The clients get their answers.
        let PartitionContext { application, kinds, .. } = &mut self.partition;
        self.group.update_rows(application.declarations(), kinds, &self.waiting, is_done);
        let log = &self.partition.log;
        let role = match log.fence().may_answer() {
            true => NodeRole::Leader,
            false => NodeRole::FormerLeader { events_are_final: log.events_are_final() },
        };
        let is_unread = ends_group && self.group.events.is_empty();
        self.group.answer(&outcome, role);
        if is_done {
            return Ok(if is_unread { NextStep::CheckReads } else { NextStep::Group });
        }
        // 6. A failure decides how the partition goes on.
        let WriteOutcome { applied, commit_error, .. } = outcome;
        for error in [applied.err(), commit_error].into_iter().flatten() {
            warn!(partition = self.name, error = with_causes(&error), "group write failed");
            match error {
                Error::Violation(violation) => self.violation = Some(*violation),
                Error::LeadershipLost(lost) => return Err(StopReason::LeadershipLost(lost)),
                error @ Error::Unknown(_) => return Err(StopReason::Unproved(with_causes(&error))),
                Error::Storage(_) | Error::UnexpectedEvent(_) | Error::DamagedRow(_) => {}
            }
        }
        self.shared.meters.recovers();
        Ok(NextStep::Recover)
    }

    /// The facts of the group whose commands ran and whose events were written in these times.
    fn facts(&self, run: Duration, write: Duration, outcome: &WriteOutcome) -> GroupFacts {
        GroupFacts {
            commands: self.group.waiting(),
            events: self.group.events.len(),
            bytes: self.group.bytes,
            run,
            log: outcome.log_time,
            apply: write.saturating_sub(outcome.log_time),
        }
    }

    /// Writes the events of the group, which began to be written at `start`.
    async fn write(&mut self, start: Instant) -> WriteOutcome {
        if self.group.events.is_empty() {
            return WriteOutcome {
                committed: 0,
                applied: Ok(()),
                commit_error: None,
                log_time: Duration::ZERO,
            };
        }
        let (log, clock) = (Arc::clone(&self.partition.log), self.partition.clock.clone());
        let events = mem::take(&mut self.group.events);
        let outcome = {
            let mut write = pin!(log.write(&events));
            loop {
                tokio::select! {
                    biased;
                    outcome = write.as_mut() => break outcome,
                    () = clock.sleep(LONG_WRITE) => {}
                }
                match log.last_error() {
                    Some(error) => {
                        let what = format!("retrying a write: {error}");
                        self.set(Status::Stalled(what));
                    }
                    None => self.set(Status::Ready),
                }
            }
        };
        self.group.events = events;
        let rest = (self.partition.clock.now() - start).saturating_sub(outcome.log_time);
        self.shared.meters.written(
            self.group.events.len(),
            self.group.bytes,
            outcome.log_time,
            rest,
        );
        outcome
    }
}
