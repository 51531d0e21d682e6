//! An application on a node: its partitions that are at work there, and its document numbers.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use base::locks::lock;
use clock::Clock;
use docnumbers::{FastSeries, SeriesId};
use eventlog::{
    Deployment, Epoch, Fence, LogWriter, Reader, RecordId, StoredRecord, TrustLevel, WsId,
};
use isequencer::SeqId;
use processor::{Application, Commands, LogName, Partitions};
use seqstorage::{PartitionStorage, StoredSequence};
use sysvvm::{AppName, AppNumber, RepairRows};

use crate::{
    AppSettings,
    lease_fence::PartitionFence,
    owned_log::OwnedLog,
    repair::RepairTasks,
    running_services::RunningServices,
    series::OpenedSeries,
    status::{AppStatus, PartitionStatus},
};

/// Workspaces that exist. No workspace is ever removed, so they need not be read again.
#[derive(Debug, Default)]
pub(crate) struct KnownWorkspaces(Mutex<HashSet<WsId>>);

impl KnownWorkspaces {
    /// The most workspaces that an application remembers: 2 MB.
    const MOST: usize = 100_000;

    fn contains(&self, ws: WsId) -> bool {
        lock(&self.0).contains(&ws)
    }

    fn add(&self, ws: WsId) {
        let mut known = lock(&self.0);
        if known.len() >= Self::MOST {
            known.clear();
        }
        known.insert(ws);
    }
}

/// An application on a node.
#[derive(Debug)]
pub struct App {
    pub(crate) clock: Clock,
    pub(crate) settings: AppSettings,
    pub(crate) partitions: Partitions,
    pub(crate) opened: OnceLock<Arc<ServedApp>>,
    number: OnceLock<AppNumber>,
    known: KnownWorkspaces,
}

/// An application with an open keyspace.
#[derive(Debug)]
pub(crate) struct ServedApp {
    pub(crate) app: sysvvm::OpenedApp,
    /// The deployment as it was stored when the application was opened.
    pub(crate) deployment: Deployment,
    pub(crate) reader: Reader,
    pub(crate) series: OpenedSeries,
    pub(crate) repairs: RepairRows,
    pub(crate) repair_tasks: RepairTasks,
    pub(crate) started: Mutex<HashMap<u16, StartedPartition>>,
}

impl ServedApp {
    /// The partitions that were started and not stopped since.
    pub(crate) fn started(&self) -> MutexGuard<'_, HashMap<u16, StartedPartition>> {
        lock(&self.started)
    }
}

/// A partition from its start to its end.
#[derive(Clone, Debug)]
pub(crate) struct StartedPartition {
    pub(crate) log: Arc<LogWriter>,
    pub(crate) storage: Arc<PartitionStorage>,
    pub(crate) fence: Arc<PartitionFence>,
    /// The services of the partition, until they are stopped.
    pub(crate) services: Arc<Mutex<Option<RunningServices>>>,
}

impl StartedPartition {
    /// Tells the services of the partition to end.
    pub(crate) fn stop_services(&self) {
        if let Some(services) = &*lock(&self.services) {
            services.stop().cancel();
        }
    }
}

/// The error of a node that does not own a partition, or does not work on it. Another node may own
/// it, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not own partition {partition}")]
pub struct NotOwner {
    /// The number of the partition.
    pub partition: u16,
}

impl App {
    pub(crate) fn new(settings: AppSettings, clock: Clock) -> App {
        let application = Arc::clone(&settings.application);
        let partitions = Partitions::new(application, settings.partitions, clock.clone());
        App {
            clock,
            settings,
            partitions,
            opened: OnceLock::new(),
            number: OnceLock::new(),
            known: KnownWorkspaces::default(),
        }
    }

    /// The owner and the name of the application.
    pub fn name(&self) -> &AppName {
        &self.settings.name
    }

    /// The definition of the application.
    pub fn application(&self) -> &Application {
        &self.settings.application
    }

    /// The number of the application in the registry, if the node knows it already.
    pub(crate) fn number(&self) -> Option<AppNumber> {
        self.number.get().copied()
    }

    pub(crate) fn set_number(&self, number: AppNumber) {
        // The number of an application never changes.
        let _ = self.number.set(number);
    }

    /// The trust level that is stored; before the node has opened the application, the level for
    /// its first deployment.
    fn level(&self) -> TrustLevel {
        self.opened.get().map_or(self.settings.level, |opened| opened.deployment.level)
    }

    /// The partition of a workspace.
    pub fn partition_of(&self, ws: WsId) -> u16 {
        self.partitions.of(ws)
    }

