use std::time::Duration;

use bytes::Bytes;
use istorage::{AtomicBatch, BatchLimits, Capabilities, RowLimits};

use super::*;
use crate::{Epoch, FencingEntry, Offset};

const SMALL: BatchLimits = BatchLimits { rows: 3, bytes: 200 };

/// Returns capabilities like those of DynamoDB, Cassandra and redb, with small limits.
fn can(atomic: Option<BatchLimits>, ordered: Option<BatchLimits>) -> Capabilities {
    Capabilities {
        row: RowLimits { pkey: 100, ccols: 100, value: 1_000 },
        conditional: SMALL,
        atomic,
        ordered,
        expiry_resolution: Duration::from_millis(1),
        expiry_is_watched: false,
        late_write: Duration::ZERO,
    }
}

fn rules(level: TrustLevel, reads_back: bool) -> Rules {
    let answers_kept = Duration::from_secs(100);
    let age_at = WallTime::from_millis(1_000_000);
    let first = Offset(1);
    Rules { partition: 1, level, level_2_wrote: false, first, reads_back, answers_kept, age_at }
}

fn version(plog: u64) -> Version {
    Version { epoch: Epoch(3), plog: Offset(plog) }
}

fn event(plog: u64, wlog: u64, records: Vec<RecordWrite>) -> PreparedEvent {
    PreparedEvent {
        epoch: Epoch(3),
        plog: Offset(plog),
        in_ws: Some((WsId(1), Offset(wlog))),
        time: Some(WallTime::from_millis(1_000_000)),
        entry: format!("event {plog}").into(),
        marked: None,
        in_log: false,
        records,
        answer: None,
    }
}

