//! The partitions that a node owns under one leadership: it takes them, starts them, and watches
//! their ownership rows.
//!
//! [`OwnershipEngine`] decides. This module makes the calls, with the client and on the runtime of
//! elections, and starts partitions on the runtime of requests. So requests do not delay a takeover.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use causes::with_causes;
use clock::Instant;
use eventlog::Epoch;
use sysvvm::{
    OwnerRows,
    ownership::{
        LOOK_EVERY, Owner, OwnerEpoch, OwnerRow, OwnershipAction, OwnershipAnswer, OwnershipCall,
        OwnershipEngine, OwnershipNotice, PartitionId,
    },
};
use tokio::sync::oneshot;
use tracing::{error, warn};

use crate::{App, Problem, app::ServedApp, partitions::Deployer};

/// The interval at which a failure of the same call is logged again.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The partitions that a node wants to own, each with its application.
pub(crate) type WantedPartitions<'a> = BTreeMap<PartitionId, (&'a App, &'a ServedApp)>;

/// The partitions that a node owns.
pub(crate) struct OwnedPartitions<'a> {
    deployer: &'a Deployer<'a>,
    rows: OwnerRows,
    engine: OwnershipEngine,
    wanted: WantedPartitions<'a>,
    started: BTreeSet<PartitionId>,
    /// The partitions that nobody can take: their rows make no sense, or have the highest epoch.
    blocked: BTreeSet<PartitionId>,
    /// The time of the next attempt to take the partitions that are missing, and their number at the
    /// last attempt.
    next_attempt: (Instant, usize),
    log_at: Instant,
}

impl<'a> OwnedPartitions<'a> {
    /// Makes the state of a leadership that has just begun.
    pub(crate) fn new(
        deployer: &'a Deployer<'a>,
        rows: OwnerRows,
        wanted: WantedPartitions<'a>,
    ) -> OwnedPartitions<'a> {
        let now = deployer.node.clock().now();
        let me = Owner {
            incarnation: deployer.leadership.incarnation(),
            advertised: deployer.settings.advertised,
            cluster: None,
        };
        let engine = OwnershipEngine::new(me, wanted.keys().copied(), rows.rows_at_once(), now);
        OwnedPartitions {
            deployer,
            rows,
            engine,
            wanted,
            started: BTreeSet::new(),
            blocked: BTreeSet::new(),
            next_attempt: (now, usize::MAX),
            log_at: now,
        }
    }

    /// Takes, starts and watches the partitions until there is a problem. Tells `all_started` when
    /// each wanted partition has started, except for those that nobody can take.
    pub(crate) async fn run(&mut self, all_started: oneshot::Sender<()>) -> Problem {
        let clock = self.deployer.node.clock().clone();
        let mut all_started = Some(all_started);
        let mut answer = OwnershipAnswer::None;
        loop {
            let action = self.engine.next(clock.now(), answer);
            for notice in self.engine.notices() {
                if let Err(problem) = self.handle(notice) {
                    return problem;
                }
            }
            if self.want(clock.now())
                && let Some(all_started) = all_started.take()
            {
                // The receiver is gone if the leadership is over.
                let _ = all_started.send(());
            }
            answer = match action {
                OwnershipAction::Call(call) => self.answer(&call).await,
                OwnershipAction::Wait(until) => {
                    clock.sleep_until(until.min(clock.now() + LOOK_EVERY)).await;
                    OwnershipAnswer::None
                }
            };
        }
    }

    /// Tells the engine which partitions are missing: each second, and at once after some of them
    /// have started, because one call takes a limited number. Returns whether none is missing.
    fn want(&mut self, now: Instant) -> bool {
        let is_missing =
            |id: &PartitionId| !self.started.contains(id) && !self.blocked.contains(id);
        let missing: Vec<_> = self.wanted.keys().copied().filter(is_missing).collect();
        let (at, before) = self.next_attempt;
        if !missing.is_empty() && (now >= at || missing.len() < before) {
            self.next_attempt = (now + LOOK_EVERY, missing.len());
            self.engine.want(missing.iter().copied());
        }
        missing.is_empty()
    }

    fn handle(&mut self, notice: OwnershipNotice) -> Result<(), Problem> {
        match notice {
            OwnershipNotice::Start(partition, epoch) => self.start(partition, epoch),
            OwnershipNotice::Foreign(partition, row) => Err(self.close(partition, row)),
            OwnershipNotice::NoEpochLeft(partition) => {
                error!(%partition, "partition has no epoch left");
                self.blocked.insert(partition);
                Ok(())
            }
            // The node gives no partition away.
            OwnershipNotice::Stop(..) | OwnershipNotice::Left(_) => Ok(()),
        }
    }

    fn start(&mut self, partition: PartitionId, epoch: OwnerEpoch) -> Result<(), Problem> {
        let Some(&(app, served)) = self.wanted.get(&partition) else { return Ok(()) };
        self.started.insert(partition);
        self.deployer.start(app, served, partition.partition, Epoch(epoch.0.into()))
    }

    /// Closes the fence of a partition that another node has taken.
    fn close(&self, partition: PartitionId, row: OwnerRow) -> Problem {
        let Some(&(app, served)) = self.wanted.get(&partition) else {
            return Problem::OwnershipLost(format!("the owner of {partition} is unexpected"));
        };
        let why = taken(app, partition.partition, row);
        if let Some(started) = served.started().get(&partition.partition) {
            started.fence.close(&why);
        }
        Problem::OwnershipLost(why)
    }

    /// Makes a call.
    async fn answer(&mut self, call: &OwnershipCall) -> OwnershipAnswer {
        let clock = self.deployer.node.clock();
        let deadline = clock.now() + self.deployer.settings.lease.call_timeout;
        let answer = self.rows.answer(call, deadline);
        let answered = match clock.timeout_at(deadline, answer).await {
            Ok(answered) => answered,
            // A write may have been sent.
            Err(_) => Ok(OwnershipAnswer::Unknown),
        };
        let now = clock.now();
        match answered {
            Ok(answer) => {
                let failed = [OwnershipAnswer::Unavailable, OwnershipAnswer::Unknown];
                if failed.contains(&answer) && now >= self.log_at {
                    self.log_at = now + LOG_EVERY;
                    warn!("storage does not answer: owners of partitions not known");
                }
                answer
            }
            Err(error) => {
                self.note(&error, now);
                OwnershipAnswer::Unavailable
            }
        }
    }

    /// Notes an error of a call that changed nothing. A partition whose row makes no sense is not
    /// taken any more.
    fn note(&mut self, error: &sysvvm::Error, now: Instant) {
        let blocked = OwnerRows::partition_of(error);
        let is_new = blocked.is_some_and(|partition| self.blocked.insert(partition));
        if is_new || now >= self.log_at {
            self.log_at = now + LOG_EVERY;
            error!(error = %with_causes(error), "owners of partitions not known");
        }
    }
}

fn taken(app: &App, partition: u16, row: OwnerRow) -> String {
    let name = app.name();
    match row.owner {
        Some(owner) => {
            format!(
                "{} took partition {partition} of {name} in epoch {}",
                owner.advertised, row.epoch
            )
        }
        None => format!("partition {partition} of {name} has no owner any more"),
    }
}
