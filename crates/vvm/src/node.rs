//! A node as its services see it: its own leadership, the other leaders, and its applications.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::{Entry, Fence, Offset, Reader, RecordId, StoredRecord, WsId};
use futures::{Stream, stream::BoxStream};
use ielections::Slot;
use isequencer::{SeqId, standard};
use istorage::KeyspaceName;
use processor::{Application, Busy, Commands, Partitions};
use sysvvm::{AppName, NumberRows};

use crate::{
    AppSettings, NodeSettings, NumbersIn, Problem,
    leaders::LeadersCache,
    lease_fence::LeaseFence,
    problem::FirstProblem,
    status::{AppStatus, LeadStatus, NodeStatus, PartitionStatus, StorageStatus},
};

/// The longest time that a slow storage may delay an answer that names the leader of a partition.
const REDIRECT_WITHIN: Duration = Duration::from_millis(500);

/// The longest time that a slow storage may delay the status. Programs ask for the status often and
/// expect an answer at once.
const STATUS_WITHIN: Duration = Duration::from_millis(50);

/// The stage of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The node opens its storage.
    Opening,
    /// The node waits for the leadership of a slot.
    Waiting,
    /// The node leads. Its partitions are being deployed, recover, or wait until the storage takes
    /// their writes.
    Recovering,
    /// The node leads, and its partitions have recovered, except those that an operator must put
    /// right first.
    Leading,
    /// The node is being stopped.
    Stopping,
    /// No part of the node works any more.
    Stopped,
}

/// A node as its services see it. Clones are the same node.
#[derive(Clone, Debug)]
pub struct Node(Arc<NodeInner>);

#[derive(Debug)]
struct NodeInner {
    clock: Clock,
    launched: Instant,
    slots: Slot,
    advertised: SocketAddr,
    call_timeout: Duration,
    lease: Duration,
    driver: &'static str,
    system: KeyspaceName,
    apps: Vec<App>,
    stage: Mutex<Stage>,
    lead: RwLock<Option<(Slot, Arc<LeaseFence>)>>,
    leaders: LeadersCache,
    problem: FirstProblem,
}

/// An application on a node.
#[derive(Debug)]
pub struct App {
    clock: Clock,
    pub(crate) settings: AppSettings,
    pub(crate) partitions: Partitions,
    pub(crate) opened: OnceLock<ServedApp>,
}

/// An application with an open keyspace.
#[derive(Debug)]
pub(crate) struct ServedApp {
    pub(crate) app: sysvvm::OpenedApp,
    pub(crate) system: Arc<NumberRows>,
    pub(crate) reader: Reader,
}

/// The answer of a node that does not lead the partition. Another node leads it, or no node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead partition {partition}")]
pub struct NotLeader {
    /// The number of the partition.
    pub partition: u16,
}

impl Node {
    pub(crate) fn new(
        settings: &NodeSettings,
        driver: &'static str,
        apps: Vec<AppSettings>,
        clock: Clock,
        problem: FirstProblem,
    ) -> Node {
        let apps = apps.into_iter().map(|settings| App::new(settings, clock.clone())).collect();
        Node(Arc::new(NodeInner {
            launched: clock.now(),
            leaders: LeadersCache::new(clock.clone()),
            clock,
            slots: settings.slots,
            advertised: settings.advertised,
            call_timeout: settings.call_timeout,
            lease: settings.lease.duration,
            driver,
            system: settings.system.clone(),
            apps,
            stage: Mutex::new(Stage::Opening),
            lead: RwLock::new(None),
            problem,
        }))
    }

    /// The clock of the node.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The address at which clients of other nodes find this node.
    pub fn advertised(&self) -> SocketAddr {
        self.0.advertised
    }

    /// The time limit of a storage call.
    pub fn call_timeout(&self) -> Duration {
        self.0.call_timeout
    }

