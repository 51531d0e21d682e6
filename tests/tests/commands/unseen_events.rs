//! An event that the present leader has not seen. An earlier leader stood still before it wrote the
//! event, and wrote the event after the present leader had read the log.

use eventlog::{
    AppRow, DrawnNumber, Event, EventPlace, Offset, Record, RecordChange, RecordId, StoredRecord,
    TableKind, TrustLevel, Version, WsId,
};
use istorage::AppStorageExt;
use processor::{Busy, PartitionEnd, Refused, RejectionKind};
use shop::{ShopNodeSettings, article, check, create_workspace, cud, qname, text, update};
use tck::trial::{Trial, trials};

use crate::fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(unseen_events:
    no_command_is_judged_by_an_event_that_was_not_replayed = judged,
    a_row_of_a_missing_event_is_reported_and_delays_no_other_command = of_no_event,
);

/// The record of that event existed. The client sent the command of the event again, and the
/// command was rejected, as if it had done nothing.
async fn judged(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (first, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;

    let event = created(first.log.fence().epoch(), shop_db.clock.wall());
    let EventPlace { epoch, plog, ws, .. } = event.place;
    let record = event.changes[0].record.clone();
    let row = AppRow::Record(ws, record.id);
    let stored = StoredRecord { ws, version: Version { epoch, plog }, record };
    let (log, table) = (AppRow::Plog(PARTITION, plog).key(), row.key());
    for (key, value) in [(log, event.to_bytes()), (table, stored.to_bytes())] {
        let inserted =
            shop_db.app.storage.insert_if_not_exists(key, value, None, shop_db.soon()).await;
        assert!(inserted.unwrap().is_applied());
    }

    ledger.open("again");
    let again = || named("again", create_workspace(OTHER_WS, shop_db.soon()));
    let refused = node.commands.run(again()).await.unwrap_err();
    assert!(matches!(refused, Refused::Busy(Busy::Storage(_))), "{refused:?}");
    node.ready().await;
    let refused = node.commands.run(again()).await.unwrap_err();
    let is_there =
        matches!(&refused, Refused::Rejected(why) if why.kind == RejectionKind::Conflict);
    assert!(is_there, "now it has seen it: {refused:?}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A record names an event that does not exist, as after part of the storage was restored from an
/// earlier moment. For each command that read the record, the log was read again. Meanwhile all
/// other commands were refused.
async fn of_no_event(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (node, mut ledger) =
        fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Zero)).await;
    let command = named("article", cud(WS, article("a"), shop_db.soon()));
    let done = fixture.run(&node, &mut ledger, command).await.unwrap();
    let id = done.answer.ids[0].1;
    let key = AppRow::Record(WsId(WS), id).key();
    let old = shop_db.app.storage.get_linearizable(&key, shop_db.soon()).await.unwrap().unwrap();
    let mut stored = StoredRecord::from_bytes(&old).unwrap();
    stored.version.plog = Offset(1_000);
    let swap =
        shop_db.app.storage.compare_and_swap(key, old, stored.to_bytes(), None, shop_db.soon());
    assert!(swap.await.unwrap().is_applied());

    let look = || cud(WS, vec![update(id, None, "x")], shop_db.soon());
    let refused = fixture.run(&node, &mut ledger, named("look", look())).await.unwrap_err();
    assert!(matches!(refused, Refused::Busy(Busy::Storage(_))), "{refused:?}");
    node.ready().await;
    for request in ["look again", "and again"] {
        let refused = fixture.run(&node, &mut ledger, named(request, look())).await.unwrap_err();
        assert!(refused.to_string().contains("names event 1000 as its writer"), "{refused}");
        let command = named(&format!("beside {request}"), cud(WS, article("b"), shop_db.soon()));
        fixture.run(&node, &mut ledger, command).await.unwrap();
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// The event of the command `again`.
fn created(epoch: eventlog::Epoch, time: clock::WallTime) -> Event {
    let (ws, wlog) = (WsId(OTHER_WS), Offset(1));
    let field = |name: &str, value: &str| (name.parse().unwrap(), text(value));
    let record = Record {
        table: qname("sys.WorkspaceDescriptor"),
        kind: TableKind::Singleton,
        id: RecordId(65_536),
        parent: None,
        is_active: true,
        fields: [field("kind", "Shop"), field("name", "Corner shop")].into(),
    };
    let place = EventPlace { epoch, plog: Offset(2), ws, wlog };
    Event {
        request: "again".to_owned(),
        changes: vec![RecordChange { replaces: None, record }],
        drawn: vec![DrawnNumber { seq: 1, last: 1 }],
        ..Event::new(place, time, qname("sys.CreateWorkspace"))
    }
}
