//! An event that the present leader has not seen. An earlier leader stood still before it wrote the
//! event, and wrote the event after the present leader had read the log.

use bytes::Bytes;
use eventlog::{
    Change, Drawn, Event, Offset, Place, Record, RecordId, Row, StoredRecord, TableKind,
    TrustLevel, Version, WsId,
};
use istorage::AppStorageExt;
use processor::{Busy, PartitionEnd, Refused, RejectionKind};
use vvm_tests::commands::{
    NodeSettings, article, check, create_workspace, cud, record_name, text, update,
};

use crate::stage::{OTHER_WS, PARTITION, Stage, TrialFn, WS, named};

pub(crate) const TRIALS: &[(&str, TrialFn)] = &[
    ("unseen::nothing_is_judged_by_an_event_that_was_not_seen", |stage| Box::pin(judged(stage))),
    ("unseen::a_row_of_no_event_is_told_and_in_nobody_elses_way", |stage| {
        Box::pin(of_no_event(stage))
    }),
];

/// The record of that event existed. The client sent the command of the event again, and the
/// command was rejected, as if it had done nothing.
async fn judged(stage: &Stage) {
    let site = &stage.site;
    let settings = NodeSettings::at(TrustLevel::Zero);
    let (first, mut ledger) = stage.begin(PARTITION, WS, settings).await;
    assert_eq!(first.stop().await, PartitionEnd::Stopped);
    let node = site.node(PARTITION, NodeSettings::at(TrustLevel::Zero));
    node.ready().await;

    let event = created(first.log.epoch(), site.clock.wall());
    let Place { epoch, plog, ws, .. } = event.place;
    let record = event.changes[0].record.clone();
    let row = Row::Record(ws, record.id);
    let stored = StoredRecord { ws, version: Version { epoch, plog }, record };
    let (log, table) = (Row::Plog(PARTITION, plog).key(), row.key());
    for (key, value) in [(log, event.to_bytes()), (table, stored.to_bytes())] {
        let inserted = site.app.storage.insert_if_not_exists(key, value, None, site.soon()).await;
        assert!(inserted.unwrap().is_applied());
    }

    ledger.open("again");
    let again = || named("again", create_workspace(OTHER_WS, site.soon()));
    let refused = node.commands.run(again()).await.unwrap_err();
    assert!(matches!(refused, Refused::Busy(Busy::Storage(_))), "{refused:?}");
    node.ready().await;
    let refused = node.commands.run(again()).await.unwrap_err();
    let is_there =
        matches!(&refused, Refused::Rejected(why) if why.kind == RejectionKind::Conflict);
    assert!(is_there, "now it has seen it: {refused:?}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(site, PARTITION, &ledger).await;
}

/// A record names an event that does not exist, as after part of the storage was restored from an
/// earlier moment. For each command that read the record, the log was read again. Meanwhile all
/// other commands were refused.
async fn of_no_event(stage: &Stage) {
    let site = &stage.site;
    let (node, mut ledger) = stage.begin(PARTITION, WS, NodeSettings::at(TrustLevel::Zero)).await;
    let command = named("article", cud(WS, article("a"), site.soon()));
    let done = stage.run(&node, &mut ledger, command).await.unwrap();
    let id = done.answer.ids[0].1;
    let key = Row::Record(WsId(WS), id).key();
    let old = site.app.storage.get_linearizable(&key, site.soon()).await.unwrap().unwrap();
    let mut stored = StoredRecord::from_bytes(&old).unwrap();
    stored.version.plog = Offset(1_000);
    let swap = site.app.storage.compare_and_swap(key, old, stored.to_bytes(), None, site.soon());
    assert!(swap.await.unwrap().is_applied());

    let look = || cud(WS, vec![update(id, None, "x")], site.soon());
    let refused = stage.run(&node, &mut ledger, named("look", look())).await.unwrap_err();
    assert!(matches!(refused, Refused::Busy(Busy::Storage(_))), "{refused:?}");
    node.ready().await;
    for request in ["look again", "and again"] {
        let refused = stage.run(&node, &mut ledger, named(request, look())).await.unwrap_err();
        assert!(refused.to_string().contains("event 1000 wrote it"), "{refused}");
        let command = named(&format!("beside {request}"), cud(WS, article("b"), site.soon()));
        stage.run(&node, &mut ledger, command).await.unwrap();
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// The event of the command `again`.
fn created(epoch: eventlog::Epoch, time: clock::WallTime) -> Event {
    let (ws, wlog) = (WsId(OTHER_WS), Offset(1));
    let field = |name: &str, value: &str| (name.parse().unwrap(), text(value));
    let record = Record {
        table: record_name("sys.WorkspaceDescriptor"),
        kind: TableKind::Singleton,
        id: RecordId(65_536),
        parent: None,
        is_active: true,
        fields: [field("kind", "Shop"), field("name", "Corner shop")].into(),
    };
    Event {
        place: Place { epoch, plog: Offset(2), ws, wlog },
        time,
        request: "again".to_owned(),
        idempotency: None,
        command: record_name("sys.CreateWorkspace"),
        params: Bytes::new(),
        changes: vec![Change { replaces: None, record }],
        drawn: vec![Drawn { seq: 1, last: 1 }],
    }
}