fn record(
    id: u64,
    replaces: Option<u64>,
    before: Option<&'static str>,
    after: &'static str,
) -> RecordWrite {
    RecordWrite {
        id: RecordId(id),
        replaces: replaces.map(version),
        before: before.map(|before| FoundRow { value: before.into(), hides_ordered: false }),
        after: after.into(),
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a write as a short text. An order of the band *first* is negative.
fn short(write: &RowWrite) -> String {
    let after = text(&write.after);
    let offset = write.order.rank() % (1 << 40);
    match &write.mode {
        WriteMode::Conditional(None) => format!("+{after}"),
        WriteMode::Conditional(Some(before)) => format!("{}>{after}", text(before)),
        WriteMode::Ordered(None) => format!("{after}@{offset}"),
        WriteMode::Ordered(Some(ttl)) => format!("{after}@{offset} for {ttl:?}"),
        WriteMode::ReadBack(_) => format!("{after}@{offset}?"),
    }
}

fn shown(writes: &[RowWrite]) -> String {
    writes.iter().map(short).collect::<Vec<_>>().join(" ")
}

fn chunks(writes: Vec<RowWrite>, can: &Capabilities) -> Vec<String> {
    in_chunks(writes, can).iter().map(|chunk| shown(chunk)).collect()
}

fn planned(group: &[PreparedEvent], level: TrustLevel) -> GroupWrites {
    rules(level, false).plan(group).unwrap()
}

fn planned_with_reads(group: &[PreparedEvent], level: TrustLevel) -> GroupWrites {
    rules(level, true).plan(group).unwrap()
}

#[test]
fn each_trust_level_chooses_the_conditions_of_its_writes() {
    let records = vec![record(1, None, None, "new"), record(2, Some(1), Some("old"), "updated")];
    let group = [event(7, 1, records)];
    let shown = |GroupWrites { plog, rest, changes }| {
        assert_eq!(changes, []);
        format!("{} | {}", shown(&plog), shown(&rest))
    };
    let at_once = |level| shown(planned(&group, level));
    assert_eq!(at_once(TrustLevel::Zero), "+event 7 | +event 7 +new old>updated");
    assert_eq!(at_once(TrustLevel::One), "+event 7 | +event 7 new@-7 updated@7");
    assert_eq!(at_once(TrustLevel::Two), "event 7@7 | event 7@7 new@7 updated@7");
    let reads_back = |level| shown(planned_with_reads(&group, level));
    assert_eq!(reads_back(TrustLevel::Zero), "+event 7 | event 7@-7? new@-7? updated@7?");
    assert_eq!(reads_back(TrustLevel::One), "+event 7 | event 7@-7? new@-7 updated@7");
    assert_eq!(reads_back(TrustLevel::Two), at_once(TrustLevel::Two));
}

/// At level 2 a leader put all its events. A late insert of a former leader at the end of the log
/// hid them.
#[test]
fn the_first_group_behind_a_replay_is_inserted_at_every_level() {
    let plog = |level, offsets: [u64; 2]| {
        let group = offsets.map(|offset| event(offset, offset, Vec::new()));
        let rules = Rules { first: Offset(7), ..rules(level, true) };
        shown(&rules.plan(&group).unwrap().plog)
    };
    for level in [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two] {
        assert_eq!(plog(level, [7, 8]), "+event 7 +event 8");
    }
    assert_eq!(plog(TrustLevel::One, [8, 9]), "+event 8 +event 9");
    assert_eq!(plog(TrustLevel::Two, [8, 9]), "event 8@8 event 9@9");
}

/// A row that was written under a condition at another level hides every put.
#[test]
fn a_record_that_hides_ordered_writes_is_updated_conditionally_at_every_level() {
    let mut hidden = record(2, Some(1), Some("old"), "updated");
    hidden.before.as_mut().unwrap().hides_ordered = true;
    let other = record(3, Some(1), Some("old"), "other");
    let then = event(8, 2, vec![record(2, Some(7), None, "again")]);
    let group = [event(7, 1, vec![hidden, other]), then];
    let rest = |reads_back, level| {
        let GroupWrites { rest, changes, .. } = rules(level, reads_back).plan(&group).unwrap();
        assert_eq!(changes, []);
        shown(&rest)
    };
    assert_eq!(rest(false, TrustLevel::Zero), "+event 7 old>again old>other +event 8");
    assert_eq!(rest(false, TrustLevel::One), "+event 7 old>again other@7 +event 8");
    assert_eq!(rest(false, TrustLevel::Two), "event 7@7 old>again other@7 event 8@8");
    assert_eq!(rest(true, TrustLevel::Zero), "event 7@-7? old>again other@7? event 8@-8?");
    assert_eq!(rest(true, TrustLevel::One), "event 7@-7? old>again other@7 event 8@-8?");
}

/// Level 1 does not check a new record. In the band *first* it would not replace the record of a
/// former leader of level 2.
#[test]
fn a_new_record_of_level_1_replaces_what_level_2_has_left() {
    let group = [event(7, 1, vec![record(1, None, None, "new")])];
    let rest = |level, reads_back| {
        let rules = Rules { level_2_wrote: true, ..rules(level, reads_back) };
        shown(&rules.plan(&group).unwrap().rest)
    };
    assert_eq!(rest(TrustLevel::One, true), "event 7@-7? new@7");
    assert_eq!(rest(TrustLevel::One, false), "+event 7 new@7");
    assert_eq!(rest(TrustLevel::Zero, true), "event 7@-7? new@-7?");
}

#[test]
fn a_condition_that_meets_a_stray_is_replaced() {
    let mut writes = planned(&[event(7, 1, Vec::new())], TrustLevel::Zero);
    let key = writes.rest[0].key.clone();
    let size = |writes: &GroupWrites| writes.rest[0].size();
    let before = size(&writes);
    writes.set_condition(&key, WriteMode::Conditional(Some("stray".into())));
    assert_eq!(shown(&writes.rest), "stray>event 7");
    assert_eq!(size(&writes), before + 5, "it counts against the limits of a call");
}

#[test]
fn a_record_that_is_made_and_read_back_is_changed_when_it_is_made() {
    let first = vec![record(1, None, None, "a"), record(2, Some(4), Some("x"), "y")];
    let then = vec![record(1, Some(7), None, "b"), record(2, Some(7), None, "z")];
    let last = vec![record(1, Some(8), None, "c")];
    let group = [event(7, 1, first), event(8, 2, then), event(9, 3, last)];
    let GroupWrites { rest, changes, .. } = planned_with_reads(&group, TrustLevel::Zero);
    assert_eq!(shown(&rest), "event 7@-7? a@-7? z@8? event 8@-8? event 9@-9?");
    assert_eq!(shown(&changes), "c@9?");
    let changed = RowKind::Record {
        replaces: Some(version(7)),
        first: version(8),
        last: version(9),
        basis: RecordBasis::Made,
    };
    assert_eq!(changes[0].kind, changed);
    let GroupWrites { rest, changes, .. } = planned_with_reads(&group, TrustLevel::One);
    assert_eq!(shown(&rest), "event 7@-7? c@9 z@8 event 8@-8? event 9@-9?");
    assert_eq!(changes, []);
}

#[test]
fn a_row_that_is_made_behind_another_write_of_it_is_found() {
    let made = |group: &[PreparedEvent]| NewRows::default().first_repeated(group);
    let new = |plog, wlog, id| event(plog, wlog, vec![record(id, None, None, "a")]);
    let changed = event(8, 2, vec![record(1, Some(7), None, "b")]);
    assert_eq!(made(&[new(7, 1, 1), changed.clone(), new(9, 3, 2)]), None);
    let twice = Some(AppRow::Record(WsId(1), RecordId(1)));
    assert_eq!(made(&[changed, new(9, 3, 1)]), twice, "changed, and then made");
    assert_eq!(made(&[new(7, 1, 1), new(8, 2, 1)]), twice);
    assert_eq!(made(&[new(7, 1, 1), new(8, 1, 2)]), Some(AppRow::Wlog(WsId(1), Offset(1))));
}

#[test]
fn a_chunk_ends_with_the_storage_partition_and_at_its_limits() {
    let events = |offsets: &[u64]| -> Vec<PreparedEvent> {
        offsets.iter().map(|n| event(*n, *n, Vec::new())).collect()
    };
    let one = can(None, None);
    let GroupWrites { plog, rest, .. } =
        planned(&events(&[4_094, 4_095, 4_096, 4_097, 4_098, 4_099]), TrustLevel::Zero);
    let expected =
        ["+event 4094 +event 4095", "+event 4096 +event 4097 +event 4098", "+event 4099"];
    assert_eq!(chunks(plog, &one), expected);
    assert_eq!(chunks(rest, &one), expected, "the log of the workspace has the same offsets");
    let mut large = events(&[1, 2, 3]);
    large[1].entry = "x".repeat(180).into();
    assert_eq!(chunks(planned(&large, TrustLevel::Zero).plog, &one).len(), 3);
    let two = planned(&events(&[2, 3]), TrustLevel::Two);
    assert_eq!(chunks(two.plog.clone(), &one), ["event 2@2", "event 3@3"]);
    assert_eq!(chunks(two.plog, &can(None, Some(SMALL))), ["event 2@2 event 3@3"]);
}

/// The record is written once: from the bytes that the first event found, to the record that the
/// last event leaves. The row may already hold the record of one of the events.
#[test]
fn a_record_that_several_events_write_is_written_once() {
    let first = vec![record(1, None, None, "a"), record(2, Some(4), Some("x"), "y")];
    let then = vec![record(1, Some(7), None, "b"), record(2, Some(7), None, "z")];
    let group = [event(7, 1, first), event(8, 2, then)];
    let rest = planned(&group, TrustLevel::Zero).rest;
    assert_eq!(shown(&rest), "+event 7 +b x>z +event 8");
    let basis = RecordBasis::Read;
    let made = RowKind::Record { replaces: None, first: version(7), last: version(8), basis };
    let updated =
        RowKind::Record { replaces: Some(version(4)), first: version(7), last: version(8), basis };
    assert_eq!((rest[1].kind, rest[2].kind), (made, updated));
    assert_eq!(shown(&planned(&group, TrustLevel::One).rest), "+event 7 b@8 z@8 +event 8");
}

#[test]
fn rows_within_the_limits_fit_one_atomic_write() {
    let group = [event(7, 1, vec![record(1, None, None, "new")])];
    let writes = planned(&group, TrustLevel::One);
    let enough = BatchLimits { rows: 3, bytes: 1_000 };
    assert!(writes.fits(enough));
    assert!(!writes.fits(BatchLimits { rows: 2, ..enough }));
    assert!(!writes.fits(BatchLimits { bytes: 60, ..enough }));
    let AtomicBatch { conditionals, ordered, puts } = writes.atomic_batch();
    assert_eq!((conditionals.len(), ordered.len(), puts.len()), (2, 1, 0));
    for (op, (pkey, _)) in conditionals.iter().enumerate() {
        assert_eq!(writes.conditional(op).unwrap().key.pkey, *pkey);
    }
}

#[test]
fn an_answer_expires_by_the_age_of_its_event() {
    let answered = |age: u64| {
        let mut event = event(7, 1, Vec::new());
        event.time = Some(WallTime::from_millis(1_000_000 - age * 1_000));
        event.answer = Some(([9; 32], "answer".into()));
        shown(&planned(&[event], TrustLevel::Zero).rest)
    };
    assert_eq!(answered(0), "+event 7 answer@7 for 100s");
    assert_eq!(answered(99), "+event 7 answer@7 for 1s");
    assert_eq!(answered(100), "+event 7");
    let mut early = event(7, 1, Vec::new());
    early.time = Some(WallTime::from_millis(2_000_000));
    early.answer = Some(([9; 32], "answer".into()));
    let rest = planned(&[early], TrustLevel::Zero).rest;
    assert_eq!(
        shown(&rest),
        "+event 7 answer@7 for 100s",
        "the event is later than the time against which its age is measured"
    );
}

/// At level 2 the event in the log of the partition is ordered, and a marker that is copied must
/// replace the event. A marker in the log of a workspace is judged at every level.
#[test]
fn the_order_of_a_marker_has_the_epoch_of_the_marking_leader() {
    let mut marker = event(7, 1, Vec::new());
    marker.marked = Some(Epoch(5));
    let writes = planned(&[marker], TrustLevel::Two);
    assert_eq!(writes.plog[0].order, Order::from_parts(5, 7).unwrap());
    assert_eq!((writes.plog[0].kind, writes.rest[0].kind), (RowKind::Marker, RowKind::Marker));
    assert_eq!(writes.rest[0].mode, WriteMode::Conditional(None));
}

#[test]
fn an_epoch_with_too_many_bits_is_refused() {
    let mut group = [event(1, 1, Vec::new())];
    group[0].epoch = Epoch(1 << 22);
    assert!(rules(TrustLevel::Two, false).plan(&group).is_err());
}

/// A fencing entry is inserted at every level, so that it meets a late event. Nothing follows from
/// it.
#[test]
fn a_fencing_entry_is_one_insert_into_the_log() {
    let (epoch, plog, time) = (Epoch(3), Offset(1), WallTime::from_millis(5));
    let entry = FencingEntry { epoch, partition: 1, plog, time };
    for level in [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two] {
        let writes = planned(&[PreparedEvent::fencing(&entry)], level);
        assert_eq!((writes.plog.len(), writes.rest.len(), writes.changes.len()), (1, 0, 0));
        let write = &writes.plog[0];
        assert_eq!((write.row, &write.after), (AppRow::Plog(1, plog), &entry.to_bytes()));
        assert_eq!(write.mode, WriteMode::Conditional(None));
    }
}
