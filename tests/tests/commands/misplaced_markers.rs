//! Markers that would give a number twice or hide an event, and are refused.

use std::time::Duration;

use eventlog::{AppRow, DrawnNumber, Entry, Epoch, Offset, Repair, TrustLevel, WsId};
use isequencer::{
    SeqId, Sequence,
    standard::{CRECORD_ID, FIRST_CRECORD_ID, FIRST_RECORD_ID, RECORD_ID, WLOG_OFFSET},
};
use istorage::{AppStorageExt, Order, OrderedPut};
use processor::{PartitionEnd, Status};
use seqstorage::MarkError;
use shop::{ShopNodeSettings, article, create_workspace, cud, new_row};
use tck::trial::{Trial, trials};

use crate::{
    fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named},
    marked_events::{DAMAGED, operator, overwrite, with_lost_event},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(misplaced_markers:
    a_marker_is_not_put_in_front_of_its_workspace = in_front,
    a_number_counts_for_every_kind_that_the_workspace_may_have = of_any_kind,
    at_level_2_a_copy_that_a_former_leader_left_is_not_trusted = leftover,
    only_a_row_that_no_other_row_names_is_removed_as_foreign = removal,
);

/// Settings of a node that stores no number before it stops.
fn slow_flush(level: TrustLevel) -> ShopNodeSettings {
    let mut settings = ShopNodeSettings::at(level);
    settings.partition.sequencer.flush_delay = Duration::from_secs(600);
    settings
}

fn number(seq: SeqId, last: u64) -> DrawnNumber {
    DrawnNumber { seq: seq.0, last }
}

/// A marker at offset 0 was accepted. The partition worked, and the next command drew the offset of
/// the marked event again.
async fn in_front(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, mut ledger) = fixture.begin(PARTITION, WS, slow_flush(TrustLevel::Zero)).await;
    for name in ["one", "two"] {
        let command = named(name, cud(WS, article(name), shop_db.soon()));
        fixture.run(&first, &mut ledger, command).await.unwrap();
    }
    let command = named("three", cud(WS, article("three"), shop_db.soon()));
    let done = fixture.run(&first, &mut ledger, command).await.unwrap();
    first.kill();
    let node = with_lost_event(fixture, &done).await;
    let operator = operator(fixture, &node);
    let given =
        [number(RECORD_ID, FIRST_RECORD_ID + 99), number(CRECORD_ID, FIRST_CRECORD_ID + 99)];
    let mark =
        async |wlog| operator.mark_corrupted(done.plog, WsId(WS), wlog, Some(given.to_vec())).await;
    let refused = mark(Offset(0)).await.unwrap_err();
    assert!(matches!(refused, MarkError::TooLow { .. }), "{refused:?}");
    let marker = mark(done.wlog).await.unwrap();
    assert_eq!(marker.drawn[0], number(WLOG_OFFSET, done.wlog.0));
    node.ready().await;
    let command = named("after", cud(WS, article("after"), shop_db.soon()));
    let after = fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!((after.plog, after.wlog), (done.plog.next(), done.wlog.next()));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// The descriptor of a workspace was damaged, so its kind was not known, and sequences of two kinds
/// had one id. A number of the wrong kind was called safe, and the right one was refused.
async fn of_any_kind(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, mut ledger) = fixture.begin(PARTITION, WS, slow_flush(TrustLevel::Zero)).await;
    let command = named("one", cud(WS, vec![new_row(1, "shop.Receipt", [])], shop_db.soon()));
    let done = fixture.run(&first, &mut ledger, command).await.unwrap();
    first.kill();
    let node = with_lost_event(fixture, &done).await;
    let operator = operator(fixture, &node);
    let seq = SeqId(256);
    let sequences =
        [Sequence::within(seq, 1..10).unwrap(), Sequence::counting_from(seq, 1_000).unwrap()];
    let ids = [number(RECORD_ID, FIRST_RECORD_ID + 9), number(CRECORD_ID, FIRST_CRECORD_ID)];
    let mark = async |more: &[DrawnNumber]| {
        let given = Some([&ids, more].concat());
        operator.mark_with(done.plog, WsId(WS), done.wlog, given, &sequences).await
    };
    let needed = mark(&[]).await.unwrap_err();
    let safe = [number(seq, 5_095)];
    assert!(
        matches!(&needed, MarkError::NumbersNeeded(needed) if needed[..] == safe),
        "{needed:?}"
    );
    for low in [9, 999] {
        let refused = mark(&[number(seq, low)]).await.unwrap_err();
        assert!(matches!(refused, MarkError::NotAbove { .. }), "{low}: {refused:?}");
    }
    let marker = mark(&[number(seq, 1_000)]).await.unwrap();
    assert_eq!(marker.drawn.last(), Some(&number(seq, 1_000)));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A former leader left a copy of its event in the log of another workspace. The event of the later
