//! The task of a partition: it forms groups, writes them, and answers their commands.
//!
//! Invariant: the task proves that it writes nothing any more only if every write was answered. If
//! the task is dropped during a write, for example at a deadline, the next leader must find out
//! which events were written.

mod form;

use std::{collections::VecDeque, iter, mem, pin::pin, sync::Arc, time::Duration};

use clock::Instant;
use eventlog::{Error, Fate, LeadLost, Offset, Tail, Violation};
pub(crate) use form::GroupPace;
use isequencer::{Monitor, Sequencer, StorageError, Transaction};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::{
    Busy, Status,
    group::{CommandGroup, NodeRole},
    in_full,
    partition_context::PartitionContext,
    queue::{PartitionShared, QueuedCommand},
    state::LogEnd,
};

/// The interval at which the task checks whether an obstacle is gone, and whether the leadership
/// still lasts.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The interval of the leadership check while there is no command. A command that arrives causes a
/// check at once.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which the status of the partition reports a write that is not done. For the write
/// of a group, the status reports the error because of which a part of the write is sent again.
const LONG_WRITE: Duration = Duration::from_secs(1);

/// One part in `ANSWER_SHARE` of the time to stop is reserved for the answer to the caller. The
/// rest is for storing numbers.
const ANSWER_SHARE: u32 = 8;

/// The limits of a group: its commands, its bytes, and the time during which commands are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimits {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

/// The way in which a partition ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionEnd {
    /// The partition was stopped, and every write was answered.
    Stopped,
    /// The partition did not end in time, and may still be at work.
    Late,
    /// The partition was stopped without a proof. A write may still be under way, or numbers are
    /// not stored, which the next leader finds in the log.
    Unproved(String),
    /// This node no longer leads.
    LeadLost(String),
}

pub(crate) struct Worker {
    pub(crate) sequencer: Sequencer,
    pub(crate) groups: GroupRunner,
    /// The deadline of the stop; `None` while the partition works.
    pub(crate) stop: watch::Receiver<Option<Instant>>,
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
    /// The violation that must be put right before the partition goes on.
    pub(crate) violation: Option<Violation>,
    pub(crate) group: CommandGroup,
    pub(crate) pace: GroupPace,
}

/// The reason why the task ends.
enum StopReason {
    /// The partition was asked to stop.
    Requested,
    LeadLost(LeadLost),
    /// It is not known whether an event was written.
    Unproved(String),
}

