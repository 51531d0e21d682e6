//! The speed of draws.

use super::*;

/// Run it with `cargo test --release -p docnumbers --test fast -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "the time means something only in a release build on an idle machine"]
async fn one_core_draws_two_million_numbers_a_second() {
    const ROUND: u64 = 2_000_000;
    let database = Database::new(Clock::system()).await;
    for (what, definition) in [("one counter", tickets()), ("daily", Definition::daily("o", "O"))] {
        let node = database.node(definition, "node", 10_000).await;
        let (mut best, until) = (Duration::MAX, database.soon() + CALL * 600);
        for _ in 0..5 {
            let start = database.clock.now();
            for _ in 0..ROUND {
                let _ = std::hint::black_box(node.next(WS, until).await.unwrap());
            }
            best = best.min(database.clock.now() - start);
        }
        let rate = ROUND as f64 / best.as_secs_f64();
        println!("{what}: {rate:.0} numbers/s");
        assert!(rate >= 2_000_000.0, "{what}: {rate}");
    }
}
