//! The applications and partitions of a node under one leadership: how they are opened, started and
//! stopped.

use std::{
    collections::BTreeSet,
    fmt::Display,
    sync::{Arc, Mutex},
    time::Duration,
};

use base::locks::lock;
use clock::Instant;
use docnumbers::DocNumberRows;
use eventlog::{Deployment, DeploymentError, Epoch, LogWriter, Reader, TrustLevel};
use futures::future::join_all;
use ielections::{Leadership, WorkGuard};
use processor::PartitionEnd;
use seqstorage::PartitionStorage;
use sysvvm::{AppName, System};
use tracing::info;

use crate::{
    App, Node, NodeSettings, NumbersIn, Problem,
    app::{ServedApp, StartedPartition},
    clients::Clients,
    lease_fence::PartitionFence,
    opening,
    owned::PartitionStops,
    partition_service::{self, OwnedPartition},
    repair::RepairTasks,
    series::{self, OpenedSeries},
};

/// Opens the applications of a node and starts their partitions, under one leadership.
pub(crate) struct Deployer<'a> {
    pub(crate) node: &'a Node,
    pub(crate) system: &'a Arc<System>,
    pub(crate) settings: &'a NodeSettings,
    pub(crate) clients: &'a Clients,
    pub(crate) leadership: &'a Leadership,
    /// Whether the lease lasts until late writes have landed, as level 2 needs it.
    pub(crate) serves_level_2: bool,
}

impl Deployer<'_> {
    /// Opens an application on the runtime of requests.
    ///
    /// A node may take over because a server of its database fails, and a call to that server
    /// fails, too. So opening is tried again until `open_within` is over.
    pub(crate) async fn open<'a>(&self, app: &'a App) -> Result<&'a Arc<ServedApp>, Problem> {
        let Deployer { settings, clients, .. } = *self;
        let (node, system) = (self.node.clone(), Arc::clone(self.system));
        let (clock, timeout) = (node.clock().clone(), settings.request_call_timeout);
        // Each application has the whole time. Where a server fails, opening each application takes
        // longer.
        let deadline = clock.now() + settings.open_within;
        let owner = series::owner(settings, self.leadership);
        let name = app.name().clone();
        let opening = async move {
            // The applications of a node do not change.
            let app = node
                .app(name.owner(), name.name())
                .ok_or_else(|| Problem::Refused(format!("the node has no application `{name}`")))?;
            let open = || open(app, &node, &system, &owner, timeout, deadline);
            opening::retry_until(node.clock(), deadline, open).await
        };
        let (opened, deployment, series) = clients.on_requests(opening).await?;
        let (configured, stored) = (app.settings.level, deployment.level);
        if stored == TrustLevel::Two && !self.serves_level_2 {
            return Err(Problem::LevelChanged(app.name().clone()));
        }
        if stored != configured {
            info!(app = %app.name(), %stored, %configured, "the stored trust level counts, not that of the configuration");
        }
        app.set_number(opened.entry.number);
        let storage = Arc::clone(&opened.storage);
        let reader = Reader::new(storage, clock, timeout, app.settings.partitions);
        let (repairs, started) = (self.system.repairs(&opened.entry), Mutex::default());
        let repair_tasks = RepairTasks::new(clients.runtime.clone());
        let opened =
            ServedApp { app: opened, deployment, reader, series, repairs, repair_tasks, started };
        Ok(app.opened.get_or_init(|| Arc::new(opened)))
    }

    /// Starts a partition under an epoch. The partition recovers by itself.
    pub(crate) fn start(
        &self,
        app: &App,
        served: &ServedApp,
        partition: u16,
        epoch: Epoch,
    ) -> Result<(), Problem> {
        let begin_work = || self.leadership.work().map_err(Problem::LeadershipLost);
        let guard = begin_work()?;
        // All guards are taken before anything starts. So nothing starts half.
        let services = self.node.partition_services();
        let services_work = if services.is_empty() { None } else { Some(begin_work()?) };
        let fence = Arc::new(PartitionFence::new(epoch, guard));
        let log = self.log_of(app, served, partition, Arc::clone(&fence));
        let numbers = match app.settings.numbers {
            NumbersIn::System => {
                let rows = self.system.numbers(&served.app.entry);
                PartitionStorage::in_system(rows, Arc::clone(&log))
            }
            NumbersIn::View => PartitionStorage::in_view(Arc::clone(&log)),
        };
        let kept = Arc::clone(&log);
        let mut work = app.settings.partition.clone();
        work.name = format!("{}/{partition}", app.name());
        let storage = Arc::new(numbers);
        // A partition spawns its tasks on the runtime that is entered.
        let _entered = self.clients.runtime.enter();
        if let Err(why) = app.partitions.deploy(log, Arc::clone(&storage) as _, work) {
            fence.finish();
            services_work.into_iter().for_each(WorkGuard::finish);
            return Err(Problem::Refused(why.to_string()));
        }
        let services = services_work.map(|work| {
            let node = self.node.clone();
            let owned = OwnedPartition::new(node, app, partition, Arc::clone(&fence));
            let (stop, runtime) = (self.leadership.token(), &self.clients.runtime);
            partition_service::start_services(services, &owned, work, stop, runtime)
        });
        let services = Arc::new(Mutex::new(services));
        let started = StartedPartition { log: kept, storage, fence, services };
        served.started().insert(partition, started);
        Ok(())
    }

    fn log_of(
        &self,
        app: &App,
        served: &ServedApp,
        partition: u16,
        fence: Arc<PartitionFence>,
    ) -> Arc<LogWriter> {
        let settings = eventlog::LogSettings {
            level: served.deployment.level,
            stray_before: served.deployment.stray_before,
            timeout: self.settings.request_call_timeout,
            answers_kept: app.settings.answers_kept,
            ..eventlog::LogSettings::new(app.settings.partitions)
        };
        let (storage, clock) = (Arc::clone(&served.app.storage), self.node.clock().clone());
        Arc::new(LogWriter::new(storage, clock, fence, partition, settings))
    }
}

