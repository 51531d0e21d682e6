//! Trials of losing the leadership.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use ielections::{
    ConditionalOutcome, ElectionRow, Epoch, Incarnation, Lease, LossReason, TtlStore,
};

use crate::{
    elections::{
        context::{ElectionsContext, TrialNode, release, seat},
        faulty_store::{StoreCallKind, StoreFault},
    },
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(loss:
    a_lease_of_another_node_ends_the_leadership,
    foreign_bytes_in_the_seat_end_the_leadership,
    a_removed_lease_ends_the_leadership,
    an_unhealthy_leader_leads_at_most_until_its_next_renewal,
    a_leadership_dropped_during_a_renewal_is_over,
    a_caller_that_waits_for_the_end_learns_the_reason,
);

impl ElectionsContext {
    /// Replaces a leader's lease by other bytes.
    async fn replace_lease_of_1(&self, by: Bytes) -> Verdict {
        let (store, row) = (self.store(9), ElectionRow::Lease(seat(1)));
        let old = self.lease_of_1().await?.to_bytes();
        let ttl = Some(20 * self.lease());
        let written = store.compare_and_swap(row, old, by, ttl, self.soon()).await?;
        ensure_eq!(written, ConditionalOutcome::Done, "the write of the other lease");
        Ok(())
    }

    pub(super) async fn remove_lease_of_1(&self) -> Verdict {
        let (store, row) = (self.store(9), ElectionRow::Lease(seat(1)));
        let old = self.lease_of_1().await?.to_bytes();
        let written = store.compare_and_delete(row, old, self.soon()).await?;
        ensure_eq!(written, ConditionalOutcome::Done, "the removal of the lease");
        Ok(())
    }

    /// Returns the longest time until the next renewal ends, even if it is tried twice.
    fn next_renewal(&self) -> std::time::Duration {
        self.timing.renew_every + 2 * self.timing.call_timeout
    }
}

async fn a_lease_of_another_node_ends_the_leadership(ctx: &ElectionsContext) -> Verdict {
    let owner = ([10, 0, 0, 2], 1).into();
    let lease = Lease { owner, incarnation: Incarnation(1), epoch: Epoch(1_000_000) };
    is_lost_to(ctx, lease.to_bytes(), LossReason::Taken(Some(lease))).await
}

async fn foreign_bytes_in_the_seat_end_the_leadership(ctx: &ElectionsContext) -> Verdict {
    is_lost_to(ctx, "somebody else".into(), LossReason::Taken(None)).await
}

async fn is_lost_to(ctx: &ElectionsContext, other: Bytes, why: LossReason) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    let work = leadership.work()?;
    ctx.replace_lease_of_1(other.clone()).await?;
    ctx.eventually(ctx.next_renewal(), "the end", || leadership.lost().is_some()).await?;
    ensure_eq!(leadership.lost(), Some(why), "why it is over");
    ensure!(leadership.token().is_cancelled(), "the token is not cancelled");
    ensure_eq!(work.may_send(std::time::Duration::ZERO).err(), Some(why), "what the work is told");
    work.finish();
    ensure_eq!(ctx.row(ElectionRow::Lease(seat(1))).await?, Some(other), "what stands there");
    Ok(())
}

async fn a_removed_lease_ends_the_leadership(ctx: &ElectionsContext) -> Verdict {
    let leadership = ctx.node(1)?.lead().await?;
    ctx.remove_lease_of_1().await?;
    ctx.eventually(ctx.next_renewal(), "the end", || leadership.lost().is_some()).await?;
    ensure_eq!(leadership.lost(), Some(LossReason::Gone), "why it is over");
    Ok(())
}

async fn an_unhealthy_leader_leads_at_most_until_its_next_renewal(
    ctx: &ElectionsContext,
) -> Verdict {
    let is_healthy = Arc::new(AtomicBool::new(true));
    let health = {
        let is_healthy = Arc::clone(&is_healthy);
        Arc::new(move || is_healthy.load(Ordering::Relaxed))
    };
    let node = ctx.node_with(1, |elections| elections.with_health(health))?;
    let leadership = node.lead().await?;
    ctx.pass(ctx.lease()).await;
    ensure_eq!(leadership.lost(), None, "a leader that is well");
    is_healthy.store(false, Ordering::Relaxed);
    ctx.eventually(ctx.next_renewal(), "the end", || leadership.lost().is_some()).await?;
    ensure_eq!(leadership.lost(), Some(LossReason::Unhealthy), "why it is over");
    // The lease is released like any other, even if the release has to be tried again.
    node.store.fail(StoreCallKind::Release, StoreFault::NotDoneUnknown, 2);
    release(leadership, ctx.soon()).await?;
    ensure_eq!(ctx.row(ElectionRow::Lease(seat(1))).await?, None, "the lease");
    Ok(())
}

async fn a_leadership_dropped_during_a_renewal_is_over(ctx: &ElectionsContext) -> Verdict {
    let node: TrialNode = ctx.node(1)?;
    let leadership = node.lead().await?;
    let token = leadership.token();
    node.store.fail(StoreCallKind::Renew, StoreFault::AnswersLate(ctx.timing.call_timeout / 2), 1);
    ctx.eventually(ctx.lease(), "a renewal", || node.store.faults_left() == 0).await?;
    drop(leadership);
    ensure!(token.is_cancelled(), "the token is not cancelled");
    node.store.forget();
    ctx.pass(2 * ctx.timing.renew_every).await;
    let calls = node.store.calls().len();
    ensure_eq!(calls, 0, "the calls of a node whose leadership is gone");
    ctx.node(2)?.lead().await?;
    Ok(())
}

async fn a_caller_that_waits_for_the_end_learns_the_reason(ctx: &ElectionsContext) -> Verdict {
    let leadership = ctx.node(1)?.lead().await?;
    let (why, removed) = tokio::join!(leadership.over(), ctx.remove_lease_of_1());
    removed?;
    ensure_eq!(why, LossReason::Gone, "why it is over");
    Ok(())
}
