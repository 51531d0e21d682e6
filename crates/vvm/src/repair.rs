//! Repair by an operator: the partitions that are not at work, the row in the way of each, and the
//! marking of an event that cannot be read.
//!
//! Invariant: the table of repairs has a row for each marker that an operator put. The row is
//! written before the marker, because the node may crash between the two.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use clock::WallTime;
use eventlog::{AppRow, DrawnNumber, Obstacle, Offset, Repair, WsId};
use processor::bytes::Bytes;
use seqstorage::{MarkError, MarkPlan, PartitionStorage};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::{App, NotLeader, app::ServedApp};

/// The number of repairs of a partition that are listed.
const LISTED: usize = 20;

/// The number of bytes of a row that are shown.
const SHOWN: usize = 1_024;

/// A partition that runs no commands.
#[derive(Clone, Debug, Serialize)]
pub struct StuckPartition {
    /// The owner and the name of the application.
    pub app: String,
    /// The number of the partition.
    pub partition: u16,
    /// The status of the partition.
    pub status: String,
    /// The row in the way; `None` if the partition does not wait for a repair of a row.
    pub row: Option<RowInTheWay>,
}

/// A row that keeps a partition from working.
#[derive(Clone, Debug, Serialize)]
pub struct RowInTheWay {
    /// The name of the row, with its key.
    pub name: String,
    /// The offset of the event in the PLog, if the row is one.
    pub event: Option<u64>,
    /// The content of the row now; `None` if there is no such row.
    pub found: Option<RowContent>,
    /// The bytes that the node was about to write, if it met the row in a write. They are not always
    /// the right content.
    pub expected: Option<RowContent>,
    /// The repair of the row: `mark`, `restore`, `remove` or `other_version`.
    pub repair: &'static str,
    /// The repair of the row, for a person.
    pub advice: &'static str,
    /// The place that a damaged event still names in its bytes.
    pub hint: Option<PlaceHint>,
}

/// The place that the bytes of a damaged event name. It may be wrong, because the bytes are damaged.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlaceHint {
    /// The workspace of the event.
    pub ws: u64,
    /// The offset of the event in the WLog.
    pub offset: u64,
}

/// The content of a row, for an operator.
#[derive(Clone, Debug, Serialize)]
pub struct RowContent {
    /// The number of bytes.
    pub bytes: usize,
    /// The first 1,024 bytes, in hexadecimal.
    pub hex: String,
    /// The meaning of the bytes, or the reason why they cannot be read.
    pub meaning: String,
}

/// A request to mark an event. The operator gives the place of the event in the WLog, and the
/// numbers that the event drew, if they are not known.
#[derive(Clone, Debug)]
pub struct MarkRequest {
    /// The number of the partition.
    pub partition: u16,
    /// The offset of the event in the PLog.
    pub event: Offset,
    /// The workspace of the event.
    pub ws: WsId,
    /// The offset of the event in the WLog.
    pub offset: Offset,
    /// The last number that the event drew of each sequence.
    pub numbers: Option<Vec<DrawnNumber>>,
    /// Whether the place that the damaged bytes still name is wrong.
    pub ignores_hint: bool,
    /// Whether nothing is to be written.
    pub is_dry_run: bool,
}

/// A repair: an event that was marked, or restored from its copy. The table of repairs has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairNote {
    /// The time of the repair, in microseconds since 1970.
    pub at_micros: u64,
    /// The number of the partition.
    pub partition: u16,
    /// The epoch of the leader that repaired the event.
    pub epoch: u64,
    /// The offset of the event in the PLog.
    pub event: u64,
    /// The workspace of the event.
    pub ws: u64,
    /// The offset of the event in the WLog.
    pub offset: u64,
    /// The numbers of the marker: the last number of each sequence.
    pub numbers: BTreeMap<u16, u64>,
    /// The first 1,024 damaged bytes that the repair replaced, in hexadecimal. A marker keeps all of
    /// them; a restored event does not.
    pub replaced: String,
    /// Whether the event was restored from its copy in the WLog, and not marked.
    pub is_restored: bool,
    /// Whether the row was written. False in a dry run, and if the node ended during the repair:
    /// then look at the log.
    pub is_done: bool,
}

/// The reason why an event was not marked, or is not known to be marked.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// This node does not lead the partition.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The event is not marked.
    #[error(transparent)]
    Refused(MarkError),
    /// The storage or the leadership failed. Ask again, and look at the list of repairs.
    #[error(transparent)]
    Failed(MarkError),
    /// The table of repairs cannot be written, so the event was not marked.
    #[error("the table of repairs cannot be written: {0}")]
    Table(#[source] sysvvm::Error),
}

impl From<MarkError> for RepairError {
    fn from(error: MarkError) -> RepairError {
        use eventlog::Error::{DamagedRow, Violation};
        match error {
            MarkError::Log(DamagedRow(_) | Violation(_)) => RepairError::Refused(error),
            MarkError::Log(_) | MarkError::Numbers(_) => RepairError::Failed(error),
            _ => RepairError::Refused(error),
        }
    }
}

impl App {
    /// The number of partitions that are on this node.
    pub fn partitions_here(&self) -> usize {
        self.partitions.status().len()
    }

    /// The partitions that are on this node and run no commands, each with the row in its way.
    pub async fn stuck_partitions(&self) -> Vec<StuckPartition> {
        let mut stuck = Vec::new();
        for (partition, status) in self.partitions.status() {
            use processor::{FullQueue, Status};
            if matches!(status, Status::Ready | Status::Full(FullQueue::Commands)) {
                continue;
            }
            let obstacle =
                self.partitions.commands(partition).and_then(|commands| commands.obstacle());
            let row = match (obstacle, self.opened.get()) {
                (Some(obstacle), Some(opened)) => Some(opened.row_in_the_way(obstacle).await),
                _ => None,
            };
            let (app, status) = (self.name().to_string(), status.to_string());
            stuck.push(StuckPartition { app, partition, status, row });
        }
        stuck
    }

