//! The row of a number is damaged, and so is an event that drew numbers.

use eventlog::{AppRow, TrustLevel, WsId};
use isequencer::{
    SeqId,
    standard::{CRECORD_ID, RECORD_ID, WLOG_OFFSET},
};
use istorage::{AppStorageExt, Key};
use processor::PartitionEnd;
use seqstorage::NumberRepairError;
use shop::{ShopNodeSettings, article, cud};
use sysvvm::NumberPlace;
use tck::trial::{Trial, trials};

use crate::{
    fixture::{CommandsFixture, PARTITION, WS, named},
    marked_events::{DAMAGED, operator, overwrite},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(damaged_numbers:
    a_safe_number_is_above_those_of_a_damaged_event
        = |fixture| above_last_event(fixture, LastEvent::Damaged),
    a_safe_number_is_above_those_of_a_missing_event
        = |fixture| above_last_event(fixture, LastEvent::Missing),
);

/// The state of the last event in the log of the workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastEvent {
    Damaged,
    Missing,
}

/// The log does not tell the ids of the last event. The id that the event before it drew would be
/// taken for the last one, and the ids of the last event would be given twice.
async fn above_last_event(fixture: &CommandsFixture, last: LastEvent) {
    let shop_db = &fixture.shop_db;
    let settings = || ShopNodeSettings::at(TrustLevel::Zero);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings()).await;
    let mut ids = Vec::new();
    let mut ends = Vec::new();
    for name in ["a", "b"] {
        let command = named(name, cud(WS, article(name), shop_db.soon()));
        let done = fixture.run(&node, &mut ledger, command).await.unwrap();
        ids.extend(done.answer.ids.iter().map(|(_, id)| id.0).max());
        ends.push(done.wlog);
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let row = AppRow::Wlog(WsId(WS), ends[1]);
    overwrite(fixture, row).await;
    if last == LastEvent::Missing {
        let deleted = shop_db.app.storage.compare_and_delete(row.key(), DAMAGED, shop_db.soon());
        assert!(deleted.await.unwrap().is_applied());
    }
    let pkey = [&[0, 0, 0, 3, 0, 0, 0, 1][..], &WS.to_be_bytes()].concat();
    let key = Key::new(pkey, CRECORD_ID.0.to_be_bytes().to_vec());
    let system = shop_db.system.storage();
    let there = system.get_linearizable(&key, shop_db.soon()).await.unwrap().unwrap();
    assert_eq!(there, ids[1].to_be_bytes().as_slice());
    let swap = system.compare_and_swap(key, there, DAMAGED, None, shop_db.soon());
    assert!(swap.await.unwrap().is_applied());

    let node = shop_db.node(PARTITION, settings());
    node.ready().await;
    let storage = operator(fixture, &node).0;
    let plan = async |SeqId(seq), number| {
        storage.plan_number(NumberPlace::Last { ws: WS, seq }, number, &[]).await
    };
    let low = plan(CRECORD_ID, Some(ids[0] - 1)).await.unwrap_err();
    let safe = ids[0] + 4_096;
    assert!(
        matches!(low, NumberRepairError::TooLow { known, safe: shown } if (known, shown) == (ids[0], safe)),
        "{low:?}"
    );
    let none = plan(RECORD_ID, None).await.unwrap_err();
    assert!(matches!(none, NumberRepairError::NoRow), "{none:?}");
    let whole = plan(WLOG_OFFSET, None).await.unwrap_err();
    assert!(matches!(whole, NumberRepairError::Readable(last) if last == ends[1].0), "{whole:?}");
    let safe_plan = plan(CRECORD_ID, None).await.unwrap();
    assert_eq!((safe_plan.number(), safe_plan.found()), (safe, &DAMAGED));
    storage.repair_number(&safe_plan).await.unwrap();
    let again = storage.repair_number(&safe_plan).await.unwrap_err();
    assert!(matches!(again, NumberRepairError::Changed), "{again:?}");

    let after = named("c", cud(WS, article("c"), shop_db.soon()));
    let after = fixture.run(&node, &mut ledger, after).await.unwrap();
    let first = after.answer.ids.iter().map(|(_, id)| id.0).min();
    assert_eq!(first, Some(safe + 1));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
