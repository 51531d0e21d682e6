//! The rules of drawing, at all trust levels.

use std::{collections::BTreeMap, time::Duration};

use eventlog::{AppRow, RecordId, Value, WsId};
use istorage::AppStorageExt;
use processor::{Application, Command, FieldChange, Refused, Rejection, RejectionKind, RowChange};
use shop::{create_workspace, cud, new_row, qname, text, update};

use crate::scene::{COUNTER, DAY, LEVELS, Scene, WS, invoice, wrong_row};

/// The rejection of a command.
pub(crate) fn rejected<T>(answered: Result<T, Refused>) -> Rejection {
    match answered.map(drop) {
        Err(Refused::Rejected(rejection)) => rejection,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_workspace_counts_on_its_own_and_an_update_keeps_the_number() {
    for level in LEVELS {
        let scene = Scene::new(level, 0).await;
        let node = scene.lead_in(&[WS, 11]).await;
        let written = scene.write(&node, WS, vec![invoice(1), invoice(2)]).await;
        assert_eq!(written.unwrap(), ["INV2026-0001", "INV2026-0002"]);
        assert_eq!(scene.write(&node, 11, vec![invoice(1)]).await.unwrap(), ["INV2026-0001"]);
        let done = scene.run(&node, scene.draw(WS, "invoice INVOICE")).await.unwrap();
        assert_eq!(done.answer.result, "INV2026-0003 INV2026-0004");
        let done = scene.run(&node, cud(WS, vec![invoice(1)], scene.shop_db.soon())).await;
        let (_, id) = done.unwrap().answer.ids[0];
        let paid = vec![update(id, None, "paid")];
        scene.run(&node, cud(WS, paid, scene.shop_db.soon())).await.unwrap();
        assert_eq!(scene.number(WS, id).await.unwrap(), "INV2026-0005");
        assert_eq!(scene.end(&node).await.all.len(), 6);
    }
}

#[tokio::test]
async fn the_counter_starts_again_in_each_year_and_never_goes_back() {
    for level in LEVELS {
        let scene = Scene::new(level, 0).await;
        let mut node = scene.lead_in(&[WS]).await;
        let expected = [
            (0, "INV2026-0001"),
            (364, "INV2026-0002"),
            (1, "INV2027-0001"),
            (-300, "INV2027-0002"),
            (299, "INV2027-0003"),
            (366, "INV2028-0001"),
        ];
        for (days, number) in expected {
            scene.manual.step_wall(days * DAY);
            assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), [number]);
        }
        // The next leader has a clock that is behind.
        scene.stop(&node).await;
        scene.manual.step_wall(-800 * DAY);
        node = scene.lead_in(&[]).await;
        let behind = scene.write(&node, WS, vec![invoice(1)]).await;
        assert_eq!(behind.unwrap(), ["INV2028-0002"]);
        assert_eq!(scene.end(&node).await.all.len(), 7);
    }
}

/// An operator wrote the counter record again, and such a row hides ordered writes. At levels 1 and
/// 2 the leader had the counter in memory, and put the next ones. They were hidden, and the next
/// leader gave their numbers again.
#[tokio::test]
async fn a_counter_that_an_operator_has_repaired_counts_on() {
    for level in LEVELS {
        let scene = Scene::new(level, 0).await;
        let mut node = scene.lead_in(&[WS]).await;
        assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["INV2026-0001"]);
        let (storage, soon) = (&scene.shop_db.app.storage, scene.shop_db.soon());
        let key = AppRow::Record(WsId(WS), COUNTER).key();
        let counter = storage.get_linearizable(&key, soon).await.unwrap().unwrap();
        let repaired = storage.compare_and_swap(key, counter.clone(), counter, None, soon).await;
        assert!(repaired.unwrap().is_applied());
        assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["INV2026-0002"]);
        scene.stop(&node).await;
        node = scene.lead_in(&[]).await;
        assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["INV2026-0003"]);
        assert_eq!(scene.end(&node).await.all.len(), 3);
    }
}

/// A command waits while the year ends. Its handler and its event have one time.
#[tokio::test]
async fn the_number_belongs_to_the_time_of_its_event() {
    let scene = Scene::new(LEVELS[0], 0).await;
    let node = scene.lead_in(&[WS]).await;
    // The last millisecond of the year.
    let wall = scene.shop_db.clock.wall().as_millis();
    scene.manual.step_wall(1_798_761_600_000 - i64::try_from(wall).unwrap() - 1);
    for _ in 0..4 {
        let soon = scene.shop_db.soon();
        let row = |raw| cud(WS, vec![invoice(raw)], soon);
        let many = futures::future::join_all((1..9).map(|raw| scene.send(&node, row(raw))));
        scene.in_time(many).await.into_iter().for_each(|answered| drop(answered.unwrap()));
        scene.manual.advance(Duration::from_millis(1));
    }
    let numbers = scene.end(&node).await;
    assert!(numbers.all.contains(&(WsId(WS), "INV2026-0001".to_owned())), "{numbers:?}");
    assert!(numbers.all.contains(&(WsId(WS), "INV2027-0001".to_owned())), "{numbers:?}");
    assert_eq!(numbers.all.len(), 32);
}

