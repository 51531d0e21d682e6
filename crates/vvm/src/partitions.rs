//! The partitions of a seat, from the beginning of the leadership to its end.

use std::{
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clock::Instant;
use docnumbers::DocNumberRows;
use eventlog::{Deployment, DeploymentError, Log, Reader};
use futures::future::join_all;
use ielections::Seat;
use processor::PartitionEnd;
use seqstorage::PartitionStorage;
use sysvvm::System;

use crate::{
    App, Node, NodeSettings, NumbersIn, Problem,
    app::ServedApp,
    clients::Clients,
    lease_fence::LeaseFence,
    node::seat_of,
    opening,
    repair::RepairTasks,
    series::{self, OpenedSeries},
};

/// Deploys the partitions of a seat on the runtime of requests. They recover by themselves, side by
/// side.
///
/// A node may take over because a server of its database fails, and a call to that server fails,
/// too. So opening is tried again until `open_within` is over.
pub(crate) async fn deploy(
    node: &Node,
    system: &Arc<System>,
    settings: &NodeSettings,
    (seat, fence): (Seat, &Arc<LeaseFence>),
    clients: &Clients,
) -> Result<(), Problem> {
    for (at, app) in node.apps().iter().enumerate() {
        // Each application has the whole time. Where a server fails, opening each application takes
        // longer.
        let deadline = node.clock().now() + settings.open_within;
        let (node_there, system_there) = (node.clone(), Arc::clone(system));
        let (owner, timeout) =
            (series::owner(settings, seat, fence), settings.request_call_timeout);
        let opening = async move {
            let app = &node_there.apps()[at];
            let open = || open(app, &node_there, &system_there, (&owner, timeout), deadline);
            opening::retry_until(node_there.clock(), deadline, open).await
        };
        let (opened, series) = clients.on_requests(opening).await?;
        let reader = {
            let (storage, clock) = (Arc::clone(&opened.storage), node.clock().clone());
            Reader::new(storage, clock, settings.request_call_timeout, app.settings.partitions)
        };
        let (repairs, storages) = (system.repairs(&opened.entry), Mutex::default());
        let repair_tasks = RepairTasks::new(Arc::clone(fence), clients.runtime.clone());
        let opened = ServedApp { app: opened, reader, series, repairs, repair_tasks, storages };
        let opened = app.opened.get_or_init(|| Arc::new(opened));
        for partition in 0..app.settings.partitions.get() {
            if seat_of(partition, settings.seats) == seat {
                // A partition spawns its tasks on the runtime that is entered.
                let _entered = clients.runtime.enter();
                deploy_partition(app, node, opened, partition, (system, settings, fence))?;
            }
        }
    }
    Ok(())
}

/// Opens the keyspace of an application and its series of document numbers, and fixes its
/// deployment. The first node creates the keyspace and decides the deployment.
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
    (owner, call_timeout): (&str, Duration),
    deadline: Instant,
) -> Result<(sysvvm::OpenedApp, OpenedSeries), Problem> {
    let (name, partitions) = (app.name(), app.settings.partitions);
    let refused = |why: &dyn Display| {
        Problem::Refused(format!("the application `{name}` cannot be deployed: {why}"))
    };
    app.application().check_number_fields().map_err(|why| refused(&why))?;
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
    let (level, schema) = (app.settings.level, app.application().schema().clone());
    let deployment = Deployment { level, schema };
    let not_deployed = |why| match why {
        DeploymentError::Storage(error) => Problem::of_storage(&error),
        why => refused(&why),
    };
    series::check(app, &rows, deadline).await?;
    deployment.check(&opened.storage, deadline).await.map_err(not_deployed)?;
    let series = OpenedSeries::open(app, rows, owner.to_owned(), deadline).await?;
    let fixed = deployment.fix(&opened.storage, node.clock(), deadline).await;
    fixed.map_err(not_deployed)?;
    Ok((opened, series))
}

fn deploy_partition(
    app: &App,
    node: &Node,
    served: &ServedApp,
    partition: u16,
    (system, settings, fence): (&System, &NodeSettings, &Arc<LeaseFence>),
) -> Result<(), Problem> {
    let (clock, timeout) = (node.clock(), settings.request_call_timeout);
    let opened = &served.app;
    let storage = &opened.storage;
    let log_settings = eventlog::LogSettings {
        level: app.settings.level,
        timeout,
        answers_kept: app.settings.answers_kept,
        ..eventlog::LogSettings::new(app.settings.partitions)
    };
    let fence = Arc::clone(fence) as Arc<dyn eventlog::Fence>;
    let log = Log::new(Arc::clone(storage), clock.clone(), fence, partition, log_settings);
    let log = Arc::new(log);
    let numbers = match app.settings.numbers {
        NumbersIn::System => {
            PartitionStorage::in_system(system.numbers(&opened.entry), Arc::clone(&log))
        }
        NumbersIn::View => PartitionStorage::in_view(Arc::clone(&log)),
    };
    let mut work = app.settings.partition.clone();
    work.name = format!("{}/{partition}", app.name());
    let numbers = Arc::new(numbers);
    let mut storages = served.storages.lock().unwrap_or_else(PoisonError::into_inner);
    storages.insert(partition, Arc::clone(&numbers));
    drop(storages);
    app.partitions.deploy(log, numbers, work).map_err(|why| Problem::Refused(why.to_string()))
}

/// The ends of all partitions.
#[derive(Debug, Default)]
pub(crate) struct PartitionEnds {
    /// The descriptions of the partitions that did not prove that they write nothing any more.
    pub(crate) unproved: Vec<String>,
    /// Whether a partition may still be at work.
    pub(crate) is_late: bool,
}

/// Stops all partitions side by side.
pub(crate) async fn undeploy(node: &Node, deadline: Instant) -> PartitionEnds {
    let stops = node.apps().iter().flat_map(|app| {
        app.partitions.status().into_iter().map(move |(partition, _)| async move {
            let (why, is_late) = match app.partitions.undeploy(partition, deadline).await {
                PartitionEnd::Stopped => return None,
                PartitionEnd::Unproved(why) | PartitionEnd::LeadershipLost(why) => (why, false),
                PartitionEnd::Late => ("the partition did not end in time".to_owned(), true),
            };
            Some((format!("partition {partition} of {}: {why}", app.name()), is_late))
        })
    });
    let mut all = PartitionEnds::default();
    for (why, is_late) in join_all(stops).await.into_iter().flatten() {
        all.unproved.push(why);
        all.is_late |= is_late;
    }
    all
}
