//! A node as its services see it: what it leads, who leads the rest, and its applications.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::{Entry, Lead, Offset, Reader, RecordId, StoredRecord, WsId};
use futures::{Stream, stream::BoxStream};
use ielections::Slot;
use isequencer::{SeqId, standard};
use istorage::KeyspaceName;
use processor::{Application, Busy, Command, Commands, Done, Partitions, Refused};
use sysvvm::{AppName, NumberRows};

use crate::{
    AppSettings, NumbersIn, Problem, Settings,
    lead::UnderLead,
    leaders::LeadersSeen,
    problem::FirstProblem,
    status::{AppStatus, LeadStatus, NodeStatus, PartitionStatus, StorageStatus},
};

/// How long the storage may delay an answer that names the leader of a partition.
const REDIRECT_WITHIN: Duration = Duration::from_millis(500);

/// How long the storage may delay the status: it is asked often, by programs that expect an answer at once.
const STATUS_WITHIN: Duration = Duration::from_millis(50);

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It opens its storage.
    Opening,
    /// It waits for the lead of a slot.
    Waiting,
    /// It leads, and its partitions are being deployed or recover, or the storage does not take
    /// what they must store.
    Recovering,
    /// It leads, and its partitions have been recovered, but for those that an operator must put right first.
    Leading,
    /// It is being stopped.
    Stopping,
    /// Nothing of it works any more.
    Stopped,
}

/// A node, as its services see it. Clones are the same node.
#[derive(Clone, Debug)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
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
    lead: RwLock<Option<(Slot, Arc<UnderLead>)>>,
    leaders: LeadersSeen,
    problem: FirstProblem,
}

/// An application on a node.
#[derive(Debug)]
pub struct App {
    clock: Clock,
    pub(crate) settings: AppSettings,
    pub(crate) partitions: Partitions,
    pub(crate) opened: OnceLock<Opened>,
}

/// An application whose keyspace is open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) app: sysvvm::OpenedApp,
    pub(crate) system: Arc<NumberRows>,
    pub(crate) reader: Reader,
}

/// Another node, or none, has what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead partition {partition}")]
pub struct NotLeader {
    /// The partition that it is in.
    pub partition: u16,
}

