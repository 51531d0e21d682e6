//! Repair by an operator: the partitions that are not at work, the row in the way of each, and the
//! marking of an event that cannot be read.
//!
//! Invariant: the table of repairs has a row for each repair. The row is written before the repair,
//! because the node may crash between the two.

mod mark;
mod number;
mod rows;
mod tasks;

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use eventlog::{DrawnNumber, Offset, WsId};
use processor::bytes::Bytes;
use seqstorage::{MarkError, NumberRepairError};
use serde::{Deserialize, Serialize};
use sysvvm::NumberPlace;

use self::mark::PartitionRepair;
pub(crate) use self::tasks::RepairTasks;
pub use self::{
    rows::{PlaceHint, ProposedPlace, RowContent, RowInTheWay, StuckPartition},
    tasks::NoResult,
};
use crate::{App, NotOwner, app::ServedApp};

/// The largest number of repairs of each partition that are listed.
const LISTED: usize = 20;

/// A request to mark an event, or to write a fencing entry again. The operator gives the place of
/// the event in the WLog, and the numbers that the event drew, if they are not known.
#[derive(Clone, Debug)]
pub struct MarkRequest {
    /// The number of the partition.
    pub partition: u16,
    /// The offset of the event in the PLog.
    pub event: Offset,
    /// The workspace of the event, and the offset of the event in the WLog. `None` states that the
    /// row is a damaged fencing entry.
    pub place: Option<(WsId, Offset)>,
    /// The last number that the event drew of each sequence.
    pub numbers: Option<Vec<DrawnNumber>>,
    /// Whether the place that the damaged bytes still name is wrong.
    pub ignores_hint: bool,
    /// The action that a dry run returned and the operator confirmed. Another one is refused: the
    /// copy of the event may have changed since.
    pub action: Option<RepairAction>,
    /// Whether nothing is to be written.
    pub is_dry_run: bool,
}

/// A request to remove the row in the way of a partition.
#[derive(Clone, Debug)]
pub struct RemoveRequest {
    /// The number of the partition.
    pub partition: u16,
    /// The digest of the bytes that the operator has seen; `None` in a dry run.
    pub digest: Option<String>,
    /// Whether the operator states that no node wrote the row, so that it is not a damaged event.
    pub is_foreign: bool,
    /// Whether nothing is to be written.
    pub is_dry_run: bool,
}

/// A request to repair a row of the stored numbers that holds no number.
#[derive(Clone, Debug)]
pub struct NumberRequest {
    /// The number of the partition.
    pub partition: u16,
    /// The place of the number.
    pub place: NumberPlace,
    /// The number to be stored. For the stored offset: the next event to replay. In a dry run
    /// `None` asks for a safe number.
    pub number: Option<u64>,
    /// The digest of the bytes that the operator has seen; `None` in a dry run.
    pub digest: Option<String>,
    /// Whether nothing is to be written.
    pub is_dry_run: bool,
}

/// The kind of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RepairAction {
    /// A marker was put in the place of an event.
    Marked,
    /// An event was restored from its copy in the WLog.
    Restored,
    /// A fencing entry was written again.
    Fenced,
    /// A foreign row was removed.
    Removed,
    /// A number was stored in a row that held none.
    Numbered,
}

/// A repair. The table of repairs has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairNote {
    /// The kind of the repair.
    pub action: RepairAction,
    /// The time of the repair, in microseconds since 1970.
    pub at_micros: u64,
    /// The number of the partition.
    pub partition: u16,
    /// The epoch of the leader that repaired the row.
    pub epoch: u64,
    /// The name of the row, with its key.
    pub row: String,
    /// The offset in the PLog, if an event was marked or restored, or a fencing entry was written.
    pub event: Option<u64>,
    /// The workspace of this event, or of the number.
    pub ws: Option<u64>,
    /// The offset of the event in the WLog.
    pub offset: Option<u64>,
    /// The numbers of the marker: the last number of each sequence. Or the number that was stored;
    /// sequence 0 is the stored offset of the partition.
    pub numbers: BTreeMap<u16, u64>,
    /// The first 1,024 bytes that the repair replaced or removed, in hexadecimal. A marker keeps
    /// all of them.
    pub replaced: String,
    /// The number of all bytes that were replaced or removed, and their CRC-32.
    pub digest: String,
    /// Whether the row was written. False in a dry run, if the repair failed, and if the node ended
    /// during the repair: then look at the log.
    pub is_done: bool,
}

