//! An event that cannot be read, and the operator that marks it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use eventlog::{AppRow, DamagedRow, DrawnNumber, Entry, Error, Marker, Offset, TrustLevel, WsId};
use futures::TryStreamExt;
use isequencer::{
    SeqId, Sequence,
    standard::{CRECORD_ID, FIRST_RECORD_ID, RECORD_ID, WLOG_OFFSET},
};
use istorage::{AppStorageExt, Order, OrderedPut};
use processor::{Done, PartitionEnd, Status};
use seqstorage::{MarkError, PartitionStorage};
use shop::{ShopNode, ShopNodeSettings, article, cud, new_row};
use tck::trial::{Trial, trials};

use crate::fixture::{CommandsFixture, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(marked_events:
    the_partition_goes_on_after_an_operator_marked_an_event = marked,
    a_marker_in_front_of_the_stored_offset_needs_no_numbers = in_front_of_the_stored_offset,
    another_place_of_numbers_counts_those_of_a_marked_event = in_another_place,
    a_marker_that_contradicts_stored_rows_is_refused = known,
    a_marker_that_names_a_sequence_twice_is_refused = once,
    a_marker_is_put_only_into_a_workspace_of_the_partition = elsewhere,
    the_marker_of_the_largest_event_fits_into_a_row = largest,
    at_level_2_a_reported_marker_is_stored = under_one_epoch,
    a_marker_has_numbers_of_the_sequences_of_the_application = of_application,
);

pub(crate) const DAMAGED: Bytes = Bytes::from_static(b"damaged");

async fn marked(fixture: &CommandsFixture) {
    for (number, level) in (0..).zip([TrustLevel::Zero, TrustLevel::One, TrustLevel::Two]) {
        at_level(fixture, level, PARTITION + number, WS + u64::from(number)).await;
    }
}

async fn at_level(fixture: &CommandsFixture, level: TrustLevel, partition: u16, ws: u64) {
    let shop_db = &fixture.shop_db;
    let (first, mut ledger) = fixture.begin(partition, ws, ShopNodeSettings::at(level)).await;
    let command = named("article", cud(ws, article("a"), shop_db.soon()));
    let done = fixture.run(&first, &mut ledger, command).await.unwrap();
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let (plog, wlog) = (done.plog.next(), done.wlog.next());
    damage(fixture, level, AppRow::Plog(partition, plog), first.log.fence().epoch().0, plog).await;

    let node = shop_db.node(partition, ShopNodeSettings::at(level));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let operator = operator(fixture, &node);
    let mark = async |plog, given| operator.mark_corrupted(plog, WsId(ws), wlog, given).await;
    let readable = mark(done.plog, None).await.unwrap_err();
    assert!(matches!(readable, MarkError::Readable(_)), "{readable:?}");
    let unsaid = mark(plog, None).await.unwrap_err();
    let MarkError::NumbersNeeded(safe) = unsaid else { panic!("{unsaid:?}") };
    assert_eq!(safe.iter().map(|safe| safe.seq).collect::<Vec<_>>(), [RECORD_ID.0, CRECORD_ID.0]);
    let last = done.answer.ids.iter().map(|(_, id)| id.0).max().unwrap();
    let drawn = |seq: SeqId, last| DrawnNumber { seq: seq.0, last };
    let elsewhere = operator.mark_corrupted(plog, WsId(ws), done.wlog, Some(Vec::new())).await;
    let is_reported =
        matches!(elsewhere, Err(MarkError::Log(Error::DamagedRow(DamagedRow::Misplaced { .. }))));
    assert!(is_reported, "the whole event was not reported: {elsewhere:?}");
    // An event after a hole would hide all events that come after it.
    let far = operator.mark_corrupted(plog, WsId(ws), Offset(wlog.0 + 9), Some(Vec::new())).await;
    assert!(
        matches!(far, Err(MarkError::Log(Error::DamagedRow(DamagedRow::Missing(_))))),
        "{far:?}"
    );
    let low = mark(plog, Some(vec![drawn(CRECORD_ID, last)])).await.unwrap_err();
    assert!(matches!(low, MarkError::NotAbove { .. }), "{low:?}");
    let other = mark(plog, Some(vec![drawn(WLOG_OFFSET, wlog.0 + 1)])).await.unwrap_err();
    assert!(matches!(other, MarkError::OtherOffset { .. }), "{other:?}");
    // A sequence that was left out would have given the numbers of the event again.
    let numbers = [drawn(CRECORD_ID, last + 5), drawn(RECORD_ID, FIRST_RECORD_ID + 9)];
    let incomplete = mark(plog, Some(numbers[..1].to_vec())).await.unwrap_err();
    let safe = DrawnNumber { seq: RECORD_ID.0, last: FIRST_RECORD_ID + 4_095 };
    assert!(
        matches!(&incomplete, MarkError::NumbersNeeded(needed) if needed[..] == [safe]),
        "{incomplete:?}"
    );
    let marker = mark(plog, Some(numbers.to_vec())).await.unwrap();
    assert_eq!(marker.drawn, [&[drawn(WLOG_OFFSET, wlog.0)], &numbers[..]].concat());
    assert_eq!((&marker.bytes, marker.marked), (&DAMAGED, node.log.fence().epoch()));

    node.ready().await;
    let command = named("after", cud(ws, article("b"), shop_db.soon()));
    let after = fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!((after.plog, after.wlog), (plog.next(), wlog.next()));
    assert_eq!(
        after.answer.ids[0].1.0,
        last + 6,
        "the numbers of the marked event are not given again"
    );
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let reader = shop_db.reader();
    let logs: [Vec<Entry>; 2] = [
        reader.plog(partition, plog, None).try_collect().await.unwrap(),
        reader.wlog(WsId(ws), wlog, None).try_collect().await.unwrap(),
    ];
    for log in logs {
        assert_eq!((log.len(), &log[0]), (2, &Entry::Marker(marker.clone())));
    }
}

/// An operator who marks events in the epoch of a node.
pub(crate) struct Operator(pub(crate) PartitionStorage);

impl Operator {
    /// Plans a marker, and puts it in the place of the event.
    pub(crate) async fn mark_corrupted(
        &self,
        plog: Offset,
        ws: WsId,
        wlog: Offset,
        given: Option<Vec<DrawnNumber>>,
    ) -> Result<Marker, MarkError> {
        self.mark_with(plog, ws, wlog, given, &[]).await
    }

    /// Does the same in a workspace with sequences of the application.
    pub(crate) async fn mark_with(
        &self,
        plog: Offset,
        ws: WsId,
        wlog: Offset,
        given: Option<Vec<DrawnNumber>>,
        sequences: &[Sequence],
    ) -> Result<Marker, MarkError> {
        let plan = self.0.plan_marker(plog, ws, wlog, given, false, sequences).await?;
        Ok(self.0.repair(plan).await?.expect("the event has no copy that can be read"))
    }
}

pub(crate) fn operator(fixture: &CommandsFixture, node: &ShopNode) -> Operator {
    let numbers = fixture.shop_db.system.numbers(&fixture.shop_db.app.entry);
    Operator(PartitionStorage::in_system(numbers, Arc::clone(&node.log)))
}

/// Replaces the bytes of a row by damaged ones.
pub(crate) async fn overwrite(fixture: &CommandsFixture, row: AppRow) {
    let shop_db = &fixture.shop_db;
    let (storage, key) = (&shop_db.app.storage, row.key());
    let there = storage.get_linearizable(&key, shop_db.soon()).await.unwrap().unwrap();
    let swap = storage.compare_and_swap(key, there, DAMAGED, None, shop_db.soon());
    assert!(swap.await.unwrap().is_applied());
}

/// A node that waits for the repair of an event whose two rows are both damaged.
pub(crate) async fn with_lost_event(fixture: &CommandsFixture, done: &Done) -> ShopNode {
    overwrite(fixture, AppRow::Plog(PARTITION, done.plog)).await;
    overwrite(fixture, AppRow::Wlog(WsId(WS), done.wlog)).await;
    let node = fixture.shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    node
}

/// A recovery also reads the event before the stored offset, so damage there stops the recovery
/// too. The numbers of this event are already stored, so no number could be above the stored ones.
async fn in_front_of_the_stored_offset(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, mut ledger) =
        fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Zero)).await;
    let command = named("article", cud(WS, article("a"), shop_db.soon()));
    let done = fixture.run(&first, &mut ledger, command).await.unwrap();
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    for row in [AppRow::Plog(PARTITION, done.plog), AppRow::Wlog(WsId(WS), done.wlog)] {
        overwrite(fixture, row).await;
    }

    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let operator = operator(fixture, &node);
    let marker = operator.mark_corrupted(done.plog, WsId(WS), done.wlog, None).await.unwrap();
    let last = done.answer.ids.iter().map(|(_, id)| id.0).max().unwrap();
    let offset = DrawnNumber { seq: WLOG_OFFSET.0, last: done.wlog.0 };
    assert_eq!(marker.drawn, [offset, DrawnNumber { seq: CRECORD_ID.0, last }]);
    node.ready().await;
    let command = named("after", cud(WS, article("b"), shop_db.soon()));
    let after = fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!((after.plog, after.wlog), (done.plog.next(), done.wlog.next()));
    assert_eq!(after.answer.ids[0].1.0, last + 1, "its numbers were stored");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let logged: Vec<Entry> =
        shop_db.reader().wlog(WsId(WS), done.wlog, None).try_collect().await.unwrap();
    assert_eq!(logged[0], Entry::Marker(marker));
}

