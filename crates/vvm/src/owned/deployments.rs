//! The check of an application's deployment before each start of a partition.
//!
//! The nodes of a cluster may run different versions of a program. A newer node adds a table or a
//! field to the deployment and writes rows with it. Suppose that a partition then comes to an older
//! node, which has checked the deployment only once, at its own start. The older node refuses
//! updates of such rows, and draws no number for a new number field. So a node reads the deployment
//! again after it has got a partition and before it starts the partition.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base::with_causes;
use clock::Instant;
use eventlog::DeploymentError;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use sysvvm::ownership::{OwnerEpoch, PartitionId};
use tracing::{error, warn};

use super::OwnedPartitions;
use crate::Problem;

/// The pause after a check that the storage did not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A partition whose deployment is not known for this long goes to another node.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// For this time after this node could not run a partition, other nodes get it first.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// The answer of a check.
pub(super) struct CheckedApp {
    /// The number of the application.
    app: u32,
    result: Result<Result<(), DeploymentError>, Problem>,
}

/// A partition that waits for the check of its application.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPartition {
    epoch: OwnerEpoch,
    since: Instant,
}

/// The partitions that wait, by their ids.
type WaitingPartitions = BTreeMap<PartitionId, WaitingPartition>;

/// The partitions that wait for the check of their application.
#[derive(Default)]
pub(super) struct DeploymentChecks<'a> {
    /// The partitions whose check has not begun.
    waiting: WaitingPartitions,
    /// The partitions whose check is under way. One read serves all that were waiting.
    checking: WaitingPartitions,
    under_way: BTreeSet<u32>,
    /// The partitions that were refused because the storage did not show the deployment, by their
    /// applications. The check is repeated until the storage shows it. Then the refusal ends.
    unknown: BTreeMap<u32, BTreeSet<PartitionId>>,
    /// No check begins before this time: the storage has just failed.
    rest_until: Option<Instant>,
    checks: FuturesUnordered<BoxFuture<'a, CheckedApp>>,
}

impl<'a> DeploymentChecks<'a> {
    pub(super) fn add(&mut self, now: Instant, partition: PartitionId, epoch: OwnerEpoch) {
        self.waiting.insert(partition, WaitingPartition { epoch, since: now });
    }

    /// Forgets a partition that is not to be started any more.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.waiting.remove(&partition);
        self.checking.remove(&partition);
    }

    /// Begins the checks that are waited for. An application has one check at a time: a partition
    /// that comes during a check waits for the next one, because the read may be older than it.
    fn begin(&mut self, now: Instant, check: impl Fn(u32) -> Option<BoxFuture<'a, CheckedApp>>) {
        if self.rest_until.is_some_and(|until| now < until) {
            return;
        }
        let waiting = self.waiting.keys().map(|partition| partition.app);
        let apps: BTreeSet<u32> = waiting.chain(self.unknown.keys().copied()).collect();
        for app in apps {
            if self.under_way.contains(&app) {
                continue;
            }
            if let Some(check) = check(app) {
                self.under_way.insert(app);
                self.checks.push(check);
                self.checking.extend(self.waiting.extract_if(.., |id, _| id.app == app));
            }
        }
    }

    /// Waits for the next answer; forever if no check is under way. Returns the partitions that
    /// waited for it.
    ///
    /// # Cancel safety
    /// Safe: no answer is lost.
    pub(super) async fn next(&mut self) -> (CheckedApp, WaitingPartitions) {
        let Some(checked) = self.checks.next().await else { return std::future::pending().await };
        self.under_way.remove(&checked.app);
        let of_app = self.checking.extract_if(.., |id, _| id.app == checked.app).collect();
        (checked, of_app)
    }
}