/// Commands of one group, some of which fail after they have drawn.
#[tokio::test]
async fn a_command_that_fails_draws_nothing_for_the_others_of_its_group() {
    for level in LEVELS {
        let scene = Scene::new(level, 0).await;
        let node = scene.lead_in(&[WS]).await;
        scene.faults.take_calls();
        let soon = scene.shop_db.soon();
        let good = || cud(WS, vec![invoice(1)], soon);
        let bad = || cud(WS, vec![invoice(1), invoice(2), wrong_row(3)], soon);
        let draws = || scene.draw(WS, "invoice").with_rows(vec![wrong_row(9)]);
        let mixed = scene.draw(WS, "invoice order");
        let panics = Command::new(WsId(WS), qname("shop.Fail"), soon).with_rows(vec![invoice(1)]);
        let all = [good(), bad(), good(), draws(), mixed, panics, good()];
        let all = all.map(|command| scene.send(&node, command));
        let answers = scene.in_time(futures::future::join_all(all)).await;
        let done: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        assert_eq!(done, [true, false, true, false, false, false, true]);
        let events: Vec<_> = answers.iter().flatten().map(|done| done.plog.0).collect();
        assert_eq!(events, [2, 3, 4], "the offsets of the events");
        if level == LEVELS[0] {
            assert_eq!(scene.faults.take_calls().get("write_atomic"), Some(&1), "one group");
        }
        assert_eq!(scene.end(&node).await.all.len(), 3);
    }
}

#[tokio::test]
async fn a_group_that_is_not_written_draws_nothing() {
    for level in LEVELS {
        let scene = Scene::new(level, 0).await;
        let node = scene.lead_in(&[WS]).await;
        assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["INV2026-0001"]);
        scene.faults.refuse_writes(1);
        let soon = scene.shop_db.soon();
        let group = [1, 2, 3].map(|raw| scene.send(&node, cud(WS, vec![invoice(raw)], soon)));
        let answers = scene.in_time(futures::future::join_all(group)).await;
        for answered in answers {
            assert!(matches!(answered, Err(Refused::Busy(_))), "{answered:?}");
        }
        scene.in_time(node.ready()).await;
        assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["INV2026-0002"]);
        assert_eq!(scene.end(&node).await.all.len(), 2);
    }
}

#[tokio::test]
async fn a_value_for_a_number_field_is_refused() {
    let scene = Scene::new(LEVELS[0], 0).await;
    let node = scene.lead_in(&[WS]).await;
    let run = async |rows| scene.run(&node, cud(WS, rows, scene.shop_db.soon())).await;
    let (_, id) = run(vec![invoice(1)]).await.unwrap().answer.ids[0];
    let sent = || text("INV2026-0009");
    let change = |value: Option<Value>| RowChange::Update {
        id,
        table: None,
        version: None,
        is_active: None,
        fields: BTreeMap::from([("number".parse().unwrap(), value.into())]),
    };
    let create = new_row(1, "shop.Invoice", [("number", sent())]);
    for row in [create, change(Some(sent())), change(None)] {
        let Rejection { kind, message } = rejected(run(vec![row]).await);
        assert_eq!(kind, RejectionKind::Invalid);
        assert!(
            message.contains("`number` of shop.Invoice") && message.contains("leave"),
            "{message}"
        );
    }
    assert_eq!(scene.number(WS, id).await.unwrap(), "INV2026-0001");
    scene.end(&node).await;
}

#[tokio::test]
async fn only_the_system_writes_its_records() {
    let scene = Scene::new(LEVELS[0], 0).await;
    let node = scene.lead_in(&[WS]).await;
    let run = async |rows| scene.run(&node, cud(WS, rows, scene.shop_db.soon())).await;
    run(vec![invoice(1)]).await.unwrap();
    let change = |id, table| RowChange::Update {
        id,
        table,
        version: None,
        is_active: None,
        fields: BTreeMap::from([("next".parse().unwrap(), FieldChange::Set(Value::Int64(1)))]),
    };
    let table = "sys.NumberCounter65601";
    let create = new_row(1, table, [("next", Value::Int64(1))]);
    let descriptor = change(Application::DESCRIPTOR, None);
    for row in [descriptor, change(COUNTER, None), change(COUNTER, Some(qname(table))), create] {
        let Rejection { kind, message } = rejected(run(vec![row]).await);
        assert_eq!(kind, RejectionKind::Invalid);
        assert!(message.contains("only commands of the system"), "{message}");
    }
    scene.end(&node).await;
}