/// An event before the stored offset was marked without numbers, because its numbers were stored.
/// Then `sequences.storage` was changed. The new place of the numbers had no stored offset, so the
/// log was read from its first event, and the numbers of the marked event were missing. They were
/// given again.
async fn in_another_place(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (first, mut ledger) = fixture.begin(PARTITION, WS, settings.clone()).await;
    let command = named("article", cud(WS, article("a"), shop_db.soon()));
    let lost = fixture.run(&first, &mut ledger, command).await.unwrap();
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let node = with_lost_event(fixture, &lost).await;
    let operator = operator(fixture, &node);
    operator.mark_corrupted(lost.plog, WsId(WS), lost.wlog, None).await.unwrap();
    node.ready().await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);

    let node = shop_db.node(PARTITION, ShopNodeSettings { in_view: true, ..settings });
    node.ready().await;
    let command = named("after", cud(WS, article("b"), shop_db.soon()));
    let after = fixture.run(&node, &mut ledger, command).await.unwrap();
    let last = lost.answer.ids.iter().map(|(_, id)| id.0).max().unwrap();
    assert_eq!(after.answer.ids[0].1.0, last + 1, "the numbers of the marked event");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// The log has events with numbers that are not stored, and the second event is damaged. A number
/// that the first event had drawn was accepted as a number of the second event. The number was
/// given again.
async fn known(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, _) = fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Zero)).await;
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let mut settings = ShopNodeSettings::at(TrustLevel::Zero);
    settings.partition.sequencer.flush_delay = Duration::from_secs(600);
    let second = shop_db.node(PARTITION, settings);
    second.ready().await;
    let mut done = Vec::new();
    for name in ["one", "two", "three"] {
        let command = named(name, cud(WS, article(name), shop_db.soon()));
        done.push(second.commands.run(command).await.unwrap());
    }
    second.kill();
    let (plog, wlog) = (done[1].plog, done[1].wlog);
    for row in [AppRow::Plog(PARTITION, plog), AppRow::Wlog(WsId(WS), wlog)] {
        let (storage, key) = (&shop_db.app.storage, row.key());
        let old = storage.get_linearizable(&key, shop_db.soon()).await.unwrap().unwrap();
        let write = if matches!(row, AppRow::Plog(..)) {
            storage.compare_and_swap(key, old, DAMAGED, None, shop_db.soon()).await
        } else {
            // In the log of the workspace the event is missing.
            storage.compare_and_delete(key, old, shop_db.soon()).await
        };
        assert!(write.unwrap().is_applied());
    }
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let operator = operator(fixture, &node);
    let mark = async |wlog, seq: SeqId, last| {
        let given = Some(vec![DrawnNumber { seq: seq.0, last }]);
        operator.mark_corrupted(plog, WsId(WS), wlog, given).await
    };
    let last = |done: &Done| done.answer.ids.iter().map(|(_, id)| id.0).max().unwrap();
    let low = mark(wlog, CRECORD_ID, last(&done[0])).await.unwrap_err();
    assert!(matches!(low, MarkError::NotAbove { .. }), "{low:?}");
    let other = mark(wlog, RECORD_ID, last(&done[1])).await.unwrap_err();
    assert!(matches!(other, MarkError::NotAbove { .. }), "an id of another sequence: {other:?}");
    let taken = mark(wlog.next(), CRECORD_ID, last(&done[1])).await.unwrap_err();
    assert!(matches!(taken, MarkError::NotBefore { .. } | MarkError::Log(_)), "{taken:?}");
    let drawn = |seq: SeqId, last| DrawnNumber { seq: seq.0, last };
    let given = vec![drawn(CRECORD_ID, last(&done[1])), drawn(RECORD_ID, FIRST_RECORD_ID)];
    operator.mark_corrupted(plog, WsId(WS), wlog, Some(given)).await.unwrap();
    node.ready().await;
    let command = named("after", cud(WS, article("after"), shop_db.soon()));
    let after = node.commands.run(command).await.unwrap();
    assert_eq!(after.wlog, done[2].wlog.next());
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let log: Vec<Entry> = shop_db.reader().wlog(WsId(WS), wlog, None).try_collect().await.unwrap();
    assert_eq!(log.len(), 3, "the marker, and two after it");
}