/// leader was damaged. It was marked at the place, with the numbers and with the epoch of that
/// copy: no later leader could read the log on.
async fn leftover(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = slow_flush(TrustLevel::Two);
    let (zero, mut ledger) = fixture.begin(PARTITION, WS, settings.clone()).await;
    let create = named("other", create_workspace(OTHER_WS, shop_db.soon()));
    let other = fixture.run(&zero, &mut ledger, create).await.unwrap();
    assert_eq!(zero.stop().await, PartitionEnd::Stopped);
    let first = shop_db.node(PARTITION, settings);
    first.ready().await;
    // The first leader inserts its first event, and puts the later ones.
    let command = named("in front", cud(WS, article("in front"), shop_db.soon()));
    fixture.run(&first, &mut ledger, command).await.unwrap();
    let command = named("lost", cud(WS, article("lost"), shop_db.soon()));
    let done = fixture.run(&first, &mut ledger, command).await.unwrap();
    first.kill();
    let storage = &shop_db.app.storage;
    let put = async |row: AppRow, value, epoch: Epoch, at: u64| {
        let order = Order::from_parts(epoch.0, at).unwrap();
        let put = OrderedPut { key: row.key(), value, order, ttl: None };
        storage.put_ordered(vec![put], shop_db.soon()).await.unwrap();
    };
    let own = AppRow::Wlog(WsId(WS), done.wlog);
    let bytes = storage.get_linearizable(&own.key(), shop_db.soon()).await.unwrap().unwrap();
    let Entry::Event(mut left) = Entry::from_bytes(&bytes).unwrap() else { panic!("{own}") };
    let place = AppRow::Wlog(WsId(OTHER_WS), other.wlog.next());
    left.place.epoch = zero.log.fence().epoch();
    (left.place.ws, left.place.wlog) = (WsId(OTHER_WS), other.wlog.next());
    left.drawn.iter_mut().filter(|drawn| drawn.seq == WLOG_OFFSET.0).for_each(|drawn| {
        drawn.last = other.wlog.next().0;
    });
    put(place, left.to_bytes(), zero.log.fence().epoch(), done.plog.0).await;
    for row in [AppRow::Plog(PARTITION, done.plog), own] {
        put(row, DAMAGED, first.log.fence().epoch(), done.plog.0 + 1).await;
    }
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Two));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let operator = operator(fixture, &node);
    let mark =
        async |ws, wlog, given| operator.mark_corrupted(done.plog, WsId(ws), wlog, given).await;
    let refused = mark(OTHER_WS, other.wlog.next(), None).await.unwrap_err();
    assert!(matches!(refused, MarkError::NumbersNeeded(_)), "{refused:?}");
    let given =
        vec![number(RECORD_ID, FIRST_RECORD_ID + 99), number(CRECORD_ID, FIRST_CRECORD_ID + 99)];
    let marker = mark(WS, done.wlog, Some(given)).await.unwrap();
    assert_eq!(marker.place.epoch, first.log.fence().epoch(), "the epoch of the event before it");
    node.ready().await;
    let command = named("after", cud(WS, article("after"), shop_db.soon()));
    let after = fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!((after.plog, after.wlog), (done.plog.next(), done.wlog.next()));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// An operator states that a damaged row of the log is foreign. It is an acknowledged event:
/// another event comes after it, or a log of a workspace has its copy.
async fn removal(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (first, mut ledger) = fixture.begin(PARTITION, WS, slow_flush(TrustLevel::Zero)).await;
    let mut done = Vec::new();
    for name in ["one", "two"] {
        let command = named(name, cud(WS, article(name), shop_db.soon()));
        done.push(fixture.run(&first, &mut ledger, command).await.unwrap().plog);
    }
    let operator = operator(fixture, &first);
    let check = async |plog| {
        let row = AppRow::Plog(PARTITION, plog);
        operator.0.check_removal(row, Repair::Mark, true).await
    };
    // The copy of the first event is damaged, and an event comes after it. The second event is the
    // last one, and has its copy.
    for row in [AppRow::Wlog(WsId(WS), Offset(2)), AppRow::Plog(PARTITION, done[1])] {
        overwrite(fixture, row).await;
    }
    for plog in done.iter().copied() {
        let refused = check(plog).await.unwrap_err();
        assert!(matches!(refused, MarkError::WasEvent(event) if event == plog), "{refused:?}");
    }
    check(done[1].next()).await.unwrap();
    let unsaid = AppRow::Plog(PARTITION, done[1].next());
    let refused = operator.0.check_removal(unsaid, Repair::Mark, false).await.unwrap_err();
    assert!(matches!(refused, MarkError::MayBeEvent(_)), "{refused:?}");
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
}
