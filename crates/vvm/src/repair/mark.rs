//! A repair of a partition: its writes under the leadership, and its lines in the table and in the
//! log.

use std::{collections::BTreeMap, sync::Arc};

use clock::{Clock, WallTime};
use eventlog::{AppRow, DamagedFencing, Obstacle, Value, WsId};
use isequencer::Sequence;
use processor::{Application, Commands, DeclaredSequence, bytes::Bytes};
use seqstorage::{MarkError, MarkPlan};
use sysvvm::AppName;
use tracing::info;

use super::{MarkRequest, RemoveRequest, RepairAction, RepairError, RepairNote, hex, rows::SHOWN};
use crate::{
    NotOwner,
    app::{ServedApp, StartedPartition},
};

/// The parts that a repair of a partition needs.
pub(super) struct PartitionRepair {
    pub(super) app: AppName,
    pub(super) application: Arc<Application>,
    pub(super) partition: u16,
    pub(super) clock: Clock,
    pub(super) served: Arc<ServedApp>,
    pub(super) commands: Arc<Commands>,
    pub(super) started: StartedPartition,
}

/// The planned repair of an entry that cannot be read.
enum EntryRepair {
    Event(MarkPlan),
    Fencing(DamagedFencing),
}

impl PartitionRepair {
    /// Checks that this node still leads, by the clock.
    pub(super) fn may_go_on(&self) -> Result<(), NotOwner> {
        let not_owner = NotOwner { partition: self.partition };
        if self.commands.may_answer() { Ok(()) } else { Err(not_owner) }
    }

    pub(super) async fn mark(self, request: MarkRequest) -> Result<RepairNote, RepairError> {
        let MarkRequest { event, place, numbers, ignores_hint, action, is_dry_run, .. } = request;
        let storage = &self.started.storage;
        let plan = match place {
            Some((ws, offset)) => {
                let sequences = self.sequences_of(ws).await?;
                let plan =
                    storage.plan_marker(event, ws, offset, numbers, ignores_hint, &sequences);
                EntryRepair::Event(plan.await?)
            }
            None => EntryRepair::Fencing(storage.plan_fencing(event, ignores_hint).await?),
        };
        let note = self.note_of(&plan);
        let confirmed = match action {
            Some(action) if action != note.action => Err(RepairError::OtherAction(note.action)),
            _ => Ok(()),
        };
        let repair = async {
            match plan {
                EntryRepair::Event(plan) => drop(storage.repair(plan).await?),
                EntryRepair::Fencing(plan) => storage.restore_fencing(&plan).await?,
            }
            Ok(())
        };
        self.noted(note, is_dry_run, confirmed, repair).await
    }