impl Node {
    pub(crate) fn new(
        settings: &Settings,
        driver: &'static str,
        apps: Vec<AppSettings>,
        clock: Clock,
        problem: FirstProblem,
    ) -> Node {
        let apps = apps.into_iter().map(|settings| App::new(settings, clock.clone())).collect();
        Node(Arc::new(Inner {
            launched: clock.now(),
            leaders: LeadersSeen::new(clock.clone()),
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

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Where other nodes' clients find it.
    pub fn advertised(&self) -> SocketAddr {
        self.0.advertised
    }

    /// How long a call to the storage may take.
    pub fn call_timeout(&self) -> Duration {
        self.0.call_timeout
    }

    /// What it is doing.
    pub fn stage(&self) -> Stage {
        let stage = *self.0.stage.lock().unwrap_or_else(PoisonError::into_inner);
        // What is led goes on by itself.
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

    pub(crate) fn enter(&self, stage: Stage) {
        *self.0.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    /// Its applications.
    pub fn apps(&self) -> &[App] {
        &self.0.apps
    }

    /// An application of it.
    pub fn app(&self, owner: &str, name: &str) -> Option<&App> {
        let is_it = |app: &&App| app.name().owner() == owner && app.name().name() == name;
        self.0.apps.iter().find(is_it)
    }

    /// Ends the lead in order, so that another node can have it. The node's host is told of [`Problem::SteppedDown`], and shuts it down.
    ///
    /// # Errors
    /// If it does not lead.
    pub fn step_down(&self) -> Result<(), NotLeading> {
        let is_stopping = matches!(self.stage(), Stage::Stopping | Stage::Stopped);
        if self.lead().is_none() || is_stopping {
            return Err(NotLeading);
        }
        self.0.problem.report(Problem::SteppedDown);
        Ok(())
    }

    /// The leader of a partition that this node does not lead; `None` if there is none, or it is not known.
    pub async fn leader_of(&self, partition: u16) -> Option<SocketAddr> {
        let slot = slot_of(partition, self.0.slots);
        let (at, leaders) = self.0.leaders.get(REDIRECT_WITHIN).await.answer?;
        // Somebody else may have taken a lease that was not looked at for so long.
        if self.0.clock.now() >= at + self.0.lease {
            return None;
        }
        let (_, lease) = leaders.iter().find(|(of, _)| **of == slot)?;
        (lease.owner != self.0.advertised).then_some(lease.owner)
    }

    /// How many of its partitions do nothing until an operator has put their logs right.
    pub(crate) fn violated(&self) -> usize {
        let statuses = self.0.apps.iter().flat_map(|app| app.partitions.status());
        statuses.filter(|(_, status)| matches!(status, processor::Status::Violation(_))).count()
    }

    /// The leaders, as the storage told them last.
    pub(crate) fn leaders(&self) -> &LeadersSeen {
        &self.0.leaders
    }

    /// Whether it can go on leading: a partition that has ended begins again only under another lead.
    pub(crate) fn is_well(&self) -> bool {
        let has_ended = |(_, status): &(u16, processor::Status)| {
            use processor::Status;
            matches!(status, Status::Failed(_) | Status::LeadLost(_))
        };
        !self.0.apps.iter().any(|app| app.partitions.status().iter().any(has_ended))
    }

    pub(crate) fn leads(&self, lead: Option<(Slot, Arc<UnderLead>)>) {
        *self.0.lead.write().unwrap_or_else(PoisonError::into_inner) = lead;
    }

    fn lead(&self) -> Option<(Slot, Arc<UnderLead>)> {
        self.0.lead.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it is doing, in full.
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

/// The node leads nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead")]
pub struct NotLeading;

/// The slot whose leader has a partition.
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

    /// Whose it is, and what it is called.
    pub fn name(&self) -> &AppName {
        &self.settings.name
    }

    /// What it is.
    pub fn application(&self) -> &Application {
        &self.settings.application
    }

    /// The partition of a workspace.
    pub fn partition_of(&self, ws: WsId) -> u16 {
        self.partitions.of(ws)
    }

    /// The partition of a workspace, if it is at work on this node.
    ///
    /// # Errors
    /// If it is not: another node leads it, or this one is not ready.
    pub fn at(&self, ws: WsId) -> Result<Here<'_>, NotLeader> {
        let partition = self.partition_of(ws);
        let not_leader = NotLeader { partition };
        let commands = self.partitions.commands(partition).ok_or(not_leader)?;
        let opened = self.opened.get().ok_or(not_leader)?;
        let here = Here { commands, app: self, opened, partition };
        here.may_answer()?;
        Ok(here)
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
pub struct Here<'a> {
    commands: Commands,
    app: &'a App,
    opened: &'a Opened,
    partition: u16,
}

impl Here<'_> {
    /// Has a command done.
    ///
    /// # Errors
    /// As [`Commands::run`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn run(&self, command: Command) -> Result<Done, Refused> {
        self.commands.run(command).await
    }

    /// Whether what was read may be told: a node that stood still may not know yet that it leads no more.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_answer(&self) -> Result<(), NotLeader> {
        let not_leader = NotLeader { partition: self.partition };
        if self.commands.may_answer() { Ok(()) } else { Err(not_leader) }
    }

    /// Where its commands are sent.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// All events in front of this one in the log of the partition are applied. Whoever asks right after a command was answered finds its event
    /// among them.
    ///
    /// # Errors
    /// Why the log was not read yet.
    pub fn applied(&self) -> Result<Offset, Busy> {
        self.commands.applied()
    }

    /// The log of one of its workspaces from an event on, to the last event that is applied. If one of them is missing or damaged, the
    /// stream ends with an error, and the status of the partition tells it.
    ///
    /// # Errors
    /// Why the log of the partition was not read yet.
    pub fn log(
        &self,
        ws: WsId,
        from: Offset,
    ) -> Result<BoxStream<'static, eventlog::Result<Entry>>, Busy> {
        self.commands.wlog(ws, from, self.stored(ws, standard::WLOG_OFFSET))
    }

    /// A record. One that is damaged is told by the status of the partition.
    ///
    /// # Errors
    /// As [`Reader::record`].
    pub async fn record(&self, ws: WsId, id: RecordId) -> eventlog::Result<Option<StoredRecord>> {
        self.commands.record(ws, id).await
    }

    /// The records of a workspace, as [`Reader::records`] reads them. One that is damaged is told by the status of the
    /// partition.
    pub fn records(
        &self,
        ws: WsId,
        from: RecordId,
        last: RecordId,
    ) -> impl Stream<Item = eventlog::Result<StoredRecord>> + Send + Unpin + use<> {
        self.commands.records(ws, from, last)
    }

    /// Reads what is stored, also what is not applied yet.
    pub fn reader(&self) -> &Reader {
        &self.opened.reader
    }

    /// The last number of a sequence of a workspace that an event has which is applied. While a group with trouble is
    /// recovered, the numbers of its events may be missing.
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