/// The reason why a row was not repaired, or is not known to be repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// This node does not own the partition.
    #[error(transparent)]
    NotOwner(#[from] NotOwner),
    /// The row is not repaired.
    #[error(transparent)]
    Refused(MarkError),
    /// The row of a number is not repaired.
    #[error(transparent)]
    Number(NumberRepairError),
    /// The repair is now another one than the operator confirmed.
    #[error("the event would now be {0}: ask again with a dry run")]
    OtherAction(RepairAction),
    /// The application has no such partition.
    #[error("there is no partition {partition}: the application has the partitions 0 to {last}")]
    NoPartition {
        /// The number that was asked for.
        partition: u16,
        /// The highest number of a partition.
        last: u16,
    },
    /// No row of the application is in the way of the partition.
    #[error("no row of the application is in the way of partition {0}: run `vvm repair list`")]
    NoRow(u16),
    /// The row in the way holds other bytes than the operator has seen.
    #[error("{row} holds other bytes now ({found}): run `vvm repair list` again")]
    Changed {
        /// The row, with its key.
        row: String,
        /// The digest of the bytes in the row.
        found: String,
    },
    /// The storage or the leadership failed. Ask again, and look at the list of repairs.
    #[error(transparent)]
    Failed(MarkError),
    /// The table of repairs cannot be written, so nothing was repaired.
    #[error("the table of repairs cannot be written: {0}")]
    Table(#[source] sysvvm::Error),
    /// It is not known how the repair ended. Look at the list of repairs.
    #[error(transparent)]
    NoResult(#[from] NoResult),
}

impl fmt::Display for RepairAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RepairAction::Marked => "marked",
            RepairAction::Restored => "restored",
            RepairAction::Fenced => "fenced",
            RepairAction::Removed => "removed",
            RepairAction::Numbered => "numbered",
        })
    }
}

/// The text is not an action of a repair of an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`marked`, `restored` or `fenced` is expected")]
pub struct NoSuchAction;

impl FromStr for RepairAction {
    type Err = NoSuchAction;

