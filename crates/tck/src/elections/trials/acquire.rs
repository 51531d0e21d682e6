//! Trials of taking the leadership.

use std::net::SocketAddr;

use ielections::{AcquireError, ElectionRow, EpochRow, GiveUpReason};

use crate::{
    elections::context::{ElectionsContext, TrialNode, release, seat},
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(acquire:
    a_free_seat_is_led_at_once,
    a_held_seat_is_waited_for_and_given_up_in_time,
    a_node_does_not_lead_the_same_seat_twice,
    each_leadership_has_a_higher_epoch,
);

async fn a_free_seat_is_led_at_once(ctx: &ElectionsContext) -> Verdict {
    let start = ctx.clock.now();
    let leadership = ctx.node(7)?.lead().await?;
    // The limit of four calls: a look, a read, the lease and the epoch.
    let most = 4 * ctx.timing.call_timeout;
    let took = ctx.clock.now() - start;
    ensure!(took <= most, "it took {took:?}, more than four calls may, {most:?}");
    ensure_eq!(leadership.lost(), None, "the leadership");
    let lease = ctx.lease_of_1().await?;
    ensure_eq!(lease.owner, SocketAddr::from(([10, 0, 0, 1], 7)), "whose lease it is");
    ensure_eq!(lease.epoch, leadership.epoch(), "the epoch of the lease");
    let row = ctx.row(ElectionRow::Epoch(seat(1))).await?.unwrap_or_default();
    let confirmed = EpochRow { epoch: lease.epoch, incarnation: lease.incarnation };
    ensure_eq!(EpochRow::from_bytes(&row), Some(confirmed), "the row of the epoch");
    Ok(())
}

async fn a_held_seat_is_waited_for_and_given_up_in_time(ctx: &ElectionsContext) -> Verdict {
    let leadership = ctx.node(1)?.lead().await?;
    gives_up(ctx, &ctx.node(2)?).await?;
    ensure_eq!(leadership.lost(), None, "the leader");
    Ok(())
}

async fn a_node_does_not_lead_the_same_seat_twice(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    gives_up(ctx, &node).await?;
    ensure_eq!(leadership.lost(), None, "the leader");
    Ok(())
}

/// Waits for a held seat for as long as a lease lasts.
async fn gives_up(ctx: &ElectionsContext, node: &TrialNode) -> Verdict {
    let start = ctx.clock.now();
    match node.elections.acquire(seat(1), start + ctx.lease()).await {
        Err(AcquireError::GaveUp(GiveUpReason::Waited)) => {}
        other => return Err(EarlyEnd::failed(format!("it must give up, and says {other:?}"))),
    }
    let waited = ctx.clock.now() - start;
    let most = ctx.lease() + ctx.lease() / 4;
    ensure!(waited >= ctx.lease() && waited <= most, "it waited for {waited:?}, not {most:?}");
    Ok(())
}

async fn each_leadership_has_a_higher_epoch(ctx: &ElectionsContext) -> Verdict {
    let mut last = None;
    for round in 0..6 {
        let leadership = ctx.node(round % 2)?.lead().await?;
        let epoch = Some(leadership.epoch());
        ensure!(epoch > last, "epoch {epoch:?} comes after {last:?}");
        ensure_eq!(Some(ctx.lease_of_1().await?.epoch), epoch, "the epoch of the lease");
        last = epoch;
        release(leadership, ctx.soon()).await?;
    }
    Ok(())
}