#[tokio::test]
async fn a_handler_cannot_draw_from_a_fast_or_an_unknown_series() {
    let scene = Scene::new(LEVELS[0], 0).await;
    let node = scene.lead_in(&[WS]).await;
    for (series, why) in [("order", "`order` is fast"), ("offer", "no series `offer`")] {
        let Rejection { kind, message } = rejected(scene.run(&node, scene.draw(WS, series)).await);
        assert_eq!(kind, RejectionKind::Invalid);
        assert!(message.contains(why), "{message}");
    }
    assert_eq!(scene.end(&node).await.all.len(), 0);
}

/// A counter record was read by each command by itself, and later once for each group: commands
/// with a number had half of the rate of commands without one. Now the first group reads all
/// counter records with one call, and the next groups know them. A group whose write fails forgets
/// them, because their content is unknown.
#[tokio::test]
async fn counter_records_are_read_once() {
    let scene = Scene::new(LEVELS[0], 0).await;
    let workspaces = [1, 11, 21, 31, 41];
    let node = scene.lead_in(&workspaces).await;
    for (round, is_known) in [(1, false), (2, true), (3, true)] {
        scene.faults.take_calls();
        let soon = scene.shop_db.soon();
        let group = workspaces.map(|ws| scene.send(&node, cud(ws, vec![invoice(1)], soon)));
        for answered in scene.in_time(futures::future::join_all(group)).await {
            answered.unwrap();
        }
        let calls = scene.faults.take_calls();
        let batches = (!is_known).then_some(&1);
        assert_eq!((calls.get("get_batch"), calls.get("get")), (batches, None), "{calls:?}");
        assert_eq!(calls.get("write_atomic"), Some(&1), "round {round}: {calls:?}");
    }
    scene.faults.refuse_writes(1);
    assert!(scene.write(&node, WS, vec![invoice(1)]).await.is_err());
    scene.in_time(node.ready()).await;
    scene.faults.take_calls();
    scene.write(&node, WS, vec![invoice(1)]).await.unwrap();
    let calls = scene.faults.take_calls();
    assert_eq!(calls.get("get_batch"), Some(&1), "the counter record: {calls:?}");
    assert_eq!(scene.end(&node).await.all.len(), 16);
}

/// A workspace that exists gets a counter record with its first number, even in the group that
/// creates the workspace.
#[tokio::test]
async fn a_workspace_draws_in_the_group_that_creates_it() {
    let scene = Scene::new(LEVELS[0], 0).await;
    let node = scene.lead_in(&[]).await;
    let soon = scene.shop_db.soon();
    let group = [
        create_workspace(WS, soon),
        cud(WS, vec![invoice(1)], soon),
        cud(WS, vec![invoice(1)], soon),
    ];
    let group = group.map(|command| scene.send(&node, command));
    for answered in scene.in_time(futures::future::join_all(group)).await {
        answered.unwrap();
    }
    assert_eq!(scene.number(WS, RecordId(322_680_000_131_072)).await.unwrap(), "INV2026-0001");
    assert_eq!(scene.end(&node).await.all.len(), 2);
}

/// The counter record was read ahead for a command that waits for the next group. The group before
/// it counts on.
#[tokio::test]
async fn a_command_of_the_next_group_does_not_use_the_counter_of_before_the_group() {
    for level in LEVELS {
        let scene = Scene::new(level, 0).await;
        let node = scene.lead_in(&[WS, 11]).await;
        let (soon, clock) = (scene.shop_db.soon(), &scene.shop_db.clock);
        let row = |ws| cud(ws, vec![invoice(1)], soon);
        assert!(scene.write(&node, WS, vec![invoice(1)]).await.is_ok());
        assert!(scene.write(&node, 11, vec![invoice(1)]).await.is_ok());
        // The handler ends the group, and then its own deadline ends it.
        let deadline = clock.now() + Duration::from_secs(2);
        let slow = Command::new(WsId(WS), qname("shop.Never"), deadline);
        let all = [row(WS), row(11), slow, row(WS), row(11)];
        let all = all.map(|command| scene.send(&node, command));
        let answers = scene.in_time(futures::future::join_all(all)).await;
        let done: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        assert_eq!(done, [true, true, false, true, true], "{answers:?}");
        assert_eq!(scene.end(&node).await.all.len(), 6);
    }
}