/// Opens the keyspace of an application and its series of document numbers, and stores its
/// deployment. Returns the deployment that is stored. The first node creates the keyspace and
/// decides the deployment.
///
/// All of them are checked before the first one is stored. A stored definition or deployment binds:
/// suppose that the definition of one series were stored, and that another series or the tables
/// were refused. Then an application that never ran could keep the next one from being deployed.
///
/// Two nodes may deploy different applications at the same time. Each definition and the deployment
/// is checked again when it is stored, so one of the nodes is refused, and may have stored some
/// definitions.
async fn open(
    app: &App,
    node: &Node,
    system: &System,
    owner: &str,
    call_timeout: Duration,
    deadline: Instant,
) -> Result<(sysvvm::OpenedApp, Deployment, OpenedSeries), Problem> {
    let (name, partitions) = (app.name(), app.settings.partitions);
    let check = app.application().declarations().check_number_fields();
    check.map_err(|why| refused(name, &why))?;
    let opened = loop {
        match system.open_app(name, deadline).await {
            Err(sysvvm::Error::DoesNotExist { .. }) => {}
            opened => break opened?,
        }
        match system.init_app(name, partitions, deadline).await {
            // Another node created the keyspace first.
            Err(sysvvm::Error::AlreadyExists { .. }) => {}
            made => break made?,
        }
    };
    if opened.entry.partitions != partitions {
        return Err(Problem::Refused(format!(
            "the application `{name}` was deployed with {} partitions, and cannot be deployed with {partitions}: the number is fixed",
            opened.entry.partitions
        )));
    }
    let (storage, clock) = (Arc::clone(system.storage()), node.clock().clone());
    let prefix = system.document_numbers(&opened.entry);
    let rows = DocNumberRows::new(storage, clock, prefix, call_timeout);
    let (level, schema) = (app.settings.level, app.application().declarations().schema().clone());
    let deployment = Deployment::new(level, schema);
    let not_deployed = |why| not_deployed(name, why);
    series::check(app, &rows, deadline).await?;
    deployment.check(&opened.storage, deadline).await.map_err(not_deployed)?;
    let series = OpenedSeries::open(app, rows, owner.to_owned(), deadline).await?;
    let stored = deployment.store(&opened.storage, node.clock(), deadline).await;
    Ok((opened, stored.map_err(not_deployed)?, series))
}

