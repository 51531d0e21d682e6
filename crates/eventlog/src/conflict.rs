//! The decisions about a row that holds other bytes than the writer expects.
//!
//! The module does no I/O.

use std::num::NonZeroU16;

use bytes::Bytes;
use istorage::FoundRow;

use crate::{
    AppRow, DamagedRow, Entry, Epoch, EventPlace, Offset, StoredRecord, Version, Violation, WsId,
    plan::{RecordBasis, RowKind, RowWrite, WriteMode},
};

/// Why a record that another program has changed or deleted is a violation.
pub(crate) const CHANGED: &str = "differs from the row that was read";

fn violation(write: &RowWrite, there: Option<&Bytes>, why: &'static str) -> Box<Violation> {
    let mut violation = Violation::new(write.row, there, &write.after, why);
    violation.replaces_record = write.replaces_record();
    violation
}

/// The row in the place where an event was to be written in the log of its partition. The row is
/// not the event of this leader.
#[derive(Debug)]
pub(crate) enum PlogOccupant {
    /// An event of a later leader.
    LaterLeader(Epoch),
    /// An event of an earlier leader.
    EarlierLeader(Offset),
    /// An event of level 2 that is not in the log: the event before it has a later epoch.
    Stray(Epoch),
    /// A row that no leader before this one can have written.
    Foreign(Box<Violation>),
    /// No row any more.
    Missing,
}

/// Judges the row in the place of an event that the leader of `epoch` writes. An event of an epoch
/// below `stray_bound` is not in the log. `is_ours` tells whether an entry is of this partition:
/// the epochs of another partition say nothing about this one.
pub(crate) fn judge_plog_row(
    write: &RowWrite,
    epoch: Epoch,
    stray_bound: Epoch,
    there: Option<&Bytes>,
    is_ours: impl Fn(&Entry) -> bool,
) -> PlogOccupant {
    let Some(bytes) = there else { return PlogOccupant::Missing };
    let entry = Entry::from_bytes(bytes).ok().filter(is_ours);
    match (write.row, entry.map(|entry| (entry.epoch(), entry.plog()))) {
        (_, Some((later, _))) if later > epoch => PlogOccupant::LaterLeader(later),
        (AppRow::Plog(_, offset), Some((earlier, at))) if at == offset && earlier < epoch => {
            match earlier < stray_bound {
                true => PlogOccupant::Stray(earlier),
                false => PlogOccupant::EarlierLeader(offset),
            }
        }
        _ => PlogOccupant::Foreign(violation(
            write,
            there,
            "holds bytes that no earlier leader wrote",
        )),
    }
}

/// Judges the row of a write that follows from an event in the log of its partition. Returns `None`
/// if the write is already done, else how the row is to be written.
///
/// Invariant: the versions of records decide only if the event was in the log before. A simpler
/// version lets them decide always. Another program puts a record of this number that names the
/// version which the command has read, or a later one; the simpler version takes this row for its
/// own, and replaces it, or leaves the row of the event out. In a recovery such a row may be right:
/// later events wrote it, or an operator repaired it.
///
/// Invariant: a record that the command has read is not written where its row is missing. A simpler
/// version inserts it. A command reads the record; another program deletes the row, which hides the
/// put of the event; the simpler version inserts the record. So the deletion would be undone, and
/// nobody would notice.
pub(crate) fn judge_applied_row(
    write: &RowWrite,
    there: Option<&Bytes>,
) -> Result<Option<WriteMode>, Box<Violation>> {
    let wrong = |why| Err(violation(write, there, why));
    let Some(bytes) = there else {
        return match write.kind {
            RowKind::Record { replaces: Some(_), basis: RecordBasis::Read, .. } => wrong(CHANGED),
            _ => Ok(Some(WriteMode::Conditional(None))),
        };
    };
    if *bytes == write.after {
        return Ok(None);
    }
    match write.kind {
        RowKind::Marker => match (write.row, Entry::from_bytes(bytes)) {
            // An event that is damaged in the log of the partition may be whole in the log of the
            // workspace.
            (AppRow::Wlog(ws, wlog), Ok(entry))
                if entry.place().is_some_and(|place| (place.ws, place.wlog) == (ws, wlog))
                    && Entry::from_bytes(&write.after)
                        .is_ok_and(|marker| marker.plog() == entry.plog()) =>
            {
                Ok(None)
            }
            _ => wrong("holds another event"),
        },
        RowKind::Record { replaces, first, last, basis } => {
            let in_log = basis == RecordBasis::InLog;
            let stored = match write.row.record(bytes) {
                Ok(stored) => stored,
                Err(DamagedRow::Misplaced { .. }) => return wrong("holds another record"),
                Err(_) => return wrong("holds bytes that are not a record"),
            };
            let version = stored.version;
            let is_expected = match in_log {
                true => replaces == Some(version) || version >= first,
                false => write.expected() == Some(bytes),
            };
            if version > last && (in_log || version.epoch > last.epoch) {
                Ok(None)
            } else if version == last {
                // The bytes of a record may depend on the program that wrote it, so the records are
                // compared, not their bytes.
                match StoredRecord::from_bytes(&write.after) {
                    Ok(wanted) if wanted == stored => Ok(None),
                    _ => wrong("holds another record of the same event"),
                }
            } else if is_expected {
                Ok(Some(WriteMode::Conditional(Some(bytes.clone()))))
            } else if replaces.is_none() {
                wrong("already exists")
            } else {
                wrong(CHANGED)
            }
        }
        RowKind::Entry | RowKind::Answer => wrong("holds another event"),
    }
}

