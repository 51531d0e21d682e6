//! Trials of the calls that an election makes.

use crate::{
    elections::{
        context::{ElectionsContext, seat},
        faulty_store::StoreCallKind,
    },
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(cost:
    a_leader_makes_one_write_in_each_interval_and_nothing_else,
    a_waiting_node_makes_at_most_five_plain_reads_a_second,
);

const INTERVALS: u32 = 8;

async fn a_leader_makes_one_write_in_each_interval_and_nothing_else(
    ctx: &ElectionsContext,
) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    node.store.forget();
    let start = ctx.clock.now();
    ctx.pass(INTERVALS * ctx.timing.renew_every).await;
    let calls = node.store.calls();
    let lasted = ctx.clock.now() - start;
    ensure_eq!(leadership.lost(), None, "the leader");
    let others: Vec<_> = calls.iter().filter(|call| call.kind != StoreCallKind::Renew).collect();
    ensure!(others.is_empty(), "calls that are no renewals: {others:?}");
    let most = lasted.as_nanos() / ctx.timing.renew_every.as_nanos() + 1;
    ensure!(calls.len() as u128 <= most, "{} renewals in {lasted:?}", calls.len());
    ensure!(calls.len() as u32 >= INTERVALS - 2, "only {} renewals in {lasted:?}", calls.len());
    Ok(())
}

async fn a_waiting_node_makes_at_most_five_plain_reads_a_second(ctx: &ElectionsContext) -> Verdict {
    let _leadership = ctx.node(1)?.lead().await?;
    let waiting = ctx.node(2)?;
    let start = ctx.clock.now();
    let refused = waiting.elections.acquire(seat(1), start + 2 * ctx.lease()).await;
    ensure!(refused.is_err(), "it leads: {refused:?}");
    let (calls, lasted) = (waiting.store.calls(), ctx.clock.now() - start);
    let others: Vec<_> = calls.iter().filter(|call| call.kind != StoreCallKind::Look).collect();
    ensure!(others.is_empty(), "calls that are no looks: {others:?}");
    let most = lasted.as_millis() / 200 + 1;
    ensure!(calls.len() as u128 <= most, "{} looks in {lasted:?}", calls.len());
    ensure!(calls.len() >= 4, "only {} looks in {lasted:?}", calls.len());
    Ok(())
}