impl Worker {
    pub(crate) async fn run(mut self) -> PartitionEnd {
        let stop = loop {
            if let Err(stop) = self.until_ready().await {
                break stop;
            }
            if let Err(stop) = self.until_trouble().await {
                break stop;
            }
        };
        let Worker { sequencer, mut groups, stop: asked } = self;
        // The partition may be asked to stop because the leadership is lost. Then it ends as
        // `LeadLost`.
        let stop = match (stop, groups.check_lead()) {
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
                let is_recovering = monitor.busy() == Some(isequencer::Busy::Actualizing);
                tokio::select! {
                    biased;
                    closed = sequencer.close(deadline) => match closed {
                        // The recovery ended between two calls. An earlier call that failed may
                        // have left a write that still lands.
                        Ok(()) if is_recovering && groups.is_open(&monitor) => {
                            PartitionEnd::Unproved("the partition was recovering".to_owned())
                        }
                        Ok(()) => PartitionEnd::Stopped,
                        Err(not_flushed) => PartitionEnd::Unproved(not_flushed.to_string()),
                    },
                    // After the leadership is lost nothing may be stored, so the task does not wait
                    // for its numbers.
                    LeadLost(why) = groups.until_lead_lost() => PartitionEnd::LeadLost(why),
                }
            }
            StopReason::LeadLost(LeadLost(why)) => {
                groups.end(Status::LeadLost(why.clone()));
                PartitionEnd::LeadLost(why)
            }
            StopReason::Unproved(why) => {
                groups.end(Status::Failed(why.clone()));
                PartitionEnd::Unproved(why)
            }
        };
        info!(partition = groups.name, ?ended, "partition ended");
        ended
    }

    /// Waits until the log is read and no obstacle is left. Commands are refused meanwhile.
    async fn until_ready(&mut self) -> Result<(), StopReason> {
        loop {
            self.groups.check_lead()?;
            if self.stop.borrow().is_some() {
                return Err(StopReason::Requested);
            }
            if let Some(violation) = &self.groups.violation {
                // If the check fails, the violation stays, and the next round checks again.
                if matches!(self.groups.partition.log.is_still(violation).await, Ok(false)) {
                    self.groups.violation = None;
                }
            }
            let monitor = self.sequencer.monitor();
            let trouble = monitor.trouble();
            let status = match (&self.groups.violation, monitor.busy()) {
                (Some(violation), _) => Status::Violation(violation.to_string()),
                (None, None | Some(isequencer::Busy::Unflushed)) => break,
                (None, Some(isequencer::Busy::Closed)) => {
                    return Err(StopReason::Unproved("the sequencer has ended".to_owned()));
                }
                (None, Some(isequencer::Busy::Actualizing)) => match trouble {
                    Some(trouble) => status_of(&trouble),
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
        self.groups.partition.time = self.groups.partition.time.max(time);
        let searched_to = self.groups.partition.searched_to;
        self.groups.set_log_end(LogEnd { next, epoch, searched_to });
        self.groups.set(Status::Ready);
        Ok(())
    }

    /// Writes one group after another, until the partition must recover.
    async fn until_trouble(&mut self) -> Result<(), StopReason> {
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
                        self.groups.check_lead()?;
                        if !self.until_admitted().await? {
                            return Ok(());
                        }
                        continue;
                    }
                }
            }
            self.groups.check_lead()?;
            if self.stop.borrow().is_some() {
                return Err(StopReason::Requested);
            }
            let Ok(transaction) = self.sequencer.start() else {
                if !self.until_admitted().await? {
                    return Ok(());
                }
                continue;
            };
            if !self.groups.group(transaction).await? {
                return Ok(());
            }
        }
    }

    /// Waits while too many numbers are not stored. Returns whether a group can begin; if not, the
    /// partition is not ready.
    ///
    /// Commands wait meanwhile. If the storage does not take the numbers, commands are refused with
    /// the reason. Otherwise no command could be done in time, and no sender would learn why.
    async fn until_admitted(&mut self) -> Result<bool, StopReason> {
        let start = self.groups.partition.clock.now();
        let mut is_stalled = false;
        loop {
            let monitor = self.sequencer.monitor();
            match monitor.busy() {
                Some(isequencer::Busy::Unflushed) => {}
                None => {
                    if is_stalled {
                        self.groups.set(Status::Ready);
                    }
                    return Ok(true);
                }
                Some(_) => return Ok(false),
            }
            self.groups.check_lead()?;
            let trouble = monitor.trouble();
            if trouble.is_some() || self.groups.partition.clock.now() - start >= LONG_WRITE {
                let why =
                    trouble.map_or_else(|| "the storage is slow".to_owned(), |why| in_full(&*why));
                self.groups.set(Status::Stalled(format!("numbers cannot be stored: {why}")));
                is_stalled = true;
            }
            tokio::select! {
                _ = self.sequencer.ready() => {}
                _ = self.stop.changed() => return Err(StopReason::Requested),
                () = self.groups.partition.clock.sleep(CHECK_INTERVAL) => {}
            }
        }
    }
}

/// Sets a final status when the task ends in any way. So the status never reports a partition at
/// work without a task.
impl Drop for GroupRunner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.set(Status::Failed("the task of the partition panicked".to_owned()));
        } else if !matches!(self.shared.status(), Status::LeadLost(_) | Status::Failed(_)) {
            self.shared.set(Status::Stopped);
        }
    }
}

impl GroupRunner {
    /// Fails if this node no longer leads.
    fn check_lead(&self) -> Result<(), StopReason> {
        self.partition.log.lost().map_or(Ok(()), |lost| Err(StopReason::LeadLost(lost)))
    }

    /// Whether a write may still land while the log is being read: a write of the last group or of
    /// the recovery. The recovery reports a row that stands in the way only after all its other
    /// calls are settled. So such an error leaves no write open.
    fn is_open(&self, monitor: &Monitor) -> bool {
        let trouble = monitor.trouble();
        self.partition.log.is_open() || trouble.is_some_and(|trouble| !is_lasting(&trouble))
    }

    /// Waits until this node no longer leads.
    async fn until_lead_lost(&self) -> LeadLost {
        loop {
            if let Some(lost) = self.partition.log.lost() {
                return lost;
            }
            self.partition.clock.sleep(CHECK_INTERVAL).await;
        }
    }

    /// Notes that the log is known and applied up to this point.
    fn set_log_end(&mut self, log_end: LogEnd) {
        self.partition.log_end = log_end;
        self.shared.set_applied(log_end.next);
    }