fn refused(app: &AppName, why: &dyn Display) -> Problem {
    Problem::Refused(format!("the application `{app}` cannot be deployed: {why}"))
}

/// Returns the problem of a node that cannot deploy an application, or read its deployment.
pub(crate) fn not_deployed(app: &AppName, why: DeploymentError) -> Problem {
    match why {
        DeploymentError::Storage(error) => Problem::of_storage(&error),
        why => refused(app, &why),
    }
}

/// The ends of all partitions.
#[derive(Debug, Default)]
pub(crate) struct PartitionEnds {
    /// The descriptions of the partitions that did not prove that they write nothing any more.
    pub(crate) unproved: Vec<String>,
    /// Whether a partition may still be at work.
    pub(crate) is_late: bool,
}

/// A partition that was stopped.
#[derive(Debug)]
pub(crate) struct StoppedPartition {
    pub(crate) app: AppName,
    pub(crate) partition: u16,
    pub(crate) end: PartitionEnd,
    /// The fence, if the end is not proved.
    pub(crate) fence: Option<Arc<PartitionFence>>,
}

/// Stops the services of a partition, and then the partition, in order.
pub(crate) async fn stop(app: &App, partition: u16, deadline: Instant) -> StoppedPartition {
    let now = app.clock.now();
    let for_services = now + deadline.saturating_since(now) / 2;
    let have_ended = stop_services(app, partition, for_services).await;
    let end = app.partitions.undeploy(partition, deadline).await;
    let started = app.opened.get().and_then(|served| served.started().remove(&partition));
    let fence = started.map(|started| started.fence);
    let end = match (end, &fence) {
        (PartitionEnd::Stopped, Some(fence)) if fence.has_unproved_work() => {
            PartitionEnd::Unproved("a repair has a write without an answer".to_owned())
        }
        (end, _) => end,
    };
    if let (PartitionEnd::Stopped, Some(fence)) = (&end, &fence) {
        fence.finish();
    }
    // A service may still be at work, so nobody else may work on the partition.
    let end = if have_ended { end } else { PartitionEnd::Late };
    let fence = fence.filter(|_| end != PartitionEnd::Stopped);
    StoppedPartition { app: app.name().clone(), partition, end, fence }
}

/// Stops the services of a partition. Returns whether all of them have ended.
pub(crate) async fn stop_services(app: &App, partition: u16, deadline: Instant) -> bool {
    let started = app.opened.get().and_then(|served| {
        served.started().get(&partition).map(|started| Arc::clone(&started.services))
    });
    let services = started.and_then(|services| lock(&services).take());
    match services {
        Some(services) => services.end(&app.clock, deadline).await,
        None => true,
    }
}

/// Stops all partitions side by side, and waits for those that are stopping.
pub(crate) async fn stop_all(
    node: &Node,
    stopping: PartitionStops,
    deadline: Instant,
) -> PartitionEnds {
    let stops = node.apps().iter().flat_map(|app| {
        // A stop that was given up has left its fence here.
        let started = app.opened.get().map(|served| served.started().keys().copied().collect());
        let mut here: BTreeSet<u16> = started.unwrap_or_default();
        here.extend(app.partitions.status().into_iter().map(|(partition, _)| partition));
        here.retain(|partition| !stopping.has(app.name(), *partition));
        here.into_iter().map(move |partition| stop(app, partition, deadline))
    });
    let stops = join_all(stops.collect::<Vec<_>>());
    let (begun, others) = tokio::join!(stopping.all(node.clock(), deadline), stops);
    let mut all = PartitionEnds::default();
    for StoppedPartition { app, partition, end, fence } in begun.into_iter().chain(others) {
        let (why, is_late) = match end {
            PartitionEnd::Stopped => continue,
            PartitionEnd::Unproved(why) | PartitionEnd::LeadershipLost(why) => (why, false),
            // The work may go on. The log holds the guard, so the killer ends the process when
            // the lease is nearly over.
            PartitionEnd::Late => ("the partition did not end in time".to_owned(), true),
        };
        if let Some(fence) = fence.filter(|_| !is_late) {
            fence.abandon();
        }
        all.unproved.push(format!("partition {partition} of {app}: {why}"));
        all.is_late |= is_late;
    }
    all
}