/// The event that a row names as its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowOrigin {
    pub(crate) version: Version,
    ws: WsId,
    /// The offset in the log of the workspace; `None` if the row does not name it.
    wlog: Option<Offset>,
}

impl RowOrigin {
    /// Returns whether the event has this place.
    pub(crate) fn is_at(&self, place: EventPlace) -> bool {
        (self.version.epoch, self.version.plog, self.ws) == (place.epoch, place.plog, place.ws)
            && self.wlog.is_none_or(|wlog| wlog == place.wlog)
    }

    /// Returns whether the event cannot be in the log, because the event of a write is in the log
    /// or comes next: the epochs of a log never fall.
    pub(crate) fn is_excluded_by(&self, write: &RowWrite) -> bool {
        let own = match write.kind {
            RowKind::Record { first, .. } => Some(first),
            RowKind::Entry | RowKind::Marker => Entry::from_bytes(&write.after)
                .ok()
                .map(|entry| Version { epoch: entry.epoch(), plog: entry.plog() }),
            RowKind::Answer => None,
        };
        own.is_some_and(|own| self.version.plog >= own.plog && self.version.epoch < own.epoch)
    }
}

/// Returns the origin of a row that is in the place of a write, if a leader of level 2 can have
/// written the row there; `None` if the row is foreign.
///
/// Level 2 writes new rows by their orders, with exceptions that are no strays. The first group
/// after a replay and a fencing entry are inserted, so they are in the log. A marker has the place
/// of an event. Level 2 updates a record conditionally if the record hides ordered writes, so an
/// updated record may be a stray of either kind.
pub(crate) fn level_2_origin(
    write: &RowWrite,
    found: &FoundRow,
    partitions: NonZeroU16,
) -> Option<RowOrigin> {
    if found.hides_ordered && !write.replaces_record() {
        return None;
    }
    match write.kind {
        RowKind::Entry | RowKind::Marker => match write.row.entry(&found.value, partitions).ok()? {
            Entry::Event(event) => {
                let EventPlace { epoch, plog, ws, wlog } = event.place;
                Some(RowOrigin { version: Version { epoch, plog }, ws, wlog: Some(wlog) })
            }
            Entry::Marker(_) | Entry::Fencing(_) => None,
        },
        RowKind::Record { .. } => {
            let StoredRecord { ws, version, .. } = write.row.record(&found.value).ok()?;
            Some(RowOrigin { version, ws, wlog: None })
        }
        RowKind::Answer => None,
    }
}

/// Returns the version of the record in the row, and the later version that a write replaces, if
/// the row is behind. In that case the event between the two versions was not applied.
pub(crate) fn skipped_versions(write: &RowWrite, there: &Bytes) -> Option<(Version, Version)> {
    let RowKind::Record { replaces: Some(replaced), .. } = write.kind else { return None };
    let stored = write.row.record(there).ok()?;
    (stored.version < replaced).then_some((stored.version, replaced))
}

