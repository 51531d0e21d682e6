//! Trials of several nodes that compete.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base::locks::lock;
use bytes::Bytes;
use futures::future::join_all;
use ielections::{ConditionalOutcome, ElectionRow, Epoch, Seat, StoreError, TtlStore};

use crate::{
    elections::{
        context::{ElectionsContext, release, seat},
        faulty_store::{FaultyStore, SEATS_PER_TRIAL},
    },
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(race:
    one_of_several_writes_of_a_lease_wins,
    one_of_several_candidates_for_an_expired_lease_leads,
    nodes_that_come_and_go_never_lead_at_the_same_time,
);

/// The limit of rounds. A quick store does all of them, a slow store as many as it can.
const ROUNDS_MAX: u32 = 1_000;

/// On three loaded servers eight writes of one row got no result in time. So a write without a
/// result is sent again, and its row is not used again: the first request may still be done later.
async fn one_of_several_writes_of_a_lease_wins(ctx: &ElectionsContext) -> Verdict {
    let stores: Vec<_> = (0..8).map(|number| ctx.store(number)).collect();
    let end = ctx.clock.now() + ctx.lease();
    let mut number = 1;
    for round in 0..ROUNDS_MAX {
        if round >= 20 && ctx.clock.now() >= end {
            break;
        }
        ensure!(number <= SEATS_PER_TRIAL, "writes got no result in {SEATS_PER_TRIAL} rounds");
        let row = ElectionRow::Lease(seat(number));
        let value = |n: usize| Bytes::from(format!("{round} {n}"));
        let inserts = stores.iter().enumerate().map(|(n, store)| insert(ctx, store, row, value(n)));
        let inserts = join_all(inserts).await.into_iter().collect::<Verdict<Vec<_>>>()?;
        let won: Vec<_> = (0..inserts.len()).filter(|n| inserts[*n].won).map(value).collect();
        ensure!(won.len() == 1, "round {round}: {} writes won: {inserts:?}", won.len());
        let there = ctx.row(row).await?;
        ensure_eq!(there.as_ref(), won.first(), "what round {round} left");
        if inserts.iter().any(|insert| insert.sent_again) {
            number += 1;
            continue;
        }
        let deleted = ctx.store(0).compare_and_delete(row, won[0].clone(), ctx.soon()).await?;
        ensure_eq!(deleted, ConditionalOutcome::Done, "the removal of round {round}");
    }
    Ok(())
}

/// What became of an insert.
#[derive(Debug)]
struct Insert {
    won: bool,
    /// Whether a request had no result. Its write may still be done later.
    sent_again: bool,
}

/// Inserts a row, and sends the write again while it has no result.
///
/// A write that is sent again is the same write, so it won if the row holds its value.
async fn insert(
    ctx: &ElectionsContext,
    store: &FaultyStore,
    row: ElectionRow,
    value: Bytes,
) -> Verdict<Insert> {
    let until = ctx.clock.now() + 8 * ctx.lease();
    let mut sent_again = false;
    loop {
        let ttl = Some(20 * ctx.lease());
        match store.insert_if_not_exists(row, value.clone(), ttl, ctx.soon()).await {
            Ok(ConditionalOutcome::Done) => return Ok(Insert { won: true, sent_again }),
            Ok(ConditionalOutcome::Refused(there)) => {
                let won = sent_again && there.as_ref() == Some(&value);
                return Ok(Insert { won, sent_again });
            }
            Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) if ctx.clock.now() < until => {
                sent_again = true;
            }
            Err(error) => return Err(error.into()),
        }
        ctx.pass(Duration::from_millis(ctx.clock.random() % 50)).await;
    }
}

async fn one_of_several_candidates_for_an_expired_lease_leads(ctx: &ElectionsContext) -> Verdict {
    let leadership = ctx.node(0)?.lead().await?;
    let epoch = leadership.epoch();
    drop(leadership);
    let nodes = (1..=4).map(|number| ctx.node(number)).collect::<Verdict<Vec<_>>>()?;
    let until = ctx.clock.now() + nodes[0].elections.budget().failover_bound();
    let tries = nodes.iter().map(|node| node.elections.acquire(seat(1), until));
    let leaders: Vec<_> = join_all(tries).await.into_iter().filter_map(Result::ok).collect();
    ensure_eq!(leaders.len(), 1, "the number of leaders");
    ensure!(leaders[0].epoch() > epoch, "{} comes after {epoch}", leaders[0].epoch());
    ensure_eq!(leaders[0].lost(), None, "the leader");
    Ok(())
}

/// The time while a node considered itself the leader.
#[derive(Clone, Copy, Debug)]
struct LeadershipPeriod {
    seat: Seat,
    epoch: Epoch,
    from: clock::Instant,
    to: clock::Instant,
}

async fn nodes_that_come_and_go_never_lead_at_the_same_time(ctx: &ElectionsContext) -> Verdict {
    let reigns = Mutex::new(Vec::<LeadershipPeriod>::new());
    let end = ctx.clock.now() + 4 * ctx.lease();
    let node = async |number: u16| {
        while ctx.clock.now() < end {
            let node = ctx.node(number)?;
            let Ok(leadership) = node.elections.acquire(seat(2), end).await else { break };
            let from = ctx.clock.now();
            let (seat, epoch) = (leadership.seat(), leadership.epoch());
            let reign = Duration::from_millis(ctx.clock.random() % 300);
            ctx.pass(reign).await;
            let dies = ctx.clock.random().is_multiple_of(8);
            let to = leadership.lost().map_or(ctx.clock.now(), |_| leadership.valid_until());
            let reign = LeadershipPeriod { seat, epoch, from, to };
            lock(&reigns).push(reign);
            if dies {
                drop(leadership);
            } else {
                release(leadership, ctx.soon()).await?;
            }
        }
        Verdict::Ok(())
    };
    join_all((1..=5).map(node)).await.into_iter().collect::<Verdict>()?;
    let mut reigns = reigns.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(reigns.len() >= 4, "only {} leaderships", reigns.len());
    reigns.sort_by_key(|reign| (reign.seat, reign.from));
    for pair in reigns.windows(2).filter(|pair| pair[0].seat == pair[1].seat) {
        let (first, second) = (pair[0], pair[1]);
        ensure!(first.to <= second.from, "side by side: {first:?} and {second:?}");
        ensure!(first.epoch < second.epoch, "epochs fall: {first:?} and {second:?}");
    }
    Ok(())
}