/// An operator gave the offset of the event in the log of its workspace twice, and only the first
/// value was checked. The higher value was counted, so the next event of the workspace left a hole
/// in that log.
async fn once(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, mut ledger) =
        fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Zero)).await;
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let (plog, wlog) = (Offset(2), Offset(2));
    damage(
        fixture,
        TrustLevel::Zero,
        AppRow::Plog(PARTITION, plog),
        first.log.fence().epoch().0,
        plog,
    )
    .await;
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let operator = operator(fixture, &node);
    let mark = async |given: &[(SeqId, u64)]| {
        let given =
            given.iter().map(|(seq, last)| DrawnNumber { seq: seq.0, last: *last }).collect();
        operator.mark_corrupted(plog, WsId(WS), wlog, Some(given)).await
    };
    let id = isequencer::standard::FIRST_CRECORD_ID;
    for (seq, last) in [(WLOG_OFFSET, wlog.0), (CRECORD_ID, id)] {
        let twice = mark(&[(seq, last), (seq, last + 9)]).await;
        assert!(matches!(twice, Err(MarkError::Twice(given)) if given == seq.0), "{twice:?}");
    }
    mark(&[(WLOG_OFFSET, wlog.0), (CRECORD_ID, id), (RECORD_ID, FIRST_RECORD_ID)]).await.unwrap();
    node.ready().await;
    let command = named("after", cud(WS, article("after"), shop_db.soon()));
    let after = fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!((after.plog, after.wlog), (plog.next(), wlog.next()));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// An operator gave the number of another workspace, with an empty log. The marker went into the
