//! Handlers that do wrong things, and rows that no command may write.

use std::time::Duration;

use eventlog::{RecordId, TrustLevel, Value, WsId};
use processor::{Busy, Command, PartitionEnd, Refused, RejectionKind};
use shop::{ShopNodeSettings, check, child, cud, new_row, qname, text, update};
use tck::trial::{Trial, trials};

use crate::fixture::{CommandsFixture, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(handlers:
    a_handler_that_ignores_an_error_commits_nothing = swallows,
    a_handler_that_never_ends_is_given_up = never_ends,
    rows_of_several_calls_count_once = in_two_calls,
    forbidden_rows_are_refused = forbidden,
);

fn of_kind(refused: Refused, kind: RejectionKind) {
    assert!(matches!(&refused, Refused::Rejected(why) if why.kind == kind), "{refused:?}");
}

fn by(name: &str, command: Command) -> Command {
    Command { name: qname(name), ..command }
}

/// Once a row with a field that its table does not have was written to the log.
async fn swallows(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    for (name, rows) in [
        ("a field", vec![new_row(1, "shop.Article", [("nonsense", Value::Int64(1))])]),
        // With a changed descriptor, no other command of the workspace was ever done again.
        ("the descriptor", vec![update(RecordId(65_536), None, "x")]),
    ] {
        let command = named(name, by("shop.Swallow", cud(WS, rows, shop_db.soon())));
        let refused = fixture.run(&node, &mut ledger, command).await.unwrap_err();
        of_kind(refused, RejectionKind::Internal);
    }
    let command = named(
        "right",
        by("shop.Swallow", cud(WS, vec![new_row(1, "shop.Article", [])], shop_db.soon())),
    );
    fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// The command has a deadline, and other commands wait no longer than that.
async fn never_ends(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let soon = shop_db.clock.now() + Duration::from_millis(300);
    let command = named("never", by("shop.Never", cud(WS, Vec::new(), soon)));
    let refused = fixture.run(&node, &mut ledger, command).await.unwrap_err();
    let is_late = matches!(refused, Refused::Unknown(_) | Refused::Busy(Busy::TimedOut));
    assert!(is_late, "{refused:?}");
    let deadline = shop_db.clock.now() + Duration::from_secs(20);
    let command = named("after", cud(WS, vec![new_row(1, "shop.Article", [])], deadline));
    fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

async fn in_two_calls(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let rows = |count| {
        (1..=count).map(|id| new_row(id, "shop.Line", [])).map(|row| match row {
            processor::RowChange::Create { raw, fields, .. } => processor::RowChange::Create {
                raw,
                table: qname("shop.Bill"),
                parent: None,
                fields,
            },
            update @ processor::RowChange::Update { .. } => update,
        })
    };
    // The rows are more than half of the limit of one command.
    let many = by("shop.Twice", cud(WS, rows(2_100).collect(), shop_db.soon()));
    let done = fixture.run(&node, &mut ledger, named("many", many)).await.unwrap();
    assert_eq!(done.answer.ids.len(), 2_100);
    let too_many = by("shop.Twice", cud(WS, rows(4_097).collect(), shop_db.soon()));
    let refused = fixture.run(&node, &mut ledger, named("too many", too_many)).await.unwrap_err();
    of_kind(refused, RejectionKind::TooLarge);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

async fn forbidden(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let order = named(
        "order",
        cud(WS, vec![new_row(1, "shop.Order", [("name", text("o"))])], shop_db.soon()),
    );
    let order = fixture.run(&node, &mut ledger, order).await.unwrap().answer.ids[0].1;
    let part = |id, of| child(id, "shop.Part", (of, "parts"), []);
    for (name, rows) in [
        ("in itself", vec![part(1, 1)]),
        ("in one another", vec![part(1, 2), part(2, 1)]),
        ("below a circle", vec![part(1, 2), part(2, 3), part(3, 2)]),
        ("an item later than its order", vec![child(1, "shop.Item", (order.0, "items"), [])]),
        ("a descriptor", vec![new_row(1, "sys.WorkspaceDescriptor", [])]),
    ] {
        let command = named(name, cud(WS, rows, shop_db.soon()));
        let refused = fixture.run(&node, &mut ledger, command).await.unwrap_err();
        of_kind(refused, RejectionKind::Invalid);
    }
    let again = named("again", shop::create_workspace(WS, shop_db.soon()));
    let refused = fixture.run(&node, &mut ledger, again).await.unwrap_err();
    let exists = format!("workspace {WS} exists already");
    assert!(refused.to_string().contains(&exists), "{refused}");
    // The sender may give rows in any order, here the deepest ones first.
    let article = new_row(3, "shop.Article", []);
    let rows = vec![part(1, 2), child(2, "shop.Part", (3, "parts"), []), article];
    let tree = named("a tree", cud(WS, rows, shop_db.soon()));
    let ids = fixture.run(&node, &mut ledger, tree).await.unwrap().answer.ids;
    let deep = shop_db.reader().record(WsId(WS), ids[0].1).await.unwrap().unwrap();
    assert_eq!(deep.record.parent.unwrap().id, ids[1].1);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}