#[cfg(test)]
mod tests {
    use clock::WallTime;
    use istorage::Order;

    use super::*;
    use crate::{
        Event, Marker, PreparedEvent, QName, Record, RecordId, TableKind, TrustLevel,
        plan::{GroupWrites, Rules},
    };

    const WS: WsId = WsId(7);

    fn version(epoch: u64, plog: u64) -> Version {
        Version { epoch: Epoch(epoch), plog: Offset(plog) }
    }

    fn stored(version: Version, is_active: bool) -> Bytes {
        let table: QName = "shop.Article".parse().unwrap();
        let (id, fields) = (RecordId(9), Default::default());
        let kind = TableKind::CDoc;
        let record = Record { table, kind, id, parent: None, is_active, fields };
        StoredRecord { ws: WS, version, record }.to_bytes()
    }

    /// Returns the write of a record by events 5 and 6 of epoch 2.
    fn write(replaces: Option<Version>) -> RowWrite {
        let row = AppRow::Record(WS, RecordId(9));
        let (first, last) = (version(2, 5), version(2, 6));
        RowWrite {
            row,
            key: row.key(),
            kind: RowKind::Record { replaces, first, last, basis: RecordBasis::InLog },
            order: Order::from_parts(2, 6).unwrap(),
            after: stored(last, true),
            mode: WriteMode::Conditional(None),
        }
    }

