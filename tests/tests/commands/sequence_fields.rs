//! Fields that draw from a sequence of the application, and a handler that draws from the same one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use clock::Instant;
use eventlog::{TrustLevel, Value, WsId, layout};
use futures::future::join_all;
use istorage::{AppStorageExt, Call, CallAnswer, Key, SharedStorage, StorageWrapper, Write};
use processor::{Command, Done, PartitionEnd, Refused, RejectionKind, RowChange};
use shop::{ShopNode, ShopNodeSettings, check, create_workspace, cud, new_row, qname};
use tck::trial::{Trial, trials};

use crate::fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(sequence_fields:
    numbers_are_dense_over_fields_handlers_failures_and_leaders = dense,
    a_number_row_that_an_operator_wrote_goes_on = repaired,
    a_node_that_trusts_its_puts_gives_numbers_twice = trusting,
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

/// The documented repair of the row of a number wrote the row with a client of the database. The
/// row then hid every number that the node put there, and each put was acknowledged. After a
/// restart the numbers 11, 12 and 13 were given again.
async fn repaired(fixture: &CommandsFixture) {
    for (in_view, at) in [(false, 0), (true, 1)] {
        let settings = || ShopNodeSettings { in_view, ..ShopNodeSettings::at(TrustLevel::Zero) };
        let drawn = draw_around_repair(fixture, at, settings).await;
        assert_eq!(drawn, [11, 12, 13, 14, 15, 16], "in the view: {in_view}");
    }
}

/// The wrong implementation: it trusts the acknowledgement of a put, and does not see the row that
/// hides it.
async fn trusting(fixture: &CommandsFixture) {
    let inner = Arc::clone(&fixture.shop_db.app.storage);
    let storage: SharedStorage = Arc::new(TrustingStorage { inner, put: Mutex::default() });
    let settings = || ShopNodeSettings {
        in_view: true,
        storage: Some(Arc::clone(&storage)),
        ..ShopNodeSettings::at(TrustLevel::Zero)
    };
    let drawn = draw_around_repair(fixture, 0, settings).await;
    assert_eq!(drawn, [11, 12, 13, 11, 12, 13]);
}

/// Ten numbers are given. An operator writes the row of the number again, with the same bytes. Then
/// two leaders give three numbers each, which are returned.
async fn draw_around_repair(
    fixture: &CommandsFixture,
    at: u16,
    settings: impl Fn() -> ShopNodeSettings,
) -> Vec<u64> {
    const SEQ: u16 = 256;
    let shop_db = &fixture.shop_db;
    let (partition, ws) = (PARTITION + at, WS + u64::from(at));
    let (mut node, mut ledger) = fixture.begin(partition, ws, settings()).await;
    let first = named("first", cud(ws, receipts(10), shop_db.soon()));
    fixture.run(&node, &mut ledger, first).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);

    let (storage, key) = match settings().in_view {
        true => {
            let pkey = layout::sequences_view(partition, WsId(ws));
            (&shop_db.app.storage, Key::new(pkey, format!("app.Seq{SEQ}")))
        }
        false => {
            let pkey = [&[0, 0, 0, 3, 0, 0, 0, 1][..], &ws.to_be_bytes()].concat();
            (shop_db.system.storage(), Key::new(pkey, SEQ.to_be_bytes().to_vec()))
        }
    };
    let ten = Bytes::copy_from_slice(&10_u64.to_be_bytes());
    let again = storage.compare_and_swap(key, ten.clone(), ten, None, shop_db.soon());
    assert!(again.await.unwrap().is_applied());

    let mut all = Vec::new();
    for turn in 0..2 {
        node = shop_db.node(partition, settings());
        node.ready().await;
        let more = named(&format!("more {turn}"), cud(ws, receipts(3), shop_db.soon()));
        let done = fixture.run(&node, &mut ledger, more).await.unwrap();
        all.extend(drawn(&node, ws, &done).await);
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }
    all
}

/// A storage that shows each row as it was put with an order last, even if the row hides the put.
#[derive(Debug)]
struct TrustingStorage {
    inner: SharedStorage,
    put: Mutex<HashMap<Key, Bytes>>,
}

impl StorageWrapper for TrustingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(Write::PutOrdered(rows)) = &call {
            let put = rows.iter().map(|put| (put.key.clone(), put.value.clone()));
            self.put.lock().unwrap().extend(put);
        }
        let keys = if let Call::GetBatch(keys) = &call { keys.to_vec() } else { Vec::new() };
        let mut answer = call.send(&self.inner, deadline).await?;
        if let CallAnswer::Rows(rows) = &mut answer {
            let put = self.put.lock().unwrap();
            for (key, row) in keys.iter().zip(rows) {
                if let (Some(row), Some(value)) = (row, put.get(key)) {
                    row.value = value.clone();
                }
            }
        }
        Ok(answer)
    }
}
