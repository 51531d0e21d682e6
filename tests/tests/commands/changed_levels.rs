//! A trust level that changes: each level works on the rows of the others.

use eventlog::{AppRow, Epoch, RecordId, TrustLevel, WsId};
use istorage::AppStorageExt;
use processor::{Command, Done, IdempotencyKey, PartitionEnd};
use shop::{Batch, ShopNode, article, bill, new_row, text, update};
use tck::trial::{Trial, trials};

use crate::{
    fixture::CommandsFixture,
    sabotage::stored,
    scene::{Scene, WriteSetup, play, sample, write_setups},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(changed_levels:
    each_level_works_on_the_rows_of_the_others = everywhere,
);

use TrustLevel::{One, Two, Zero};

/// The orders of the levels, one after another. Each change of a level is in one of them.
const ORDERS: [&[TrustLevel]; 3] =
    [&[Zero, One, Two, Zero], &[Zero, Two, One, Zero, Two], &[Two, Zero, One, Zero]];

async fn everywhere(fixture: &CommandsFixture) {
    let mut cases = Vec::new();
    for setup in write_setups(fixture).into_iter().filter(|setup| setup.level == Zero) {
        cases.extend(ORDERS.iter().map(|levels| (setup.narrow, *levels)));
    }
    play(sample(fixture, cases), 0, async |partition, (narrow, levels)| {
        let setup = WriteSetup { level: levels[0], narrow };
        let scene = Scene::new(fixture, partition, setup).await;
        let (articles, first) = (vec![scene.article], None);
        Story { scene, articles, first, last: Epoch(0) }.play(levels).await;
    })
    .await;
}

/// A partition that works at one level after the other.
struct Story<'s> {
    scene: Scene<'s>,
    /// An article of each group so far. Each command changes all of them.
    articles: Vec<RecordId>,
    /// The answer to the command that is sent again at every level.
    first: Option<Done>,
    last: Epoch,
}

impl Story<'_> {
    async fn play(mut self, levels: &[TrustLevel]) {
        for (phase, level) in levels.iter().enumerate() {
            self.scene.set_level(*level, self.last);
            // The last leader of the level before left an event that is not applied.
            let node = self.scene.next().await;
            self.work(&node, &format!("phase {phase}")).await;
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
            self.hide().await;
            self.leave_an_event(&format!("event of phase {phase}")).await;
            // The next leader of the same level applies it.
            let node = self.scene.next().await;
            self.work(&node, &format!("again in phase {phase}")).await;
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
            self.leave_an_event(&format!("last event of phase {phase}")).await;
        }
        let node = self.scene.next().await;
        self.work(&node, "at the end").await;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        self.scene.check(None).await;
    }

    /// The rows of a command: it changes all articles, and makes an article and an invoice. The
    /// number of the invoice changes a counter record.
    fn rows(&self, called: &str) -> Batch {
        let mut rows = article(called);
        rows.push(new_row(4, "shop.Invoice", [("name", text(called))]));
        rows.extend(self.articles.iter().map(|id| update(*id, None, called)));
        rows
    }

    /// Sends two commands that change the same records, and one that was done before.
    async fn work(&mut self, node: &ShopNode, called: &str) {
        for turn in 0..2 {
            let called = format!("{called}, turn {turn}");
            let command = self.scene.command(&called, self.scene.ws, self.rows(&called));
            let done = self.scene.run(node, command).await.unwrap();
            if turn == 0 {
                self.articles.push(done.answer.ids[0].1);
            }
        }
        let other = self.scene.command(called, self.scene.other, bill(called));
        self.scene.run(node, other).await.unwrap();
        // The row of a command with one row is not read ahead.
        let called = format!("{called}, alone");
        let alone = vec![update(self.scene.article, None, &called)];
        let alone = self.scene.command(&called, self.scene.ws, alone);
        self.scene.run(node, alone).await.unwrap();
        let done = self.scene.run(node, self.repeated()).await.unwrap();
        assert_eq!(done.is_repeated, self.first.is_some());
        self.first.get_or_insert(done);
    }

    /// Writes the last article conditionally, with the bytes that it has: from then on it hides
    /// ordered writes. On each storage some records hide them, and others do not.
    async fn hide(&self) {
        let row = AppRow::Record(WsId(self.scene.ws), *self.articles.last().unwrap());
        let bytes = stored(&self.scene, row).await.unwrap();
        let shop_db = &self.scene.fixture.shop_db;
        let (storage, soon) = (&shop_db.app.storage, shop_db.soon());
        let swap = storage.compare_and_swap(row.key(), bytes.clone(), bytes, None, soon);
        assert!(swap.await.unwrap().is_applied());
    }

    fn repeated(&self) -> Command {
        let repeat = Some(IdempotencyKey::new("joe", b"key", b"body"));
        let command = self.scene.command("repeated", self.scene.ws, article("repeated"));
        Command { idempotency_key: repeat, ..command }
    }

    async fn leave_an_event(&mut self, called: &str) {
        let command = self.scene.command(called, self.scene.ws, self.rows(called));
        self.last = self.scene.leave_an_event(command, 1).await;
    }
}
