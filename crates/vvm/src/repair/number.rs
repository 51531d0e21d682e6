//! The repair of a row of the stored numbers.

use eventlog::WsId;
use isequencer::SeqId;
use seqstorage::{NumberRepairError, NumberRow};

use super::{NumberRequest, RepairAction, RepairError, RepairNote, mark::PartitionRepair, rows};

impl PartitionRepair {
    /// Stores a number in a row that holds none, if the row still holds the bytes that the operator
    /// has seen.
    pub(super) async fn number(self, request: NumberRequest) -> Result<RepairNote, RepairError> {
        let NumberRequest { sequence, number, digest, is_dry_run, .. } = request;
        let _one_at_a_time = self.one_at_a_time(is_dry_run).await;
        let (row, declared) = match sequence {
            None => (NumberRow::Offset, Vec::new()),
            Some((ws, seq)) => (NumberRow::Last(ws, seq), self.sequences_of(ws).await?),
        };
        let storage = &self.started.storage;
        let plan = storage.plan_number(row, number, &declared).await?;
        let (ws, seq) = sequence.map_or((None, SeqId(0)), |(WsId(ws), seq)| (Some(ws), seq));
        let name = rows::name_of_number(&row_name(row, self.partition), plan.key());
        let note = RepairNote {
            ws,
            numbers: [(seq.0, plan.number())].into(),
            ..self.note(RepairAction::Numbered, name, plan.found())
        };
        if is_dry_run {
            return Ok(note);
        }
        if digest.as_ref() != Some(&note.digest) {
            return Err(RepairError::Changed { row: note.row, found: note.digest });
        }
        let (row, found) = (note.row.clone(), note.digest.clone());
        let repair = async {
            match storage.repair_number(&plan).await {
                Err(NumberRepairError::Changed) => Err(RepairError::Changed { row, found }),
                written => Ok(written?),
            }
        };
        self.noted(note, repair).await
    }
}

fn row_name(row: NumberRow, partition: u16) -> String {
    match row {
        NumberRow::Offset => format!("the stored offset of partition {partition}"),
        NumberRow::Last(WsId(ws), SeqId(seq)) => {
            format!("the number of sequence {seq} of workspace {ws}")
        }
    }
}