    /// The sequences that the application declares for a workspace. If the kind of the workspace is
    /// not known, because its descriptor is missing or damaged: those of all kinds.
    pub(super) async fn sequences_of(&self, ws: WsId) -> Result<Vec<Sequence>, MarkError> {
        let descriptor = match self.served.reader.record(ws, Application::DESCRIPTOR).await {
            Ok(descriptor) => descriptor,
            Err(eventlog::Error::DamagedRow(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let kind = descriptor.and_then(|mut stored| stored.record.fields.remove("kind"));
        let is_of_kind = |declared: &&DeclaredSequence| match &kind {
            Some(Value::String(kind)) => declared.kind == *kind,
            _ => true,
        };
        let declared =
            self.application.declarations().declared_sequences().iter().filter(is_of_kind);
        Ok(declared.map(|declared| declared.sequence.clone()).collect())
    }

    /// Removes the row in the way, if it still holds the bytes that the operator has seen.
    pub(super) async fn remove(self, request: RemoveRequest) -> Result<RepairNote, RepairError> {
        let RemoveRequest { digest, is_foreign, is_dry_run, .. } = request;
        let no_row = RepairError::NoRow(self.partition);
        let Some(Obstacle::Row { row, repair, .. }) = self.commands.obstacle() else {
            return Err(no_row);
        };
        let read = self.served.reader.row(row).await.map_err(MarkError::from)?;
        let found = read.ok_or(no_row)?;
        self.started.storage.check_removal(row, repair, is_foreign).await?;
        let note = self.note(RepairAction::Removed, row.to_string(), &found);
        let confirmed = note.confirmed_by(digest.as_deref());
        let repair = async { Ok(self.started.storage.remove(row, &found).await?) };
        self.noted(note, is_dry_run, confirmed, repair).await
    }

    /// Does a repair, with a row in the table of repairs before and after it. A dry run ends with
    /// the note. `confirmed` tells whether the repair is the one that the operator has seen.
    ///
    /// Invariant: the lease is released only after the writes of the repair have ended. After a
    /// write without an answer the lease is left to expire, because the write may still land.
    pub(super) async fn noted(
        &self,
        mut note: RepairNote,
        is_dry_run: bool,
        confirmed: Result<(), RepairError>,
        repair: impl Future<Output = Result<(), RepairError>>,
    ) -> Result<RepairNote, RepairError> {
        if is_dry_run {
            return Ok(note);
        }
        confirmed?;
        let work = self.started.fence.begin_work();
        let work = work.map_err(|_| NotOwner { partition: self.partition })?;
        let done = async {
            self.put(&note).await?;
            repair.await
        };
        let done = done.await;
        if let Err(error) = done {
            if !error.may_still_land() {
                work.finish();
            }
            return Err(error);
        }
        note.is_done = true;
        let RepairNote { action, row, ws, offset, numbers, .. } = &note;
        info!(
            app = %self.app, partition = self.partition, ?action, row, ws, offset, ?numbers,
            "row repaired"
        );
        // The row is repaired, and the table has the repair, although not as done.
        if let Err(error) = self.put(&note).await {
            info!(partition = self.partition, %error, "repair not noted as done");
        }
        work.finish();
        Ok(note)
    }

    /// Writes a repair into the table of repairs. A late write of such a row does no harm.
    async fn put(&self, note: &RepairNote) -> Result<(), RepairError> {
        let row = serde_json::to_vec(note).unwrap_or_default().into();
        let at = WallTime::from_nanos(note.at_micros * 1_000);
        let deadline = self.served.reader.deadline();
        let put = self.served.repairs.put(self.partition, at, row, deadline).await;
        put.map_err(RepairError::Table)
    }

    fn note_of(&self, plan: &EntryRepair) -> RepairNote {
        let plan = match plan {
            EntryRepair::Event(plan) => plan,
            EntryRepair::Fencing(plan) => {
                let plog = plan.entry().plog;
                let row = AppRow::Plog(self.partition, plog);
                let note = self.note(RepairAction::Fenced, row.to_string(), plan.found());
                return RepairNote { event: Some(plog.0), ..note };
            }
        };
        let place = plan.event().place();
        let action = if plan.restores() { RepairAction::Restored } else { RepairAction::Marked };
        let row = AppRow::Plog(self.partition, place.plog);
        RepairNote {
            event: Some(place.plog.0),
            ws: Some(place.ws.0),
            offset: Some(place.wlog.0),
            numbers: plan.drawn().iter().map(|drawn| (drawn.seq, drawn.last)).collect(),
            ..self.note(action, row.to_string(), plan.event().found())
        }
    }

    pub(super) fn note(&self, action: RepairAction, row: String, replaced: &Bytes) -> RepairNote {
        RepairNote {
            action,
            at_micros: self.clock.wall().as_micros(),
            partition: self.partition,
            epoch: self.started.storage.epoch().0,
            row,
            event: None,
            ws: None,
            offset: None,
            numbers: BTreeMap::new(),
            replaced: hex(&replaced[..replaced.len().min(SHOWN)]),
            digest: eventlog::row_digest(replaced),
            is_done: false,
        }
    }
}