    /// The stage of the node.
    pub fn stage(&self) -> Stage {
        let stage = *self.0.stage.lock().unwrap_or_else(PoisonError::into_inner);
        // Partitions recover and stall by themselves, so the stage of a leading node follows from
        // their status.
        let recovers = |app: &App| {
            use processor::Status;
            let all = app.partitions.status();
            all.iter().any(|(_, it)| matches!(it, Status::Recovering(_) | Status::Stalled(_)))
        };
        match stage {
            Stage::Leading if self.0.apps.iter().any(recovers) => Stage::Recovering,
            stage => stage,
        }
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        *self.0.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    /// The applications of the node.
    pub fn apps(&self) -> &[App] {
        &self.0.apps
    }

    /// The application of this owner and name.
    pub fn app(&self, owner: &str, name: &str) -> Option<&App> {
        let is_it = |app: &&App| app.name().owner() == owner && app.name().name() == name;
        self.0.apps.iter().find(is_it)
    }

    /// Ends the leadership in order, so that another node can lead. The host of the node learns
    /// [`Problem::SteppedDown`], and shuts the node down.
    ///
    /// # Errors
    /// If the node does not lead.
    pub fn step_down(&self) -> Result<(), NotLeading> {
        let is_stopping = matches!(self.stage(), Stage::Stopping | Stage::Stopped);
        if self.lead().is_none() || is_stopping {
            return Err(NotLeading);
        }
        self.0.problem.report(Problem::SteppedDown);
        Ok(())
    }

    /// The leader of a partition that this node does not lead; `None` if there is none, or the
    /// leader is not known.
    pub async fn leader_of(&self, partition: u16) -> Option<SocketAddr> {
        let slot = slot_of(partition, self.0.slots);
        let (at, leaders) = self.0.leaders.get(REDIRECT_WITHIN).await.answer?;
        // The answer is older than a lease lasts, so another node may lead now.
        if self.0.clock.now() >= at + self.0.lease {
            return None;
        }
        let (_, lease) = leaders.iter().find(|(of, _)| **of == slot)?;
        (lease.owner != self.0.advertised).then_some(lease.owner)
    }

    /// The number of partitions on this node that run no commands until an operator has put their
    /// logs right.
    pub(crate) fn count_violated(&self) -> usize {
        let statuses = self.0.apps.iter().flat_map(|app| app.partitions.status());
        statuses.filter(|(_, status)| matches!(status, processor::Status::Violation(_))).count()
    }

    /// The leaders, as the storage reported them last.
    pub(crate) fn leaders(&self) -> &LeadersCache {
        &self.0.leaders
    }

    /// Whether the node can go on leading. A partition that has ended can begin again only under
    /// another leadership.
    pub(crate) fn is_well(&self) -> bool {
        let has_ended = |(_, status): &(u16, processor::Status)| {
            use processor::Status;
            matches!(status, Status::Failed(_) | Status::LeadLost(_))
        };
        !self.0.apps.iter().any(|app| app.partitions.status().iter().any(has_ended))
    }

    pub(crate) fn set_lease(&self, lead: Option<(Slot, Arc<LeaseFence>)>) {
        *self.0.lead.write().unwrap_or_else(PoisonError::into_inner) = lead;
    }

    fn lead(&self) -> Option<(Slot, Arc<LeaseFence>)> {
        self.0.lead.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The full status of the node.
    pub async fn status(&self) -> NodeStatus {
        let seen = self.0.leaders.get(STATUS_WITHIN).await;
        let now = self.0.clock.now();
        let lead = self.lead().map(|(slot, lead)| LeadStatus {
            slot: slot.get(),
            epoch: lead.epoch().0,
            left_ms: lead.left(now).map(|left| left.as_millis() as u64),
        });
        let age = |at: Instant| (now - at).as_millis() as u64;
        let answer_age_ms = seen.answer.as_ref().map(|(at, _)| age(*at));
        let is_silent = seen.answer.is_none() && seen.trouble.is_none();
        let trouble = if is_silent { Some("no answer yet".to_owned()) } else { seen.trouble };
        let leaders = seen.answer.map(|(_, leaders)| leaders).unwrap_or_default();
        let storage = StorageStatus {
            driver: self.0.driver,
            system_keyspace: self.0.system.to_string(),
            answers: trouble.is_none(),
            answer_age_ms,
            trouble,
        };
        NodeStatus {
            stage: self.stage(),
            up_ms: (now - self.0.launched).as_millis() as u64,
            advertised: self.0.advertised,
            slots: self.0.slots.get(),
            lead,
            leaders: leaders.iter().map(|(slot, lease)| (slot.get(), lease.owner)).collect(),
            storage,
            apps: self.0.apps.iter().map(App::status).collect(),
            problem: self.0.problem.get().map(|problem| problem.to_string()),
        }
    }
}

/// The error of a node that does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead")]
pub struct NotLeading;

/// The slot of a partition. The leader of that slot leads the partition.
pub(crate) fn slot_of(partition: u16, slots: Slot) -> Slot {
    let number = 1 + u32::from(partition) % slots.get();
    Slot::new(number).unwrap_or(slots)
}

impl App {
    fn new(settings: AppSettings, clock: Clock) -> App {
        let application = Arc::clone(&settings.application);
        let partitions = Partitions::new(application, settings.partitions, clock.clone());
        App { clock, settings, partitions, opened: OnceLock::new() }
    }

    /// The owner and the name of the application.
    pub fn name(&self) -> &AppName {
        &self.settings.name
    }

    /// The definition of the application.
    pub fn application(&self) -> &Application {
        &self.settings.application
    }

    /// The partition of a workspace.
    pub fn partition_of(&self, ws: WsId) -> u16 {
        self.partitions.of(ws)
    }

    /// The partition of a workspace, if the partition is at work on this node.
    ///
    /// # Errors
    /// If the partition is not at work here: another node leads it, or this node is not ready.
    pub fn local_partition(&self, ws: WsId) -> Result<LocalPartition<'_>, NotLeader> {
        let partition = self.partition_of(ws);
        let not_leader = NotLeader { partition };
        let commands = self.partitions.commands(partition).ok_or(not_leader)?;
        let opened = self.opened.get().ok_or(not_leader)?;
        let local = LocalPartition { commands, app: self, opened, partition };
        local.may_answer()?;
        Ok(local)
    }

    fn status(&self) -> AppStatus {
        let partition = |(number, status): (u16, processor::Status)| {
            let commands = self.partitions.commands(number)?;
            let unflushed = commands.unflushed();
            let (damaged, damaged_rows) = commands.damaged();
            Some(PartitionStatus {
                number,
                status: status.to_string(),
                damaged,
                damaged_rows,
                waiting: commands.waiting(),
                next_offset: commands.applied().ok().map(|offset| offset.0),
                unflushed_numbers: unflushed.numbers,
                unflushed_events: unflushed.events,
            })
        };
        AppStatus {
            app: self.settings.name.to_string(),
            partitions: self.settings.partitions.get(),
            level: self.settings.level.to_string(),
            here: self.partitions.status().into_iter().filter_map(partition).collect(),
        }
    }
}

/// A partition that is at work on this node.
#[derive(Clone, Debug)]
pub struct LocalPartition<'a> {
    commands: Commands,
    app: &'a App,
    opened: &'a ServedApp,
    partition: u16,
}

