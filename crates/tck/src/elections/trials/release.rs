//! Trials of releasing the lease.

use ielections::{ElectionRow, ReleaseOutcome, UnprovedStop};

use crate::{
    elections::{
        context::{ElectionsContext, release, seat},
        faulty_store::StoreCallKind,
    },
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(release:
    after_a_release_another_node_leads_at_once,
    the_lease_is_not_released_before_all_work_has_stopped,
    unfinished_work_leaves_the_lease_to_expire,
    stopping_waits_for_work_no_longer_than_the_deadline,
    a_release_of_a_lost_lease_changes_nothing,
);

async fn after_a_release_another_node_leads_at_once(ctx: &ElectionsContext) -> Verdict {
    let leadership = ctx.node(1)?.lead().await?;
    let token = leadership.token();
    release(leadership, ctx.soon()).await?;
    ensure!(token.is_cancelled(), "its token is not cancelled");
    ensure_eq!(ctx.row(ElectionRow::Lease(seat(1))).await?, None, "the lease");
    let start = ctx.clock.now();
    ctx.node(2)?.lead().await?;
    let took = ctx.clock.now() - start;
    ensure!(took < ctx.lease() / 2, "the next led after {took:?}");
    Ok(())
}

async fn the_lease_is_not_released_before_all_work_has_stopped(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    node.store.look_at(leadership.token());
    let (first, second) = (leadership.work()?, leadership.work()?);
    let works = async {
        first.finish();
        ctx.pass(2 * ctx.timing.renew_every).await;
        let end = ctx.clock.now();
        second.finish();
        end
    };
    let (end, stopped) =
        tokio::join!(works, leadership.stopped(ctx.clock.now() + 10 * ctx.lease()));
    ensure_eq!(stopped?.release().await, ReleaseOutcome::LeaseGone, "the result of the release");
    let calls = node.store.calls();
    ensure!(
        calls.iter().any(|call| call.kind == StoreCallKind::Renew),
        "it was not renewed while it stopped"
    );
    let releases: Vec<_> =
        calls.iter().filter(|call| call.kind == StoreCallKind::Release).collect();
    ensure!(!releases.is_empty(), "it was not released");
    for call in releases {
        ensure!(call.at >= end, "it was released before the work had ended");
        ensure!(call.after_the_end, "it was released before anybody was told");
    }
    Ok(())
}

async fn unfinished_work_leaves_the_lease_to_expire(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    let epoch = leadership.epoch();
    drop(leadership.work()?);
    ensure_eq!(leadership.stopped(ctx.soon()).await.err(), Some(UnprovedStop), "the proof");
    ensure!(ctx.row(ElectionRow::Lease(seat(1))).await?.is_some(), "the lease was given away");
    ensure!(
        node.store.calls().iter().all(|call| call.kind != StoreCallKind::Release),
        "the lease was released"
    );
    let next = ctx.node(2)?.lead().await?;
    ensure!(next.epoch() > epoch, "epoch {} comes after {epoch}", next.epoch());
    Ok(())
}

async fn stopping_waits_for_work_no_longer_than_the_deadline(ctx: &ElectionsContext) -> Verdict {
    let leadership = ctx.node(1)?.lead().await?;
    let _work = leadership.work()?;
    let start = ctx.clock.now();
    let asked = ctx.timing.renew_every;
    let stopped = leadership.stopped(start + asked).await;
    ensure_eq!(stopped.err(), Some(UnprovedStop), "the proof");
    let waited = ctx.clock.now() - start;
    ensure!(waited >= asked && waited < 2 * asked, "it waited for {waited:?} instead of {asked:?}");
    Ok(())
}

/// The leader lost its lease to another node, and does not know it yet.
async fn a_release_of_a_lost_lease_changes_nothing(ctx: &ElectionsContext) -> Verdict {
    let first = ctx.node(1)?;
    let leadership = first.lead().await?;
    let stopped = leadership.stopped(ctx.soon()).await?;
    ctx.remove_lease_of_1().await?;
    let other = ctx.node(2)?.lead().await?;
    stopped.release().await;
    let lease = ctx.lease_of_1().await?;
    ensure_eq!(lease.epoch, other.epoch(), "the epoch of the lease that is there");
    ctx.pass(ctx.lease() / 2).await;
    match other.lost() {
        None => Ok(()),
        Some(why) => Err(EarlyEnd::failed(format!("the other lost its leadership: {why}"))),
    }
}