    fn set(&mut self, status: Status) {
        let is_ready = status == Status::Ready;
        if self.shared.set(status.clone()) {
            match &status {
                Status::Violation(what)
                | Status::Recovering(Some(what))
                | Status::Stalled(what) => {
                    warn!(partition = self.name, what, "partition takes no commands");
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
        self.group.forget_all_rows();
        self.pace.forget();
    }

    fn end(&mut self, status: Status) {
        self.shared.set(status);
        if let Some(busy) = self.shared.busy() {
            self.refuse_all(&busy);
        }
    }

    /// Forms a group of waiting commands, writes the group, and answers. Returns whether the next
    /// group can follow at once.
    async fn group(&mut self, mut transaction: Transaction<'_>) -> Result<bool, StopReason> {
        let start = self.partition.clock.now();
        self.form(&mut transaction).await;
        self.shared.meters.ran(self.partition.clock.now() - start);
        let formed = self.partition.clock.now();
        let fate = self.write().await;
        if !self.group.events.is_empty() {
            self.pace.note_write(self.partition.clock.now() - formed);
        }
        // The check comes before the answers, because clients send their next commands after the
        // answers.
        if self.waiting.is_empty() && self.queue.is_empty() {
            self.pace.forget();
        }
        let overtaken = self.group.overtaken;
        let is_done = fate.others.is_none() && fate.applied.is_ok() && overtaken.is_none();
        if is_done {
            transaction.flush();
        } else {
            transaction.actualize();
        }
        if fate.committed > 0 && fate.applied.is_ok() {
            // The answers follow after this line. A client that reads the log right after its
            // answer finds its event, even if later events of the group failed.
            let next = Offset(self.partition.log_end.next.0 + fate.committed as u64);
            self.set_log_end(LogEnd {
                next,
                epoch: self.partition.log.epoch(),
                ..self.partition.log_end
            });
        }
        if is_done && self.shared.busy().is_some() {
            self.set(Status::Ready);
        }
        if !is_done {
            // The status changes before the answers. A client that sends a command right after its
            // answer is told to wait.
            self.set(Status::Recovering(None));
            self.partition.searched_to = overtaken.unwrap_or(Offset(0));
        }
        let PartitionContext { application, kinds, .. } = &mut self.partition;
        self.group.forget_rows(application.schema(), kinds, &self.waiting);
        let log = &self.partition.log;
        let role = match log.may_answer() {
            true => NodeRole::Leader,
            false => NodeRole::FormerLeader { is_final: log.is_final() },
        };
        self.group.answer(&fate, role);
        if is_done {
            return Ok(true);
        }
        let Fate { applied, others, .. } = fate;
        for error in [applied.err(), others].into_iter().flatten() {
            warn!(partition = self.name, error = in_full(&error), "group not written as expected");
            match error {
                Error::Violation(violation) => self.violation = Some(*violation),
                Error::LeadLost(lost) => return Err(StopReason::LeadLost(lost)),
                error @ Error::Unknown(_) => return Err(StopReason::Unproved(in_full(&error))),
                Error::Storage(_) | Error::Overtaken(_) | Error::Broken(_) => {}
            }
        }
        self.shared.meters.recovers();
        Ok(false)
    }

    async fn write(&mut self) -> Fate {
        if self.group.events.is_empty() {
            return Fate { committed: 0, applied: Ok(()), others: None, to_log: Duration::ZERO };
        }
        let (log, clock) = (Arc::clone(&self.partition.log), self.partition.clock.clone());
        let start = clock.now();
        let events = mem::take(&mut self.group.events);
        let fate = {
            let mut write = pin!(log.write(&events));
            loop {
                tokio::select! {
                    biased;
                    fate = write.as_mut() => break fate,
                    () = clock.sleep(LONG_WRITE) => {}
                }
                match log.trouble() {
                    Some(trouble) => {
                        let what = format!("a write is sent again and again: {trouble}");
                        self.set(Status::Stalled(what));
                    }
                    None => self.set(Status::Ready),
                }
            }
        };
        self.group.events = events;
        let rest = (self.partition.clock.now() - start).saturating_sub(fate.to_log);
        self.shared.meters.written(self.group.events.len(), self.group.bytes, fate.to_log, rest);
        fate
    }
}

/// The status of a partition, if its log cannot be read.
fn status_of(trouble: &StorageError) -> Status {
    if is_lasting(trouble) {
        Status::Violation(in_full(&*trouble.0))
    } else {
        Status::Recovering(Some(in_full(trouble)))
    }
}

fn is_lasting(trouble: &StorageError) -> bool {
    trouble.0.downcast_ref::<Error>().is_some_and(Error::is_lasting)
}
