//! The repair of a row of the stored numbers.

use eventlog::WsId;
use seqstorage::NumberRepairError;
use sysvvm::NumberPlace;

use super::{NumberRequest, RepairAction, RepairError, RepairNote, mark::PartitionRepair, rows};

impl PartitionRepair {
    /// Stores a number in a row that holds none, if the row still holds the bytes that the operator
    /// has seen.
    pub(super) async fn number(self, request: NumberRequest) -> Result<RepairNote, RepairError> {
        let NumberRequest { place, number, digest, is_dry_run, .. } = request;
        let (ws, seq, declared) = match place {
            NumberPlace::Offset => (None, 0, Vec::new()),
            NumberPlace::Last { ws, seq } => (Some(ws), seq, self.sequences_of(WsId(ws)).await?),
        };
        let storage = &self.started.storage;
        let plan = storage.plan_number(place, number, &declared).await?;
        let name = rows::with_key(&place.name(self.partition), plan.key());
        let note = RepairNote {
            ws,
            numbers: [(seq, plan.number())].into(),
            ..self.note(RepairAction::Numbered, name, plan.found())
        };
        let confirmed = note.confirmed_by(digest.as_deref());
        let changed = note.changed();
        let repair = async {
            match storage.repair_number(&plan).await {
                Err(NumberRepairError::Changed) => Err(changed),
                written => Ok(written?),
            }
        };
        self.noted(note, is_dry_run, confirmed, repair).await
    }
}
