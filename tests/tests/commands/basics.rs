//! The results of commands: their numbers, their rows, and their answers.

use eventlog::{RecordId, TrustLevel, Value};
use isequencer::standard::FIRST_CRECORD_ID;
use processor::{IdempotencyKey, PartitionEnd, Refused, RejectionKind};
use shop::{
    AnswerLedger, ShopNodeSettings, article, bill, check, child, create_workspace, cud, new_row,
    text, update,
};
use tck::trial::{Trial, trials};

use crate::fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(basics:
    the_first_numbers_come_from_the_built_in_sequences = built_in_sequences,
    written_rows_can_be_read_at_every_level = written,
    a_command_that_is_sent_again_gets_the_first_answer = repeated,
    a_rejected_command_changes_nothing = rejected,
);

/// The trial `it.BuiltInSequences`: PLog and WLog begin at 1, the ids of records of workspaces at
/// 322680000131072, and those of records of collections at 322685000131072.
async fn built_in_sequences(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    let mut ledger = AnswerLedger::default();
    let create = named("create", create_workspace(WS, shop_db.soon()));
    let created = fixture.run(&node, &mut ledger, create).await.unwrap();
    assert_eq!((created.plog.0, created.wlog.0), (1, 1));
    let other = named("other", create_workspace(OTHER_WS, shop_db.soon()));
    let other = fixture.run(&node, &mut ledger, other).await.unwrap();
    assert_eq!((other.plog.0, other.wlog.0), (2, 1), "each workspace has a log of its own");
    // Records of operations draw from the sequence of documents.
    let order = vec![
        new_row(1, "shop.Order", []),
        child(2, "shop.Item", (1, "items"), []),
        child(3, "shop.Item", (1, "items"), []),
    ];
    for (first, rows) in [
        (322_685_000_131_072, article("a")),
        (322_680_000_131_072, bill("b")),
        (322_680_000_131_075, order),
    ] {
        let name = format!("first {first}");
        let command = named(&name, cud(WS, rows, shop_db.soon()));
        let done = fixture.run(&node, &mut ledger, command).await.unwrap();
        let ids: Vec<_> = (0..3).map(|n| (RecordId(n + 1), RecordId(first + n))).collect();
        assert_eq!(done.answer.ids, ids);
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

async fn written(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    for (partition, level) in [(1, TrustLevel::Zero), (2, TrustLevel::One), (3, TrustLevel::Two)] {
        let ws = WS + u64::from(partition - PARTITION);
        let mut ledger = AnswerLedger::default();
        let settings = ShopNodeSettings::at(level);
        // There are two nodes, so that the second one recovers the events of the first one.
        for round in 0..2 {
            let node = shop_db.node(partition, settings.clone());
            node.ready().await;
            if round == 0 {
                let create = named("create", create_workspace(ws, shop_db.soon()));
                fixture.run(&node, &mut ledger, create).await.unwrap();
            }
            let request = format!("article {round}");
            let mut rows = article("new");
            if round == 1 {
                // The prices come before their article.
                rows.reverse();
            }
            let command = named(&request, cud(ws, rows, shop_db.soon()));
            let done = fixture.run(&node, &mut ledger, command).await.unwrap();
            let (_, id) = *done.answer.ids.iter().find(|(raw, _)| *raw == RecordId(1)).unwrap();
            let request = format!("update {round}");
            let command = named(&request, cud(ws, vec![update(id, None, "newer")], shop_db.soon()));
            let done = fixture.run(&node, &mut ledger, command).await.unwrap();
            let record = shop_db.reader().record(eventlog::WsId(ws), id).await.unwrap().unwrap();
            assert_eq!(record.record.fields["name"], text("newer"));
            assert_eq!(record.record.fields["weight"], Value::Float64(1.5));
            assert_eq!(record.version.plog, done.plog);
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
        }
        check(shop_db, partition, &ledger).await;
    }
}

async fn repeated(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let command = |body: &[u8]| {
        let mut command = named("article", cud(WS, article("a"), shop_db.soon()));
        command.idempotency_key = Some(IdempotencyKey::new("joe", b"key 1", body));
        command
    };
    let first = fixture.run(&node, &mut ledger, command(b"body")).await.unwrap();
    assert!(!first.is_repeated);
    let again = fixture.run(&node, &mut ledger, command(b"body")).await.unwrap();
    assert!(again.is_repeated);
    assert_eq!((again.plog, &again.answer), (first.plog, &first.answer));
    let other = node.commands.run(command(b"another body")).await.unwrap_err();
    assert!(matches!(&other, Refused::Rejected(why) if why.kind == RejectionKind::KeyReused));
    node.kill();
    let next = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    next.ready().await;
    let again = fixture.run(&next, &mut ledger, command(b"body")).await.unwrap();
    assert!(again.is_repeated && again.answer == first.answer, "after a crash too");
    // The same command is sent many times at once, and is done once.
    let both = |name: &str| {
        let mut command = named(name, cud(WS, article("b"), shop_db.soon()));
        command.idempotency_key = Some(IdempotencyKey::new("joe", b"key 2", b""));
        command
    };
    let sent = (0..20).map(|_| next.commands.run(both("both")));
    let answers = futures::future::join_all(sent).await;
    for answer in &answers {
        ledger.note("both", answer);
    }
    let firsts = answers.iter().filter(|answer| !answer.as_ref().unwrap().is_repeated);
    assert_eq!(firsts.count(), 1);
    assert_eq!(next.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

async fn rejected(fixture: &CommandsFixture) {
    use RejectionKind::{Conflict, Invalid, NotFound, TooLarge};
    let shop_db = &fixture.shop_db;
    let mut ledger = AnswerLedger::default();
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    let nowhere = node.commands.run(named("x", cud(WS, article("a"), shop_db.soon()))).await;
    assert!(matches!(nowhere, Err(Refused::Rejected(why)) if why.kind == NotFound));
    let create = named("create", create_workspace(WS, shop_db.soon()));
    fixture.run(&node, &mut ledger, create).await.unwrap();
    let first = named("first", cud(WS, article("a"), shop_db.soon()));
    let first = fixture.run(&node, &mut ledger, first).await.unwrap();
    let id = first.answer.ids[0].1;
    let stored = shop_db.reader().record(eventlog::WsId(WS), id).await.unwrap().unwrap();
    let mut stale = stored.version;
    stale.plog = eventlog::Offset(1);
    let like = |id: u64| new_row(1, "shop.Article", [("like", Value::Ref(RecordId(id)))]);
    let too_many = (1..=4_097).map(|id| new_row(id, "shop.Article", [])).collect();
    let mut twice = article("a");
    twice.extend(article("a"));
    let wrong = [
        (Invalid, vec![]),
        (Invalid, vec![new_row(1, "shop.Nothing", [])]),
        (Invalid, vec![new_row(0, "shop.Article", [])]),
        (Invalid, vec![new_row(65_536, "shop.Article", [])]),
        (Invalid, twice),
        (Invalid, vec![new_row(1, "shop.Article", [("cents", Value::Int64(1))])]),
        (Invalid, vec![new_row(1, "shop.Article", [("name", Value::Int64(1))])]),
        (Invalid, vec![new_row(1, "shop.Price", [])]),
        (Invalid, vec![like(2)]),
        (Invalid, vec![new_row(1, "sys.WorkspaceDescriptor", [])]),
        (NotFound, vec![update(RecordId(FIRST_CRECORD_ID + 99), None, "x")]),
        (Conflict, vec![update(id, Some(stale), "x")]),
        (TooLarge, too_many),
    ];
    for (n, (kind, rows)) in wrong.into_iter().enumerate() {
        let refused =
            node.commands.run(named("wrong", cud(WS, rows.clone(), shop_db.soon()))).await;
        let is_right =
            matches!(&refused, Err(Refused::Rejected(rejection)) if rejection.kind == kind);
        assert!(is_right, "{n} {kind:?}: {rows:?}: {refused:?}");
    }
    let mut settings = vec![new_row(1, "shop.Settings", [("name", text("x"))])];
    for (request, is_done) in [("one", true), ("two", false)] {
        let command = named(request, cud(WS, settings.clone(), shop_db.soon()));
        let done = fixture.run(&node, &mut ledger, command).await;
        assert_eq!(done.is_ok(), is_done, "a singleton is made once: {done:?}");
    }
    // 65,535 is the highest id that a sender may give to a new row.
    let highest = new_row(65_535, "shop.Article", [("like", Value::Ref(id))]);
    settings = vec![highest, update(id, Some(stored.version), "right")];
    let last = named("last", cud(WS, settings, shop_db.soon()));
    let last = fixture.run(&node, &mut ledger, last).await.unwrap();
    let given = first.answer.ids.len() as u64;
    assert_eq!(last.answer.ids[0].0, RecordId(65_535));
    assert_eq!(last.answer.ids[0].1.0, id.0 + given, "a failed command gives its numbers back");
    assert_eq!(last.plog.0, first.plog.0 + 2, "only the command \"one\" was between");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}
