//! A node of the simulation: an engine, a lease, and tasks of partitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use ielections::Incarnation;
use ownership::{
    Owner, OwnerEpoch, OwnershipAction, OwnershipAnswer, OwnershipCall, OwnershipEngine,
    PartitionId,
};

/// How long the lease lasts after it was written, in milliseconds.
pub(crate) const LEASE: u64 = 4_000;
/// How long the node sends writes after it has sent the renewal.
pub(crate) const WORK: u64 = 3_000;
/// How often the node sends a renewal.
pub(crate) const RENEW_EVERY: u64 = 1_000;
/// The most rows of one change.
const ROWS_AT_ONCE: usize = 3;

/// The instant of a time in milliseconds.
pub(crate) fn at(millis: u64) -> Instant {
    clock::ManualClock::new(0).clock().now() + Duration::from_millis(millis)
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) seat: usize,
    /// The node runs from this time on.
    pub(crate) up_at: u64,
    /// The process stands still until this time.
    pub(crate) frozen_until: u64,
    pub(crate) process: Option<Process>,
}

/// A process that holds a lease.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) me: Owner,
    pub(crate) engine: OwnershipEngine,
    pub(crate) valid_until: u64,
    pub(crate) renew_at: u64,
    pub(crate) work: Work,
    pub(crate) tasks: BTreeMap<PartitionId, Task>,
    /// The leases while the rows were read.
    pub(crate) leases_before: Option<BTreeSet<Incarnation>>,
}

/// What the engine does.
#[derive(Debug)]
pub(crate) enum Work {
    Wait,
    /// A call: the store does it at one time, and its answer comes at another. A call whose answer
    /// is lost ends at that time, too.
    Call {
        call: OwnershipCall,
        sent: u64,
        done_at: u64,
        answer_at: u64,
        answer: Option<OwnershipAnswer>,
        is_lost: bool,
    },
}

/// The task of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) epoch: OwnerEpoch,
    /// The task stops, and has stopped at this time.
    pub(crate) stops_at: Option<u64>,
    /// The host has reported the end.
    pub(crate) is_reported: bool,
}

impl Node {
    pub(crate) fn is_frozen(&self, now: u64) -> bool {
        now < self.frozen_until
    }

    /// Starts a process.
    pub(crate) fn start(
        &mut self,
        now: u64,
        incarnation: u128,
        partitions: &[PartitionId],
    ) -> Owner {
        let advertised = ([10, 0, 0, self.seat as u8], 1).into();
        let me = Owner { incarnation: Incarnation(incarnation), advertised, cluster: None };
        let engine = OwnershipEngine::new(me, partitions.iter().copied(), ROWS_AT_ONCE, at(now));
        self.process = Some(Process {
            me,
            engine,
            valid_until: now + WORK,
            renew_at: now + RENEW_EVERY,
            work: Work::Wait,
            tasks: BTreeMap::new(),
            leases_before: None,
        });
        me
    }

    /// The partitions that the node sends writes for.
    pub(crate) fn sending(&self, now: u64) -> Vec<(PartitionId, OwnerEpoch)> {
        let Some(process) = &self.process else { return Vec::new() };
        // A frozen process sends nothing now, but it may send what it has just decided to send. So
        // it counts as one that sends.
        if now >= process.valid_until {
            return Vec::new();
        }
        let runs = |task: &Task| task.stops_at.is_none_or(|at| now < at);
        let running = process.tasks.iter().filter(|(_, task)| runs(task));
        running.map(|(id, task)| (*id, task.epoch)).collect()
    }
}

impl Process {
    pub(crate) fn wait_or_call(
        &mut self,
        action: OwnershipAction,
        now: u64,
        random: &mut fastrand::Rng,
        trouble: u32,
    ) {
        self.work = match action {
            OwnershipAction::Wait(_) => Work::Wait,
            OwnershipAction::Call(call) => {
                let slow = if random.u32(..100) < trouble { 3_000 } else { 100 };
                let done_at = now + random.u64(..=slow);
                let answer_at = done_at + random.u64(..=slow);
                let is_lost = random.u32(..100) < trouble;
                Work::Call { call, sent: now, done_at, answer_at, answer: None, is_lost }
            }
        };
    }
}