/// log of that workspace, which is in another partition. The first event of that workspace found
/// the marker in its way.
async fn elsewhere(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, _) = fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Zero)).await;
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let (plog, wlog, other) = (Offset(2), Offset(2), WsId(WS + 1));
    damage(
        fixture,
        TrustLevel::Zero,
        AppRow::Plog(PARTITION, plog),
        first.log.fence().epoch().0,
        plog,
    )
    .await;
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let operator = operator(fixture, &node);
    let refused = operator.mark_corrupted(plog, other, Offset(1), Some(Vec::new())).await;
    let is_reported = matches!(
        refused,
        Err(MarkError::OtherPartition { ws, partition }) if (ws, partition) == (other, PARTITION)
    );
    assert!(is_reported, "{refused:?}");
    let key = AppRow::Wlog(other, Offset(1)).key();
    assert_eq!(shop_db.app.storage.get_linearizable(&key, shop_db.soon()).await.unwrap(), None);
    operator.mark_corrupted(plog, WsId(WS), wlog, Some(Vec::new())).await.unwrap();
    node.ready().await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

async fn largest(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, _) = fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Zero)).await;
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let (plog, wlog) = (Offset(2), Offset(2));
    let bytes = Bytes::from(vec![7; first.log.largest_row()]);
    let key = AppRow::Plog(PARTITION, plog).key();
    let put = shop_db.app.storage.insert_if_not_exists(key, bytes.clone(), None, shop_db.soon());
    assert!(put.await.unwrap().is_applied());
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let mark =
        operator(fixture, &node).mark_corrupted(plog, WsId(WS), wlog, Some(Vec::new())).await;
    assert_eq!(mark.unwrap().bytes, bytes);
    node.ready().await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// Of two writes of the same order either one may stay. So a row that was written in the epoch of