    fn from_str(text: &str) -> Result<RepairAction, NoSuchAction> {
        [RepairAction::Marked, RepairAction::Restored, RepairAction::Fenced]
            .into_iter()
            .find(|action| action.to_string() == text)
            .ok_or(NoSuchAction)
    }
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

impl From<NumberRepairError> for RepairError {
    fn from(error: NumberRepairError) -> RepairError {
        match error {
            NumberRepairError::Log(error) => MarkError::Log(error).into(),
            NumberRepairError::Numbers(error) => MarkError::Numbers(error).into(),
            refused => RepairError::Number(refused),
        }
    }
}

impl RepairNote {
    /// Checks that the row holds the bytes that the operator has seen.
    fn confirmed_by(&self, digest: Option<&str>) -> Result<(), RepairError> {
        if digest == Some(&self.digest) { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> RepairError {
        RepairError::Changed { row: self.row.clone(), found: self.digest.clone() }
    }
}

impl RepairError {
    /// Whether a write of the repair may still land.
    fn may_still_land(&self) -> bool {
        use eventlog::Error::{Storage, Unknown};
        match self {
            RepairError::Failed(MarkError::Numbers(sysvvm::Error::Storage(error))) => {
                error.kind() == istorage::ErrorKind::OutcomeUnknown
            }
            RepairError::Failed(MarkError::Log(Unknown(_))) => true,
            RepairError::Failed(MarkError::Log(Storage(error))) => {
                error.kind() == istorage::ErrorKind::OutcomeUnknown
            }
            _ => false,
        }
    }
}

impl App {
    /// The number of partitions that are on this node.
    pub fn partitions_here(&self) -> usize {
        self.partitions.status().len()
    }

    /// The partitions that are on this node and run no commands, each with the row in its way, and
    /// the partitions whose readers or commands met damaged rows.
    pub async fn stuck_partitions(&self) -> Vec<StuckPartition> {
        use processor::{FullQueue, Status};
        let mut stuck = Vec::new();
        for (partition, status) in self.partitions.status() {
            let Some(commands) = self.partitions.commands(partition) else { continue };
            let is_working = matches!(status, Status::Ready | Status::Full(FullQueue::Commands));
            let obstacle = if is_working { None } else { commands.obstacle() };
            let (row, damaged) = match self.opened.get() {
                Some(served) => {
                    let there = Arc::clone(served);
                    let rows = async move {
                        match obstacle {
                            Some(obstacle) => {
                                let row = there.row_in_the_way(partition, obstacle).await;
                                (Some(row), Vec::new())
                            }
                            None if is_working => {
                                (None, there.damaged_rows(partition, &commands).await)
                            }
                            None => (None, Vec::new()),
                        }
                    };
                    served.repair_tasks.read(rows).await.unwrap_or_default()
                }
                None => (None, Vec::new()),
            };
            if is_working && damaged.is_empty() {
                continue;
            }
            let (app, status) = (self.name().to_string(), status.to_string());
            stuck.push(StuckPartition { app, partition, status, row, damaged });
        }
        stuck
    }

    /// The last repairs of the partitions that are on this node, the newest of each partition
    /// first.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn repairs(&self) -> Result<Vec<RepairNote>, sysvvm::Error> {
        let Some(served) = self.opened.get() else { return Ok(Vec::new()) };
        let partitions: Vec<u16> =
            self.partitions.status().into_iter().map(|(partition, _)| partition).collect();
        let there = Arc::clone(served);
        let read = async move {
            let mut repairs = Vec::new();
            for partition in partitions {
                repairs.extend(there.repairs_of(partition).await?);
            }
            Ok(repairs)
        };
        let ended = |why: NoResult| istorage::Error::unavailable(why.to_string()).into();
        served.repair_tasks.read(read).await.unwrap_or_else(|why| Err(ended(why)))
    }

    /// Restores an event that cannot be read from its whole copy in the WLog. Puts a marker in the
    /// place of the event if there is no whole copy, or if the copy names an epoch under which
    /// level 2 may have written: a former leader may have left the copy. A fencing entry is written
    /// again. Afterwards the partition goes on by itself.
    ///
    /// # Errors
    /// The reason why the event was not marked.
    ///
    /// # Cancel safety
    /// If the future is dropped, the repair goes on to its end.
    pub async fn mark_event(&self, request: MarkRequest) -> Result<RepairNote, RepairError> {
        self.repair(request.partition, request.is_dry_run, |repair| repair.mark(request)).await
    }

    /// Removes the foreign row that keeps a partition from working. Afterwards the partition goes
    /// on by itself.
    ///
    /// # Errors
    /// The reason why the row was not removed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the removal goes on to its end.
    pub async fn remove_row(&self, request: RemoveRequest) -> Result<RepairNote, RepairError> {
        self.repair(request.partition, request.is_dry_run, |repair| repair.remove(request)).await
    }

    /// Stores a number in a row of the stored numbers that holds none. Afterwards the partition
    /// goes on by itself.
    ///
    /// # Errors
    /// The reason why the number was not stored.
    ///
    /// # Cancel safety
    /// If the future is dropped, the repair goes on to its end.
    pub async fn repair_number(&self, request: NumberRequest) -> Result<RepairNote, RepairError> {
        self.repair(request.partition, request.is_dry_run, |repair| repair.number(request)).await
    }

    /// Runs a repair to its end, or a dry run as long as the caller waits.
    async fn repair<Work>(
        &self,
        partition: u16,
        is_dry_run: bool,
        work: impl FnOnce(PartitionRepair) -> Work,
    ) -> Result<RepairNote, RepairError>
    where
        Work: Future<Output = Result<RepairNote, RepairError>> + Send + 'static,
    {
        let last = self.settings.partitions.get() - 1;
        if partition > last {
            return Err(RepairError::NoPartition { partition, last });
        }
        let not_owner = NotOwner { partition };
        let served = Arc::clone(self.opened.get().ok_or(not_owner)?);
        let commands = self.partitions.commands(partition).ok_or(not_owner)?;
        let started = served.started().get(&partition).cloned().ok_or(not_owner)?;
        let (app, clock) = (self.name().clone(), self.clock.clone());
        let application = Arc::clone(&self.settings.application);
        let repair =
            PartitionRepair { app, application, partition, clock, served, commands, started };
        repair.may_go_on()?;
        let served = Arc::clone(&repair.served);
        let (tasks, work) = (&served.repair_tasks, work(repair));
        if is_dry_run { tasks.read(work).await? } else { tasks.run(work).await? }
    }
}

impl ServedApp {
    /// The last repairs of a partition, the newest first.
    async fn repairs_of(&self, partition: u16) -> Result<Vec<RepairNote>, sysvvm::Error> {
        let timeout = self.reader.timeout();
        let rows = self.repairs.last(partition, LISTED, timeout).await?;
        let read = |row: &Bytes| {
            serde_json::from_slice(row).map_err(|error| sysvvm::Error::Foreign {
                what: format!("a repair of partition {partition} cannot be read: {error}"),
            })
        };
        rows.iter().map(read).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
