//! Trials of lost answers, to calls that were done and to calls that were not.

use ielections::ElectionRow;

use crate::{
    elections::{
        context::{ElectionsContext, release, seat},
        faulty_store::{StoreCallKind, StoreFault},
    },
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(unknown:
    a_lease_that_was_taken,
    a_lease_that_was_not_taken,
    an_epoch_that_was_raised,
    an_epoch_that_was_not_raised,
    an_epoch_whose_answers_are_lost_until_the_time_is_over,
    a_renewal_that_was_done,
    a_renewal_that_was_not_done,
    a_release_that_was_done,
    a_release_that_was_not_done,
);

async fn a_lease_that_was_taken(ctx: &ElectionsContext) -> Verdict {
    acquires(ctx, StoreCallKind::Take, StoreFault::DoneUnknown).await
}

async fn a_lease_that_was_not_taken(ctx: &ElectionsContext) -> Verdict {
    acquires(ctx, StoreCallKind::Take, StoreFault::NotDoneUnknown).await
}

async fn an_epoch_that_was_raised(ctx: &ElectionsContext) -> Verdict {
    acquires(ctx, StoreCallKind::RaiseEpoch, StoreFault::DoneUnknown).await
}

async fn an_epoch_that_was_not_raised(ctx: &ElectionsContext) -> Verdict {
    acquires(ctx, StoreCallKind::RaiseEpoch, StoreFault::NotDoneUnknown).await
}

/// Proves that the first attempt leads, in its own epoch: no lease is left behind until it expires.
async fn acquires(ctx: &ElectionsContext, kind: StoreCallKind, fault: StoreFault) -> Verdict {
    let node = ctx.node(1)?;
    node.store.fail(kind, fault, 1);
    let start = ctx.clock.now();
    let leadership = node.lead().await?;
    let took = ctx.clock.now() - start;
    ensure!(took < ctx.lease() / 2, "it took {took:?}");
    ensure_eq!(node.store.faults_left(), 0, "the faults that did not happen");
    ensure_eq!(leadership.epoch().0, 1, "the epoch");
    ctx.pass(ctx.lease()).await;
    ensure_eq!(leadership.lost(), None, "the leader");
    Ok(())
}

/// An epoch that was raised and never confirmed belongs to no leadership.
async fn an_epoch_whose_answers_are_lost_until_the_time_is_over(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    node.store.fail(StoreCallKind::RaiseEpoch, StoreFault::DoneUnknown, usize::MAX);
    let until = ctx.clock.now() + ctx.lease() / 4;
    let refused = node.elections.acquire(seat(1), until).await;
    ensure!(refused.is_err(), "it leads although nobody confirmed its epoch: {refused:?}");
    let next = ctx.node(2)?.lead().await?;
    ensure!(next.epoch().0 >= 2, "the next leads in epoch {}", next.epoch());
    Ok(())
}

async fn a_renewal_that_was_done(ctx: &ElectionsContext) -> Verdict {
    keeps(ctx, StoreFault::DoneUnknown).await
}

async fn a_renewal_that_was_not_done(ctx: &ElectionsContext) -> Verdict {
    keeps(ctx, StoreFault::NotDoneUnknown).await
}

async fn keeps(ctx: &ElectionsContext, fault: StoreFault) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    node.store.fail(StoreCallKind::Renew, fault, 1);
    ctx.pass(2 * ctx.lease()).await;
    ensure_eq!(leadership.lost(), None, "the leader");
    ensure_eq!(node.store.faults_left(), 0, "the faults that did not happen");
    Ok(())
}

async fn a_release_that_was_done(ctx: &ElectionsContext) -> Verdict {
    releases(ctx, StoreFault::DoneUnknown).await
}

async fn a_release_that_was_not_done(ctx: &ElectionsContext) -> Verdict {
    releases(ctx, StoreFault::NotDoneUnknown).await
}

async fn releases(ctx: &ElectionsContext, fault: StoreFault) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    node.store.fail(StoreCallKind::Release, fault, 1);
    release(leadership, ctx.soon()).await?;
    ensure_eq!(ctx.row(ElectionRow::Lease(seat(1))).await?, None, "the lease");
    let start = ctx.clock.now();
    ctx.node(2)?.lead().await?;
    let took = ctx.clock.now() - start;
    ensure!(took < ctx.lease() / 2, "the next led after {took:?}");
    Ok(())
}