/// the operator may stay as it is. Then the operator gets an error.
async fn under_one_epoch(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, _) = fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Two)).await;
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let plog = Offset(2);
    let row = AppRow::Plog(PARTITION, plog);
    damage(fixture, TrustLevel::Two, row, first.log.fence().epoch().0 + 1, plog).await;
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Two));
    assert_eq!(node.log.fence().epoch().0, first.log.fence().epoch().0 + 1);
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let mark =
        operator(fixture, &node).mark_corrupted(plog, WsId(WS), plog, Some(Vec::new())).await;
    let there =
        shop_db.app.storage.get_linearizable(&row.key(), shop_db.soon()).await.unwrap().unwrap();
    let is_marked = matches!(Entry::from_bytes(&there), Ok(Entry::Marker(_)));
    assert_eq!(mark.is_ok(), is_marked, "{mark:?}");
    node.stop().await;
}

/// Leaves unreadable bytes in the place of an event.
async fn damage(
    fixture: &CommandsFixture,
    level: TrustLevel,
    row: AppRow,
    epoch: u64,
    plog: Offset,
) {
    let (storage, key, deadline) =
        (&fixture.shop_db.app.storage, row.key(), fixture.shop_db.soon());
    if level == TrustLevel::Two {
        let order = Order::from_parts(epoch, plog.0).unwrap();
        let put = OrderedPut { key, value: DAMAGED, order, ttl: None };
        storage.put_ordered(vec![put], deadline).await.unwrap();
    } else {
        let inserted = storage.insert_if_not_exists(key, DAMAGED, None, deadline).await.unwrap();
        assert!(inserted.is_applied());
    }
}

/// A marker without a number for the sequence of the application was accepted, although the event
/// had drawn from the sequence. The number was given again.
async fn of_application(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let mut settings = ShopNodeSettings::at(TrustLevel::Zero);
    settings.partition.sequencer.flush_delay = Duration::from_secs(600);
    let (first, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let receipt = || cud(WS, vec![new_row(1, "shop.Receipt", [])], shop_db.soon());
    let mut last = None;
    for request in ["one", "two"] {
        let command = named(request, receipt());
        last = Some(fixture.run(&first, &mut ledger, command).await.unwrap());
    }
    let last = last.unwrap();
    first.kill();
    let node = with_lost_event(fixture, &last).await;
    let operator = operator(fixture, &node);
    // The sequence has few numbers left. The event drew nothing from the other one.
    let [few, none] =
        [(256, 1..10), (257, 1..2)].map(|(id, range)| Sequence::within(SeqId(id), range));
    let mut sequences = vec![few.unwrap()];
    let number = |seq, last| DrawnNumber { seq, last };
    let ids = [number(RECORD_ID.0, FIRST_RECORD_ID + 9), number(CRECORD_ID.0, 322_685_000_131_072)];
    let mark = async |notes: &[DrawnNumber], sequences: &[Sequence]| {
        let given = Some([&ids, notes].concat());
        operator.mark_with(last.plog, WsId(WS), last.wlog, given, sequences).await
    };
    let needed = mark(&[], &sequences).await.unwrap_err();
    let expected = [number(256, 9)];
    assert!(
        matches!(&needed, MarkError::NumbersNeeded(safe) if safe[..] == expected),
        "{needed:?}"
    );
    for wrong in [0, 10] {
        let refused = mark(&[number(256, wrong)], &sequences).await.unwrap_err();
        assert!(matches!(refused, MarkError::NotAbove { .. }), "{wrong}: {refused:?}");
    }
    sequences.push(none.unwrap());
    let marker = mark(&[number(256, 2), number(257, 0)], &sequences).await.unwrap();
    let expected = [&[number(WLOG_OFFSET.0, last.wlog.0)], &ids[..], &[number(256, 2)]].concat();
    assert_eq!(marker.drawn, expected, "nothing was drawn from sequence 257");
    node.ready().await;
    let done = fixture.run(&node, &mut ledger, named("after", receipt())).await.unwrap();
    let stored = node.commands.record(WsId(WS), done.answer.ids[0].1).await.unwrap().unwrap();
    assert_eq!(stored.record.fields["serial"], eventlog::Value::Int64(3));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
