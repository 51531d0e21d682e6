//! The cost of a number field: the rate of `sys.CUD` with and without one, on memory storage. An
//! event with a number has one more record, so the rate with one more row is shown, too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use eventlog::TrustLevel;
use processor::RowChange;
use shop::{ShopDatabase, ShopNode, ShopNodeSettings, create_workspace, cud, new_row, text};
use tokio::task::JoinSet;

use crate::scene::invoice;

/// The rounds with and the rounds without a number field. They take turns.
const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_secs(2);

/// One bill, two bills, or an invoice with its number.
type Rows = fn() -> Vec<RowChange>;

fn bill(raw: u64) -> RowChange {
    new_row(raw, "shop.Bill", [("name", text("Ann"))])
}

/// The commands in a second of a number of senders, which write to workspaces of one partition.
async fn rate(
    shop_db: &Arc<ShopDatabase>,
    node: &ShopNode,
    rows: Rows,
    (senders, workspaces): (u64, u64),
) -> f64 {
    let (done, start) = (Arc::new(AtomicU64::new(0)), shop_db.clock.now());
    let mut sending = JoinSet::new();
    for sender in 0..senders {
        let (shop_db, commands) = (Arc::clone(shop_db), node.commands.clone());
        let (done, ws) = (Arc::clone(&done), 1 + 10 * (sender % workspaces));
        sending.spawn(async move {
            while shop_db.clock.now() < start + SPAN {
                commands.run(cud(ws, rows(), shop_db.soon())).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    sending.join_all().await;
    done.load(Ordering::Relaxed) as f64 / (shop_db.clock.now() - start).as_secs_f64()
}

#[tokio::test]
#[ignore = "measures for a minute: run it with --release and --nocapture"]
async fn a_number_field_keeps_the_rate_of_commands() {
    for load in [(64, 1), (64, 64), (1, 1)] {
        let shop_db = Arc::new(ShopDatabase::in_memory().await);
        let node = shop_db.node(1, ShopNodeSettings::at(TrustLevel::Zero));
        node.ready().await;
        for ws in 0..load.1 {
            node.commands.run(create_workspace(1 + 10 * ws, shop_db.soon())).await.unwrap();
        }
        let kinds: [Rows; 3] = [|| vec![bill(1)], || vec![bill(1), bill(2)], || vec![invoice(1)]];
        let mut rates = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (rows, rates) in kinds.into_iter().zip(&mut rates) {
                rates.push(rate(&shop_db, &node, rows, load).await);
            }
        }
        let [plain, longer, numbered] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[ROUNDS / 2]
        });
        println!(
            "{load:?} (senders, workspaces): {plain:.0}/s with a row, {longer:.0}/s with two rows, \
             {numbered:.0}/s with a row and its number: ratio {:.2}",
            numbered / plain
        );
        assert!(numbered > plain / 3.0, "a number field costs too much");
    }
}
