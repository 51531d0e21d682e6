//! Trials with several seats.

use std::collections::BTreeSet;

use futures::future::join_all;
use ielections::Leadership;

use crate::{
    elections::context::{ElectionsContext, release, seat},
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(seats:
    each_seat_is_led_by_exactly_one_node,
    a_waiting_node_takes_the_seat_that_becomes_free,
);

fn seats(leaders: &[Leadership]) -> BTreeSet<u32> {
    leaders.iter().map(|leadership| leadership.seat().get()).collect()
}

async fn each_seat_is_led_by_exactly_one_node(ctx: &ElectionsContext) -> Verdict {
    let nodes = (1..=8).map(|number| ctx.node(number)).collect::<Verdict<Vec<_>>>()?;
    let start = ctx.clock.now();
    let until = start + nodes[0].elections.budget().failover_bound();
    let tries = nodes.iter().map(|node| async {
        let leadership = node.elections.acquire(seat(5), until).await.ok()?;
        Some((leadership, ctx.clock.now() - start))
    });
    let (leaders, took): (Vec<_>, Vec<_>) = join_all(tries).await.into_iter().flatten().unzip();
    ensure_eq!(leaders.len(), 5, "the number of leaders");
    ensure_eq!(seats(&leaders), BTreeSet::from([1, 2, 3, 4, 5]), "the seats that are led");
    // No node died, so no node waits for a lease to expire.
    let longest = took.into_iter().max().unwrap_or_default();
    ensure!(longest < ctx.lease(), "the last seat was led after {longest:?}");
    Ok(())
}

async fn a_waiting_node_takes_the_seat_that_becomes_free(ctx: &ElectionsContext) -> Verdict {
    let mut leaders = Vec::new();
    for number in 1..=3 {
        leaders.push(ctx.node(number)?.lead_one_of(3).await?);
    }
    ensure_eq!(seats(&leaders), BTreeSet::from([1, 2, 3]), "the seats that are led");
    let leaver = leaders.swap_remove(1);
    let (free, epoch) = (leaver.seat(), leaver.epoch());
    let waiting = ctx.node(4)?;
    let (next, released) = tokio::join!(waiting.lead_one_of(3), async {
        ctx.pass(ctx.timing.renew_every).await;
        release(leaver, ctx.soon()).await
    });
    released?;
    let next = next?;
    ensure_eq!(next.seat(), free, "the seat that the next leads");
    ensure!(next.epoch() > epoch, "epoch {} comes after {epoch}", next.epoch());
    Ok(())
}