    fn judged(write: &RowWrite, there: Option<&Bytes>) -> Result<Option<WriteMode>, &'static str> {
        judge_applied_row(write, there).map_err(|violation| violation.why)
    }

    #[test]
    fn a_record_is_replaced_only_if_the_events_of_the_group_found_or_wrote_it() {
        let (new, updated) = (write(None), write(Some(version(1, 3))));
        for write in [&new, &updated] {
            assert_eq!(judged(write, None), Ok(Some(WriteMode::Conditional(None))));
            assert_eq!(judged(write, Some(&write.after)), Ok(None), "the write is done");
            let later = stored(version(2, 7), true);
            assert_eq!(judged(write, Some(&later)), Ok(None), "a later event wrote the record");
            let later = stored(version(3, 1), true);
            assert_eq!(judged(write, Some(&later)), Ok(None), "a later leader wrote the record");
            let between = stored(version(2, 5), false);
            assert_eq!(
                judged(write, Some(&between)),
                Ok(Some(WriteMode::Conditional(Some(between.clone()))))
            );
            let same = stored(version(2, 6), false);
            let wrong = Err("holds another record of the same event");
            assert_eq!(judged(write, Some(&same)), wrong);
            let foreign = Bytes::from_static(&[1]);
            assert_eq!(judged(write, Some(&foreign)), Err("holds bytes that are not a record"));
            let mut elsewhere = StoredRecord::from_bytes(&write.after).unwrap();
            elsewhere.record.id = RecordId(8);
            assert_eq!(judged(write, Some(&elsewhere.to_bytes())), Err("holds another record"));
            (elsewhere.ws, elsewhere.record.id) = (WsId(8), RecordId(9));
            assert_eq!(judged(write, Some(&elsewhere.to_bytes())), Err("holds another record"));
        }
        let before = stored(version(1, 3), true);
        assert_eq!(
            judged(&updated, Some(&before)),
            Ok(Some(WriteMode::Conditional(Some(before.clone()))))
        );
        assert_eq!(judged(&new, Some(&before)), Err("already exists"));
        for other in [version(1, 2), version(1, 4), version(2, 4)] {
            let other = stored(other, true);
            assert_eq!(judged(&updated, Some(&other)), Err("differs from the row that was read"));
        }
    }

    /// Another program put a record that names the version which the command had read, or a later
    /// one. The write took it for its own.
    #[test]
    fn the_version_of_a_record_does_not_decide_before_its_event_was_in_the_log() {
        let before = stored(version(1, 3), true);
        for (mode, replaces) in [
            (WriteMode::ReadBack(Some(before.clone())), Some(version(1, 3))),
            (WriteMode::Conditional(Some(before.clone())), Some(version(1, 3))),
            (WriteMode::ReadBack(None), None),
            (WriteMode::Conditional(None), None),
        ] {
            let (first, last, basis) = (version(2, 6), version(2, 6), RecordBasis::Read);
            let kind = RowKind::Record { replaces, first, last, basis };
            let write = RowWrite { kind, mode, ..write(None) };
            assert_eq!(judged(&write, Some(&write.after)), Ok(None), "the write is done");
            let later = stored(version(3, 1), true);
            assert_eq!(judged(&write, Some(&later)), Ok(None), "a later leader wrote the record");
            for foreign in [stored(version(1, 3), false), stored(version(2, 7), true)] {
                assert!(judged(&write, Some(&foreign)).is_err(), "{:?} {foreign:?}", write.mode);
            }
            let condition = Ok(Some(WriteMode::Conditional(Some(before.clone()))));
            assert_eq!(judged(&write, Some(&before)) == condition, replaces.is_some());
        }
    }

    /// Another program deleted the record after the command had read it. The deletion was undone.
    #[test]
    fn a_missing_record_is_made_only_if_no_command_has_read_it() {
        let insert = Ok(Some(WriteMode::Conditional(None)));
        let (first, last, before) = (version(2, 6), version(2, 6), Some(version(1, 3)));
        for (replaces, basis, expected) in [
            (before, RecordBasis::Read, Err(CHANGED)),
            (before, RecordBasis::Made, insert.clone()),
            (before, RecordBasis::InLog, insert.clone()),
            (None, RecordBasis::Read, insert.clone()),
        ] {
            let kind = RowKind::Record { replaces, first, last, basis };
            let write = RowWrite { kind, ..write(replaces) };
            assert_eq!(judged(&write, None), expected, "{replaces:?}, {basis:?}");
        }
    }

    fn corrupted(epoch: u64, plog: u64, marked: u64) -> Entry {
        let (ws, wlog) = (WS, Offset(4));
        let place = EventPlace { epoch: Epoch(epoch), plog: Offset(plog), ws, wlog };
        let (marked, bytes) = (Epoch(marked), Bytes::new());
        Entry::Marker(Marker { place, marked, drawn: Vec::new(), bytes })
    }

    fn writes(entry: &Entry) -> GroupWrites {
        let rules = Rules {
            partition: 1,
            level: TrustLevel::Zero,
            level_2_wrote: false,
            first: Offset(1),
            reads_back: false,
            answers_kept: std::time::Duration::ZERO,
            age_at: WallTime::from_nanos(0),
        };
        rules.plan(&[PreparedEvent::again(entry, entry.to_bytes())]).unwrap()
    }

    #[test]
    fn a_marked_event_may_be_whole_in_the_log_of_its_workspace() {
        let marker = &writes(&corrupted(2, 6, 3)).rest[0];
        let whole = corrupted(2, 6, 0).to_bytes();
        assert_eq!(judged(marker, Some(&whole)), Ok(None));
        let foreign = Bytes::from_static(&[1]);
        assert_eq!(judged(marker, Some(&foreign)), Err("holds another event"));
        let event = RowWrite { kind: RowKind::Entry, ..marker.clone() };
        assert_eq!(judged(&event, Some(&whole)), Err("holds another event"));
    }

    fn origin(write: &RowWrite, value: &Bytes, hides_ordered: bool) -> Option<Version> {
        let found = FoundRow { value: value.clone(), hides_ordered };
        let partitions = NonZeroU16::new(4).unwrap();
        level_2_origin(write, &found, partitions).map(|origin| origin.version)
    }

    #[test]
    fn a_stray_is_in_its_own_row_and_was_put_there_unless_it_is_an_update() {
        let (new, updated) = (write(None), write(Some(version(1, 3))));
        let stray = stored(version(1, 9), true);
        for write in [&new, &updated] {
            assert_eq!(origin(write, &stray, false), Some(version(1, 9)));
            assert_eq!(origin(write, &Bytes::from_static(&[1]), false), None);
            let mut elsewhere = StoredRecord::from_bytes(&stray).unwrap();
            elsewhere.record.id = RecordId(8);
            assert_eq!(origin(write, &elsewhere.to_bytes(), false), None);
        }
        assert_eq!(origin(&new, &stray, true), None);
        assert_eq!(origin(&updated, &stray, true), Some(version(1, 9)));

        let event = |epoch, plog, wlog| {
            let (ws, wlog) = (WS, Offset(wlog));
            let place = EventPlace { epoch: Epoch(epoch), plog: Offset(plog), ws, wlog };
            let command = "sys.CUD".parse().unwrap();
            Entry::Event(Box::new(Event::new(place, WallTime::from_millis(1), command)))
        };
        let entry = &writes(&event(2, 6, 4)).rest[0];
        assert_eq!(origin(entry, &event(1, 9, 4).to_bytes(), false), Some(version(1, 9)));
        for (bytes, hides_ordered) in [
            (event(1, 9, 4).to_bytes(), true),
            (event(1, 9, 5).to_bytes(), false),
            (corrupted(1, 9, 1).to_bytes(), false),
        ] {
            assert_eq!(origin(entry, &bytes, hides_ordered), None);
        }
    }

    #[test]
    fn the_event_of_a_stray_has_another_place_than_the_event_of_the_log() {
        let origin = |epoch, plog| RowOrigin {
            version: version(epoch, plog),
            ws: WS,
            wlog: Some(Offset(4)),
        };
        let place = EventPlace { epoch: Epoch(1), plog: Offset(5), ws: WS, wlog: Offset(4) };
        assert!(origin(1, 5).is_at(place));
        assert!(RowOrigin { wlog: None, ..origin(1, 5) }.is_at(place));
        let other_ws = RowOrigin { ws: WsId(8), ..origin(1, 5) };
        let other_wlog = RowOrigin { wlog: Some(Offset(3)), ..origin(1, 5) };
        for other in [origin(2, 5), origin(1, 6), other_ws, other_wlog] {
            assert!(!other.is_at(place), "{other:?}");
        }
        // After event 5 of epoch 2 no event has an earlier epoch.
        let entry = &writes(&corrupted(2, 5, 2)).rest[0];
        for write in [&write(None), &write(Some(version(1, 3))), entry] {
            assert!(origin(1, 5).is_excluded_by(write) && origin(1, 6).is_excluded_by(write));
            assert!(!origin(1, 4).is_excluded_by(write) && !origin(2, 6).is_excluded_by(write));
        }
    }

    #[test]
    fn the_row_in_the_log_decides_between_leaders() {
        let write = &writes(&corrupted(2, 6, 2)).plog[0];
        let found_with = |stray_bound, there: Option<Bytes>| {
            judge_plog_row(write, Epoch(2), Epoch(stray_bound), there.as_ref(), |_| true)
        };
        let found = |there| found_with(1, there);
        let at = |epoch, plog| Some(corrupted(epoch, plog, epoch).to_bytes());
        assert!(matches!(found(at(3, 6)), PlogOccupant::LaterLeader(Epoch(3))));
        assert!(matches!(found(at(3, 9)), PlogOccupant::LaterLeader(Epoch(3))));
        assert!(matches!(found(at(1, 6)), PlogOccupant::EarlierLeader(Offset(6))));
        for wrong in [at(1, 9), at(2, 6), Some(Bytes::from_static(&[1]))] {
            assert!(matches!(found(wrong), PlogOccupant::Foreign(_)));
        }
        assert!(matches!(found(None), PlogOccupant::Missing));
        // A row of another partition is no sign of a later leader of this one.
        let foreign = judge_plog_row(write, Epoch(2), Epoch(9), at(3, 6).as_ref(), |_| false);
        assert!(matches!(foreign, PlogOccupant::Foreign(_)));
        // An event of level 2 after an event of a later epoch is not in the log.
        assert!(matches!(found_with(2, at(1, 6)), PlogOccupant::Stray(Epoch(1))));
        for wrong in [at(1, 9), at(2, 6), Some(Bytes::from_static(&[1]))] {
            assert!(matches!(found_with(9, wrong), PlogOccupant::Foreign(_)));
        }
        assert!(matches!(found_with(9, at(3, 6)), PlogOccupant::LaterLeader(Epoch(3))));
    }
}