    /// The partition of a workspace, if the partition is at work on this node.
    ///
    /// # Errors
    /// If the partition is not at work here: another node owns it, or this node is not ready.
    pub fn at(&self, ws: WsId) -> Result<LocalPartition<'_>, NotOwner> {
        let partition = self.partition_of(ws);
        let not_owner = NotOwner { partition };
        let commands = self.partitions.commands(partition).ok_or(not_owner)?;
        let opened = self.opened.get().ok_or(not_owner)?;
        let (storage, epoch) = {
            let all = opened.started();
            let started = all.get(&partition).ok_or(not_owner)?;
            (Arc::clone(&started.storage), started.fence.epoch())
        };
        let local = LocalPartition { commands, app: self, opened, storage, partition, epoch };
        local.may_answer()?;
        Ok(local)
    }

    /// The reader of the stored rows, which needs no leadership; `None` if the node has not opened
    /// the application. The rows may miss the effects of commands that were answered.
    pub fn reader(&self) -> Option<&Reader> {
        self.opened.get().map(|opened| &opened.reader)
    }

    /// The fast series of an id. `None` if the application declares no fast series of this id, or
    /// if the node has not opened it yet: a node opens the series when it begins to lead.
    ///
    /// A series gives numbers to all workspaces. The API asks the owner of the workspace's
    /// partition, so that one node has the range of each counter.
    pub fn fast_series(&self, id: &SeriesId) -> Option<&FastSeries> {
        self.opened.get()?.series.fast.get(id)
    }

    /// The number of the application in the registry, once the node can run the application.
    pub(crate) fn opened_number(&self) -> Option<u32> {
        self.opened.get().map(|opened| opened.app.entry.number.get())
    }

    /// The partitions of the application that are at work on this node.
    pub(crate) fn partition_statuses(&self) -> impl Iterator<Item = PartitionStatus> {
        self.partitions.status().into_iter().filter_map(|(number, status)| {
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
        })
    }

    pub(crate) fn status(&self) -> AppStatus {
        AppStatus {
            app: self.settings.name.to_string(),
            partitions: self.settings.partitions.get(),
            level: self.level().to_string(),
            here: self.partition_statuses().collect(),
        }
    }
}

/// A partition that is at work on this node.
#[derive(Clone, Debug)]
pub struct LocalPartition<'a> {
    commands: Arc<Commands>,
    app: &'a App,
    opened: &'a ServedApp,
    storage: Arc<PartitionStorage>,
    partition: u16,
    epoch: Epoch,
}

impl LocalPartition<'_> {
    /// Checks that a reader may get the rows that were read. A node that stood still may not know
    /// yet that it no longer owns the partition.
    ///
    /// # Errors
    /// If the rows must not be given.
    pub fn may_answer(&self) -> Result<(), NotOwner> {
        let not_owner = NotOwner { partition: self.partition };
        if self.commands.may_answer() { Ok(()) } else { Err(not_owner) }
    }

    /// The epoch under which this node owns the partition.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The handle that takes the commands of the partition.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The log of the partition, or of a workspace of the partition.
    pub fn log(&self, name: LogName) -> OwnedLog {
        OwnedLog::new(Arc::clone(&self.commands), Arc::clone(&self.storage), name)
    }

    /// Reads a record. The status of the partition reports a damaged record.
    ///
    /// # Errors
    /// Those of [`Reader::record`].
    pub async fn record(&self, ws: WsId, id: RecordId) -> eventlog::Result<Option<StoredRecord>> {
        self.commands.record(ws, id).await
    }

    /// Whether a workspace of the partition exists. The storage is read only until the answer is
    /// yes.
    ///
    /// # Errors
    /// Those of [`Reader::record`].
    pub async fn has_workspace(&self, ws: WsId) -> eventlog::Result<bool> {
        if self.app.known.contains(ws) {
            return Ok(true);
        }
        let exists = self.record(ws, Application::DESCRIPTOR).await?.is_some();
        if exists {
            self.app.known.add(ws);
        }
        Ok(exists)
    }

    /// The reader of the stored rows, including rows of events that are not applied yet.
    pub fn reader(&self) -> &Reader {
        &self.opened.reader
    }

    /// The stored counters of document numbers, and their ledgers.
    pub fn number_rows(&self) -> &docnumbers::DocNumberRows {
        &self.opened.series.rows
    }

    /// The name of this leadership in the ledgers of document numbers.
    pub fn number_owner(&self) -> &str {
        &self.opened.series.owner
    }

    /// The last number of a sequence of a workspace that an applied event contains. While the
    /// partition recovers from a failed group write, the numbers of the events of that group may be
    /// missing.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn last_number(&self, ws: WsId, seq: SeqId) -> eventlog::Result<Option<u64>> {
        self.commands.last_number(ws, seq, self.stored(ws, seq)).await
    }

    /// Reads the stored numbers of a workspace, wherever the application keeps its numbers, and the
    /// stored offset of the partition. The numbers that were given may be higher: those that are
    /// not flushed yet are missing.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn sequences(&self, ws: WsId) -> eventlog::Result<Vec<StoredSequence>> {
        self.storage.sequences(ws).await
    }

    /// The place of the stored numbers: `sys.SequencesView`, or the system keyspace.
    pub fn sequences_place(&self) -> &'static str {
        self.storage.place()
    }

    /// The last stored number of a sequence of a workspace.
    fn stored(
        &self,
        ws: WsId,
        seq: SeqId,
    ) -> impl Future<Output = eventlog::Result<Option<u64>>> + Send + use<> {
        let storage = Arc::clone(&self.storage);
        async move { storage.stored_number(ws, seq).await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a node does not grow with the workspaces that it has ever met.
    #[test]
    fn an_application_remembers_a_limited_number_of_workspaces() {
        let (known, most) = (KnownWorkspaces::default(), KnownWorkspaces::MOST as u64);
        (0..most).for_each(|ws| known.add(WsId(ws)));
        assert!(known.contains(WsId(0)) && lock(&known.0).len() as u64 == most);
        known.add(WsId(most));
        assert!(known.contains(WsId(most)) && lock(&known.0).len() == 1);
    }
}