impl LocalPartition<'_> {
    /// Checks that a reader may be given the rows that were read. A node that stood still may not
    /// know yet that it no longer leads.
    ///
    /// # Errors
    /// If the rows must not be given.
    pub fn may_answer(&self) -> Result<(), NotLeader> {
        let not_leader = NotLeader { partition: self.partition };
        if self.commands.may_answer() { Ok(()) } else { Err(not_leader) }
    }

    /// The handle to which commands of the partition are sent.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Reads the WLog of a workspace of the partition from an event on, up to the last event that
    /// is applied. If an event is missing or damaged, the stream ends with an error, and the status
    /// of the partition reports the row.
    ///
    /// # Errors
    /// The reason why the PLog was not read yet.
    pub fn log(
        &self,
        ws: WsId,
        from: Offset,
    ) -> Result<BoxStream<'static, eventlog::Result<Entry>>, Busy> {
        self.commands.wlog(ws, from, self.stored(ws, standard::WLOG_OFFSET))
    }

    /// Reads a record. The status of the partition reports a damaged record.
    ///
    /// # Errors
    /// Those of [`Reader::record`].
    pub async fn record(&self, ws: WsId, id: RecordId) -> eventlog::Result<Option<StoredRecord>> {
        self.commands.record(ws, id).await
    }

    /// Reads the records of a workspace, as [`Reader::records`] does. The status of the partition
    /// reports damaged records.
    pub fn records(
        &self,
        ws: WsId,
        from: RecordId,
        last: RecordId,
    ) -> impl Stream<Item = eventlog::Result<StoredRecord>> + Send + Unpin + use<> {
        self.commands.records(ws, from, last)
    }

    /// The reader of the stored rows, including rows of events that are not applied yet.
    pub fn reader(&self) -> &Reader {
        &self.opened.reader
    }

    /// The last number of a sequence of a workspace that an applied event contains. While the
    /// partition recovers from a group that was not written as expected, the numbers of the events
    /// of that group may be missing.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn last_number(&self, ws: WsId, seq: SeqId) -> eventlog::Result<Option<u64>> {
        self.commands.last_number(ws, seq, self.stored(ws, seq)).await
    }

    /// The last stored number of a sequence of a workspace.
    fn stored(
        &self,
        ws: WsId,
        seq: SeqId,
    ) -> impl Future<Output = eventlog::Result<Option<u64>>> + Send + use<> {
        let numbers = match self.app.settings.numbers {
            NumbersIn::System => Arc::clone(&self.opened.system),
            NumbersIn::View => {
                let storage = Arc::clone(&self.opened.app.storage);
                Arc::new(seqstorage::numbers_in_view(
                    storage,
                    self.app.clock.clone(),
                    self.partition,
                ))
            }
        };
        let reader = self.reader().clone();
        async move {
            let stored = numbers.last(ws.0, &[seq.0], reader.deadline()).await;
            let stored = stored.map_err(|error| match error {
                sysvvm::Error::Storage(error) => error,
                error => istorage::Error::corrupt(error.to_string()),
            })?;
            Ok(stored.into_iter().next().flatten())
        }
    }
}
