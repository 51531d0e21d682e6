//! The number of rounds that a command takes, and the place of its numbers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::TrustLevel;
use isequencer::{NumberKey, Offset, SeqId, SeqStorage, WsId};
use istorage::{Call, CallAnswer, SharedStorage, StorageWrapper, Write};
use processor::PartitionEnd;
use seqstorage::PartitionStorage;
use shop::{
    AnswerLedger, NarrowStorage, ShopNodeSettings, article, bill, check, create_workspace, cud,
};
use tck::trial::{Trial, trials};

use crate::fixture::{CommandsFixture, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(rounds:
    a_lone_command_takes_three_rounds_for_any_rows = three,
    a_lone_command_beyond_an_atomic_write_takes_two_rounds_for_any_rows = two,
    a_number_that_was_never_stored_is_absent = absent,
    numbers_may_be_kept_in_the_application = in_view,
);

/// The event is written by consensus. All other rows are put, and then read back.
async fn three(fixture: &CommandsFixture) {
    let inner = NarrowStorage::of(Arc::clone(&fixture.shop_db.app.storage), 100, true);
    let is_counted = |call: &Call<'_>| {
        matches!(call, Call::Write(Write::If(..) | Write::PutOrdered(_)) | Call::GetValues(_))
    };
    assert_eq!(rounds(fixture, inner, is_counted).await, 3, "one after the other");
}

async fn two(fixture: &CommandsFixture) {
    let inner = NarrowStorage::beyond_atomic(Arc::clone(&fixture.shop_db.app.storage), 100);
    let is_counted = |call: &Call<'_>| matches!(call, Call::Write(Write::If(..)));
    assert_eq!(rounds(fixture, inner, is_counted).await, 2, "one after the other");
}

/// Returns the number of rounds of a command with many rows.
async fn rounds(
    fixture: &CommandsFixture,
    inner: SharedStorage,
    is_counted: fn(&Call<'_>) -> bool,
) -> usize {
    let shop_db = &fixture.shop_db;
    let rounds = Arc::new(RoundCountingStorage {
        inner,
        is_counted,
        clock: shop_db.clock.clone(),
        under_way: AtomicUsize::new(0),
        rounds: AtomicUsize::new(0),
    });
    let storage = Some(Arc::clone(&rounds) as SharedStorage);
    let settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let first = named("few", cud(WS, article("few"), shop_db.soon()));
    fixture.run(&node, &mut ledger, first).await.unwrap();
    // The records are of both kinds, so they are in two storage partitions.
    let mut many = Vec::new();
    for (turn, mut rows) in (0..10).flat_map(|turn| [(turn, article("a")), (turn + 10, bill("b"))])
    {
        for row in &mut rows {
            if let processor::RowChange::Create { raw, parent, .. } = row {
                raw.0 += 3 * turn;
                parent.iter_mut().for_each(|parent| parent.id.0 += 3 * turn);
            }
        }
        many.extend(rows);
    }
    rounds.rounds.store(0, Ordering::SeqCst);
    let many = named("many", cud(WS, many, shop_db.soon()));
    let done = fixture.run(&node, &mut ledger, many).await.unwrap();
    assert_eq!(done.answer.ids.len(), 60);
    let taken = rounds.rounds.load(Ordering::SeqCst);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
    taken
}

async fn absent(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    let log = || Arc::clone(&node.log);
    let system = PartitionStorage::in_system(shop_db.system.numbers(&shop_db.app.entry), log());
    for storage in [system, PartitionStorage::in_view(log())] {
        let (ws, seqs) = (WsId(WS), [1, 2, 3, 256].map(SeqId));
        assert_eq!(storage.read_numbers(ws, &seqs).await.unwrap(), [0; 4]);
        let numbers =
            [(NumberKey { ws, seq: SeqId(3) }, 7), (NumberKey { ws, seq: SeqId(256) }, 9)];
        storage.write(&numbers, Offset::FIRST.after(4)).await.unwrap();
        assert_eq!(storage.read_numbers(ws, &seqs).await.unwrap(), [0, 0, 7, 9]);
        assert_eq!(storage.next_offset().await.unwrap(), Offset::FIRST.after(4));
    }
    node.kill();
}

async fn in_view(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let mut ledger = AnswerLedger::default();
    for round in 0..2 {
        let settings = ShopNodeSettings { in_view: true, ..ShopNodeSettings::at(TrustLevel::Zero) };
        let node = shop_db.node(PARTITION, settings);
        node.ready().await;
        if round == 0 {
            let create = named("create", create_workspace(WS, shop_db.soon()));
            fixture.run(&node, &mut ledger, create).await.unwrap();
        }
        let request = format!("article {round}");
        let command = named(&request, cud(WS, article("a"), shop_db.soon()));
        fixture.run(&node, &mut ledger, command).await.unwrap();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }
    let view = seqstorage::numbers_in_view(
        Arc::clone(&shop_db.app.storage),
        shop_db.clock.clone(),
        PARTITION,
    );
    assert_eq!(view.next_offset(PARTITION, shop_db.soon()).await.unwrap(), Some(4));
    assert_eq!(view.last(WS, &[1], shop_db.soon()).await.unwrap(), [Some(3)]);
    let system = shop_db.system.numbers(&shop_db.app.entry);
    assert_eq!(system.next_offset(PARTITION, shop_db.soon()).await.unwrap(), None);
}

/// A storage that counts rounds of calls. Calls that are under way at the same time are one round.
#[derive(Debug)]
struct RoundCountingStorage {
    inner: SharedStorage,
    is_counted: fn(&Call<'_>) -> bool,
    clock: Clock,
    under_way: AtomicUsize,
    rounds: AtomicUsize,
}

impl StorageWrapper for RoundCountingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if !(self.is_counted)(&call) {
            return call.send(&self.inner, deadline).await;
        }
        if self.under_way.fetch_add(1, Ordering::SeqCst) == 0 {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        // Wait, so that all calls that are sent side by side are sent before the first one is
        // answered.
        self.clock.sleep(Duration::from_millis(20)).await;
        let outcome = call.send(&self.inner, deadline).await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        outcome
    }
}
