//! The search for the place of an event whose bytes no longer name it.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use istorage::Consistency;

use crate::{
    AppRow, Deployment, DeploymentError, Entry, Epoch, EventPlace, Offset, Reader, Result,
    TrustLevel, WsId,
};

/// The number of events before a damaged event that are searched, and of those after it.
pub const SEARCHED_EVENTS: u64 = 4_096;

/// The number of rows that are read in one call.
const CHUNK: usize = 64;

/// A place that a damaged event may have in the log of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceCandidate {
    /// The workspace.
    pub ws: WsId,
    /// The offset in the log of the workspace.
    pub wlog: Offset,
    /// Why the event may be there.
    pub evidence: PlaceEvidence,
}

/// Why a damaged event may have a place. The most certain one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceEvidence {
    /// The log of the workspace has a copy or a marker of the event there.
    Copy,
    /// The log of the workspace has a row there that cannot be read.
    DamagedCopy,
    /// The log of the workspace has no row there, but a later event of the workspace has a higher
    /// offset.
    Gap,
}

/// The known offsets of a workspace around a damaged event.
#[derive(Clone, Copy, Default)]
struct Around {
    /// The offset of the last event before the damaged one.
    before: Option<u64>,
    /// The offset of the first event after it.
    next: Option<u64>,
}

impl Reader {
    /// Searches for the places that the damaged event at `plog` may have, the most certain one
    /// first. The search covers the workspaces of [`SEARCHED_EVENTS`] events before the event and
    /// after it. So an event is not found if its workspace has no other event there, or if the
    /// event is the last one of its workspace and was never applied.
    ///
    /// Invariant: a stray of level 2 is no candidate. A simpler version takes each copy of the
    /// event. Leader A stalls, and leader B writes event 7 in workspace 1; A leaves its event 7 at
    /// the end of the log of workspace 2; the event of B is damaged. An operator marks it in
    /// workspace 2, so the numbers that it drew in workspace 1 are given again. The next event of
    /// workspace 2 gets the offset of the stray, and replaces it. So a copy of level 2 counts only
    /// if a later event of its workspace has a higher offset.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn place_candidates(
        &self,
        partition: u16,
        plog: Offset,
    ) -> Result<Vec<PlaceCandidate>> {
        let stray_before = self.stored_stray_before().await?;
        self.place_candidates_from(partition, plog, stray_before).await
    }

    /// Searches as [`Reader::place_candidates`] does. A copy of an epoch below `stray_before` may
    /// be a stray.
    pub(crate) async fn place_candidates_from(
        &self,
        partition: u16,
        plog: Offset,
        stray_before: Epoch,
    ) -> Result<Vec<PlaceCandidate>> {
        let may_be_stray = |copy: &Entry| match copy {
            Entry::Event(event) => event.place.epoch < stray_before,
            // The leader that marked the event knew its place.
            Entry::Marker(_) | Entry::Fencing(_) => false,
        };
        let from = Offset(plog.0.saturating_sub(SEARCHED_EVENTS).max(Offset::FIRST.0));
        let row = move |offset| AppRow::Plog(partition, offset);
        let mut rows = self.log_rows(row, from, Consistency::Plain);
        let mut workspaces: BTreeMap<WsId, Around> = BTreeMap::new();
        while let Some((offset, bytes)) = rows.try_next().await? {
            if offset.0 > plog.0.saturating_add(SEARCHED_EVENTS) {
                break;
            }
            let Ok(entry) = self.entry(row(offset), &bytes) else { continue };
            let Some(EventPlace { ws, wlog: Offset(wlog), .. }) = entry.place() else { continue };
            let around = workspaces.entry(ws).or_default();
            if offset < plog {
                around.before = Some(wlog);
            } else {
                around.next.get_or_insert(wlog);
            }
        }
        let places: Vec<_> = workspaces.into_iter().filter_map(place).collect();
        let mut found = Vec::new();
        for chunk in places.chunks(CHUNK) {
            let rows: Vec<AppRow> =
                chunk.iter().map(|(ws, wlog, _)| AppRow::Wlog(*ws, *wlog)).collect();
            let there = self.rows(&rows).await?;
            for ((row, bytes), (ws, wlog, has_next)) in rows.iter().zip(there).zip(chunk) {
                let evidence = match bytes.map(|bytes| self.entry(*row, &bytes)) {
                    Some(Ok(entry)) if entry.plog() != plog => continue,
                    Some(Ok(copy)) if may_be_stray(&copy) && !has_next => continue,
                    Some(Ok(_)) => PlaceEvidence::Copy,
                    Some(Err(_)) => PlaceEvidence::DamagedCopy,
                    None if *has_next => PlaceEvidence::Gap,
                    None => continue,
                };
                found.push(PlaceCandidate { ws: *ws, wlog: *wlog, evidence });
            }
        }
        found.sort_by_key(|candidate| candidate.evidence);
        Ok(found)
    }

    /// Returns the epoch below which level 2 may have written, as the deployment says. If the
    /// deployment cannot be read, these are all epochs.
    async fn stored_stray_before(&self) -> Result<Epoch> {
        match Deployment::stored(self.storage(), self.deadline()).await {
            Ok(None) => Ok(Epoch(0)),
            Ok(Some(stored)) if stored.level != TrustLevel::Two => Ok(stored.stray_before),
            Err(DeploymentError::Storage(error)) => Err(error.into()),
            Ok(Some(_)) | Err(_) => Ok(Epoch(u64::MAX)),
        }
    }
}

/// Returns the only offset that a lost event of a workspace can have, and whether an event of the
/// workspace comes after it. `None` if the events around leave no room for one.
fn place((ws, Around { before, next }): (WsId, Around)) -> Option<(WsId, Offset, bool)> {
    let wlog = match (before, next) {
        (Some(before), Some(next)) if next <= before + 1 => return None,
        (Some(before), _) => before + 1,
        (None, Some(next)) => next.checked_sub(1).filter(|wlog| *wlog >= Offset::FIRST.0)?,
        (None, None) => return None,
    };
    Some((ws, Offset(wlog), next.is_some()))
}
