//! Fields that draw from a sequence of the application, and a handler that draws from the same one.

use eventlog::{TrustLevel, Value, WsId};
use futures::future::join_all;
use processor::{Command, Done, PartitionEnd, Refused, RejectionKind, RowChange};
use shop::{ShopNode, ShopNodeSettings, check, create_workspace, cud, new_row, qname};
use trialkit::{Trial, trials};

use crate::fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(sequence_fields:
    numbers_are_dense_over_fields_handlers_failures_and_leaders = dense,
);

const LEVELS: [TrustLevel; 3] = [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two];

fn receipts(count: u64) -> Vec<RowChange> {
    (1..=count).map(|raw| new_row(raw, "shop.Receipt", [])).collect()
}

/// The numbers that a command drew: the result of the handler, or the fields of its new rows.
async fn drawn(node: &ShopNode, ws: u64, done: &Done) -> Vec<u64> {
    if !done.answer.result.is_empty() {
        return vec![str::from_utf8(&done.answer.result).unwrap().parse().unwrap()];
    }
    let mut numbers = Vec::new();
    for (_, id) in &done.answer.ids {
        let stored = node.commands.record(WsId(ws), *id).await.unwrap().unwrap();
        let Value::Int64(number) = stored.record.fields["serial"] else { panic!("{stored:?}") };
        numbers.push(u64::try_from(number).unwrap());
    }
    numbers
}

/// Each round has commands that run in one group or in several, and some of them fail after they
/// have drawn. The leader ends without a stop, and the next one goes on.
async fn dense(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    for (level, at) in LEVELS.into_iter().zip(0..) {
        let (partition, workspaces) = (PARTITION + at, [WS, OTHER_WS].map(|ws| ws + u64::from(at)));
        let settings = || ShopNodeSettings::at(level);
        let (mut node, mut ledger) = fixture.begin(partition, workspaces[0], settings()).await;
        let create = named("other", create_workspace(workspaces[1], shop_db.soon()));
        fixture.run(&node, &mut ledger, create).await.unwrap();
        let mut all = [Vec::new(), Vec::new()];
        for round in 0..3 {
            for (ws, all) in workspaces.into_iter().zip(&mut all) {
                let soon = shop_db.soon();
                let note = || Command::new(WsId(ws), qname("shop.Note"), soon);
                let bad = new_row(9, "shop.Receipt", [("serial", Value::Int64(1))]);
                let failing = cud(ws, [receipts(2), vec![bad]].concat(), soon);
                let commands =
                    [cud(ws, receipts(3), soon), failing, note(), cud(ws, receipts(1), soon)];
                let commands = commands.into_iter().zip(0..).map(|(command, nth)| {
                    let request = format!("{ws} {round} {nth}");
                    (request.clone(), node.commands.run(named(&request, command)))
                });
                let (requests, answers): (Vec<_>, Vec<_>) = commands.unzip();
                let answers = join_all(answers).await;
                for (request, answered) in requests.iter().zip(&answers) {
                    ledger.note(request, answered);
                }
                let is_invalid = matches!(&answers[1], Err(Refused::Rejected(why)) if why.kind == RejectionKind::Invalid);
                assert!(is_invalid, "{:?}", answers[1]);
                for done in answers.iter().flatten() {
                    all.extend(drawn(&node, ws, done).await);
                }
            }
            if round < 2 {
                node.kill();
                node = shop_db.node(partition, settings());
                node.ready().await;
            }
        }
        for all in all {
            assert_eq!(all, (1..=15).collect::<Vec<u64>>(), "level {level}");
        }
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        check(shop_db, partition, &ledger).await;
    }
}