impl OwnedPartitions<'_> {
    /// Begins the checks of applications whose partitions wait for their start.
    pub(super) fn begin_checks(&mut self) {
        let (deployer, all) = (self.deployer, &self.all);
        let now = deployer.node.clock().now();
        self.checks.begin(now, |number| {
            let first = PartitionId { app: number, partition: 0 };
            let (_, (app, served)) = all.range(first..).next()?;
            // A field that this program leaves out may have become wider meanwhile.
            let tables = app.application().declarations().schema().clone();
            let opened = served.deployment.clone().of_program(tables);
            let storage = Arc::clone(&served.app.storage);
            let clock = deployer.node.clock().clone();
            let deadline = clock.now() + deployer.settings.request_call_timeout;
            // The client of requests belongs to the runtime of requests.
            let check = async move { Ok(opened.store_again(&storage, &clock, deadline).await) };
            let checked = deployer.clients.on_requests(check);
            Some(async move { CheckedApp { app: number, result: checked.await } }.boxed())
        });
    }

    /// Starts the partitions that waited for a check, or refuses them.
    pub(super) fn note_check(
        &mut self,
        CheckedApp { app: number, result }: CheckedApp,
        waiting: WaitingPartitions,
    ) -> Result<(), Problem> {
        let node = self.deployer.node;
        match result? {
            Ok(()) => {
                self.readmit(number);
                for (partition, WaitingPartition { epoch, .. }) in waiting {
                    self.start(partition, epoch)?;
                }
                return Ok(());
            }
            // The partitions wait. A simpler version reports that they have ended: each attempt
            // costs an epoch then, and the pauses between them grow to a minute. The storage may
            // answer another node, so a partition that waits for long goes there.
            Err(DeploymentError::Storage(why)) => {
                warn!(app = number, error = %with_causes(&why), "deployment not known");
                let now = node.clock().now();
                self.checks.rest_until = Some(now + RETRY_PAUSE);
                self.refuse_late(now, number, &waiting);
                self.checks.waiting.extend(waiting);
                return Ok(());
            }
            // The level changes only while no node has a seat, so this node has lost its own.
            Err(DeploymentError::OtherLevel { .. }) => {
                let app = self.all.iter().find(|(id, _)| id.app == number);
                let why = app.map(|(_, (app, _))| Problem::LevelChanged(app.name().clone()));
                return why.map_or(Ok(()), Err);
            }
            Err(why) => {
                // The deployment does not change back, so the node gets no partitions of the
                // application any more.
                let is_new = node.membership().wishes().outdated.insert(number);
                if is_new {
                    let name = self
                        .all
                        .keys()
                        .find(|id| id.app == number)
                        .and_then(|id| self.all.get(id).map(|(app, _)| app.name().to_string()));
                    error!(
                        app = name, why = %with_causes(&why),
                        "another version of the application is deployed: this node starts no partition of it; upgrade this node"
                    );
                }
                waiting.keys().for_each(|partition| self.refuse(*partition));
            }
        }
        let now = node.clock().now();
        for (partition, WaitingPartition { epoch, .. }) in waiting {
            // Nothing was started. The engine tries again after a pause, or gives the partition up.
            self.engine.ended(now, partition, epoch, now, epoch);
        }
        Ok(())
    }

    /// Notes that a partition has failed. One that fails again and again goes to another node.
    pub(super) fn note_failure(&mut self, partition: PartitionId) {
        let now = self.deployer.node.clock().now();
        let started = self.deployer.node.membership().wishes().starts.get(&partition).copied();
        let worked = started.map(|at| now.saturating_since(at)).unwrap_or_default();
        if self.failures.note(partition, worked) {
            self.refuse(partition);
        }
    }

    /// Tells the other nodes for 10 minutes that this one cannot run a partition.
    fn refuse(&self, partition: PartitionId) {
        let node = self.deployer.node;
        node.membership().wishes().refused.insert(partition, node.clock().now() + REFUSED_FOR);
        node.view().ask_now();
    }

    /// Refuses the partitions that have waited for too long, unless they are refused already.
    fn refuse_late(&mut self, now: Instant, number: u32, waiting: &WaitingPartitions) {
        for (&partition, WaitingPartition { since, .. }) in waiting {
            let is_late = now.saturating_since(*since) >= KNOWN_WITHIN;
            let until = self.deployer.node.membership().wishes().refused.get(&partition).copied();
            if is_late && until.is_none_or(|until| until <= now) {
                self.refuse(partition);
                self.checks.unknown.entry(number).or_default().insert(partition);
            }
        }
    }

    /// The storage has shown the deployment of an application, and it is that of this node.
    fn readmit(&mut self, number: u32) {
        let node = self.deployer.node;
        let unknown = self.checks.unknown.remove(&number).unwrap_or_default();
        let mut wishes = node.membership().wishes();
        wishes.outdated.remove(&number);
        wishes.refused.retain(|partition, _| !unknown.contains(partition));
        drop(wishes);
        if !unknown.is_empty() {
            node.view().ask_now();
        }
    }
}