    /// The last repairs of the partitions that are on this node, the newest of each partition
    /// first.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn repairs(&self) -> Result<Vec<RepairNote>, sysvvm::Error> {
        let Some(opened) = self.opened.get() else { return Ok(Vec::new()) };
        let mut repairs = Vec::new();
        for (partition, _) in self.partitions.status() {
            let timeout = opened.reader.deadline() - self.clock.now();
            let rows = opened.repairs.last(partition, LISTED, timeout).await?;
            let read = |row: &Bytes| {
                serde_json::from_slice(row).map_err(|error| sysvvm::Error::Foreign {
                    what: format!("a repair of partition {partition} cannot be read: {error}"),
                })
            };
            for row in &rows {
                repairs.push(read(row)?);
            }
        }
        Ok(repairs)
    }

    /// Restores an event that cannot be read from its whole copy in the WLog. If there is no whole
    /// copy, or at trust level 2, puts a marker in the place of the event. Afterwards the partition goes on
    /// by itself.
    ///
    /// # Errors
    /// The reason why the event was not marked.
    pub async fn mark_event(&self, request: MarkRequest) -> Result<RepairNote, RepairError> {
        let MarkRequest { partition, event, ws, offset, numbers, ignores_hint, is_dry_run } =
            request;
        let not_leader = NotLeader { partition };
        let opened = self.opened.get().ok_or(not_leader)?;
        let commands = self.partitions.commands(partition).ok_or(not_leader)?;
        let storage = opened.partition_storage(partition).ok_or(not_leader)?;
        if !commands.may_answer() {
            return Err(not_leader.into());
        }
        // Two repairs of one event with different places would leave a marker at the wrong one.
        let _one_at_a_time = opened.repairing.lock().await;
        let plan = storage.plan_marker(event, ws, offset, numbers, ignores_hint).await?;
        let mut note = note_of(&plan, partition, storage.epoch().0, self.clock.wall());
        if is_dry_run {
            return Ok(note);
        }
        let put = async |note: &RepairNote| {
            let row = serde_json::to_vec(note).unwrap_or_default().into();
            let at = WallTime::from_nanos(note.at_micros * 1_000);
            let deadline = opened.reader.deadline();
            opened.repairs.put(partition, at, row, deadline).await
        };
        put(&note).await.map_err(RepairError::Table)?;
        storage.repair(plan).await?;
        note.is_done = true;
        info!(
            app = %self.name(), partition, event = event.0, ws = ws.0, offset = offset.0,
            numbers = ?note.numbers, restored = note.is_restored, "event repaired"
        );
        // The event is marked, and the table has the repair, although not as done.
        if let Err(error) = put(&note).await {
            info!(partition, event = event.0, %error, "repair not noted as done");
        }
        Ok(note)
    }
}

impl ServedApp {
    async fn row_in_the_way(&self, obstacle: Obstacle) -> RowInTheWay {
        let Obstacle { row, expected, repair } = obstacle;
        let mut hint = None;
        let found = match self.reader.row(row).await {
            Ok(found) => found.map(|bytes| {
                hint = row.hinted_place(&bytes);
                RowContent::of(row, &bytes)
            }),
            Err(error) => Some(RowContent {
                bytes: 0,
                hex: String::new(),
                meaning: format!("the row cannot be read now: {error}"),
            }),
        };
        let event = if let AppRow::Plog(_, offset) = row { Some(offset.0) } else { None };
        RowInTheWay {
            name: row.to_string(),
            event,
            found,
            expected: expected.map(|bytes| RowContent::of(row, &bytes)),
            hint: hint.map(|place| PlaceHint { ws: place.ws.0, offset: place.wlog.0 }),
            repair: match repair {
                Repair::Mark => "mark",
                Repair::Restore => "restore",
                Repair::Remove => "remove",
                Repair::OtherVersion => "other_version",
            },
            advice: match repair {
                Repair::Mark => "restore the row, or mark the event",
                Repair::Restore => "restore the row",
                Repair::Remove => {
                    "the row contradicts the log: find its writer; put back the former bytes of a record, or remove any other row"
                }
                Repair::OtherVersion => "run the version of the program that wrote the row",
            },
        }
    }

    pub(crate) fn partition_storage(&self, partition: u16) -> Option<Arc<PartitionStorage>> {
        let storages = self.storages.lock().unwrap_or_else(PoisonError::into_inner);
        storages.get(&partition).cloned()
    }
}

impl RowContent {
    fn of(row: AppRow, bytes: &Bytes) -> RowContent {
        RowContent {
            bytes: bytes.len(),
            hex: hex(&bytes[..bytes.len().min(SHOWN)]),
            meaning: row.describe(bytes),
        }
    }
}

fn note_of(plan: &MarkPlan, partition: u16, epoch: u64, at: WallTime) -> RepairNote {
    let place = plan.event().place();
    let replaced = plan.event().found();
    RepairNote {
        at_micros: at.as_micros(),
        partition,
        epoch,
        event: place.plog.0,
        ws: place.ws.0,
        offset: place.wlog.0,
        numbers: plan.drawn().iter().map(|drawn| (drawn.seq, drawn.last)).collect(),
        replaced: hex(&replaced[..replaced.len().min(SHOWN)]),
        is_restored: plan.restores(),
        is_done: false,
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
