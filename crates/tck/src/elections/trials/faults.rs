//! Trials with a store that fails, hangs or answers late.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base::locks::lock;
use ielections::{AcquireError, GiveUpReason, LossReason};

use crate::{
    elections::{
        context::{ElectionsContext, seat},
        faulty_store::{StoreCallKind, StoreFault},
    },
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(faults:
    a_leadership_survives_renewals_that_fail_for_a_while,
    an_unavailable_store_ends_the_leadership_in_time,
    a_hanging_store_ends_the_leadership_in_time,
    a_late_answer_prolongs_nothing,
    no_write_may_be_sent_that_could_outlive_the_leadership,
    work_that_continues_is_killed_in_time,
    a_candidate_gives_up_in_time_although_the_store_fails,
    a_candidate_leads_when_the_store_is_back,
);

async fn a_leadership_survives_renewals_that_fail_for_a_while(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    for round in 0..4 {
        let fault = if round % 2 == 0 { StoreFault::Unavailable } else { StoreFault::Hangs };
        let times = if round % 2 == 0 { 2 } else { 1 };
        node.store.fail(StoreCallKind::Renew, fault, times);
        let within = 2 * ctx.lease();
        ctx.eventually(within, "the failures", || node.store.faults_left() == 0).await?;
        let end = leadership.valid_until();
        ctx.eventually(within, "a renewal", || leadership.valid_until() > end).await?;
        ensure_eq!(leadership.lost(), None, "the leader in round {round}");
    }
    ctx.pass(ctx.lease()).await;
    ensure_eq!(leadership.lost(), None, "the leader after all");
    Ok(())
}

async fn an_unavailable_store_ends_the_leadership_in_time(ctx: &ElectionsContext) -> Verdict {
    ends_in_time(ctx, StoreFault::Unavailable).await
}

async fn a_hanging_store_ends_the_leadership_in_time(ctx: &ElectionsContext) -> Verdict {
    ends_in_time(ctx, StoreFault::Hangs).await
}

/// Proves that the leadership ends when its time is over, in spite of any fault of the store, and
/// that no other node leads before.
async fn ends_in_time(ctx: &ElectionsContext, fault: StoreFault) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    let epoch = leadership.epoch();
    node.store.fail_all(fault);
    let end = leadership.valid_until();
    let next = ctx.node(2)?;
    let other = async {
        let leadership = next.lead().await?;
        Verdict::Ok((ctx.clock.now(), leadership.epoch()))
    };
    let first = async {
        let why = leadership.over().await;
        (why, ctx.clock.now(), leadership.token().is_cancelled())
    };
    let ((why, over, is_cancelled), other) = tokio::join!(first, other);
    let (led, next_epoch) = other?;
    ensure_eq!(why, LossReason::Expired, "why it is over");
    // Timers of a busy machine are late. The clock is not, and `may_send` asks the clock.
    ensure!(over < end + ctx.timing.stop_grace, "it was told {:?} too late", over - end);
    let cancelled =
        ctx.eventually(ctx.timing.stop_grace, "the token", || leadership.token().is_cancelled());
    ensure!(is_cancelled || cancelled.await.is_ok(), "the token is not cancelled");
    ensure!(led > end, "the other led {:?} before the end", end - led);
    ensure!(next_epoch > epoch, "epoch {next_epoch} comes after {epoch}");
    Ok(())
}

async fn a_late_answer_prolongs_nothing(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    let end = leadership.valid_until();
    node.store.fail(StoreCallKind::Renew, StoreFault::AnswersLate(ctx.lease()), usize::MAX);
    ensure_eq!(leadership.over().await, LossReason::Expired, "why it is over");
    ensure_eq!(leadership.valid_until(), end, "its end");
    Ok(())
}

async fn no_write_may_be_sent_that_could_outlive_the_leadership(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    let leadership = node.lead().await?;
    let work = leadership.work()?;
    node.store.fail_all(StoreFault::Hangs);
    let (end, timeout) = (leadership.valid_until(), ctx.timing.call_timeout);
    loop {
        let before = ctx.clock.now();
        let answer = work.may_send(timeout);
        let after = ctx.clock.now();
        ensure!(answer.is_err() || before + timeout < end, "a write may be sent too late");
        ensure!(
            answer.is_ok() || after + timeout >= end,
            "a write may not be sent, {:?} before the end",
            end - after
        );
        if before >= end {
            work.finish();
            return Ok(());
        }
        ctx.pass(ctx.lease() / 100).await;
    }
}

async fn work_that_continues_is_killed_in_time(ctx: &ElectionsContext) -> Verdict {
    let killed = Arc::new(Mutex::new(None));
    let kill = {
        let (killed, clock) = (Arc::clone(&killed), ctx.clock.clone());
        Arc::new(move |_: &str| {
            *lock(&killed) = Some(clock.now());
        })
    };
    let node = ctx.node_with(1, |elections| elections.with_killer(kill))?;
    let leadership = node.lead().await?;
    let work = leadership.work()?;
    node.store.fail_all(StoreFault::Hangs);
    let kill_at = node.elections.budget().kill_at(leadership.valid_until());
    let when = || *lock(&killed);
    ctx.eventually(2 * ctx.lease(), "the kill", || when().is_some()).await?;
    let late = when().unwrap_or(kill_at) - kill_at;
    let margin = ctx.timing.late_write + ctx.timing.clock_skew;
    ensure!(when() >= Some(kill_at) && late < margin, "it was killed {late:?} too late");
    work.finish();
    Ok(())
}

async fn a_candidate_gives_up_in_time_although_the_store_fails(ctx: &ElectionsContext) -> Verdict {
    for fault in [StoreFault::Unavailable, StoreFault::Hangs, StoreFault::NotDoneUnknown] {
        let node = ctx.node(1)?;
        node.store.fail_all(fault);
        let until = ctx.clock.now() + ctx.timing.renew_every;
        match node.elections.acquire(seat(1), until).await {
            Err(AcquireError::GaveUp(GiveUpReason::Unavailable)) => {}
            other => return Err(EarlyEnd::failed(format!("it must give up, and says {other:?}"))),
        }
        let late = ctx.clock.now().saturating_since(until);
        let most: Duration = ctx.timing.call_timeout + ctx.timing.call_timeout / 2;
        ensure!(late <= most, "{fault:?}: it gave up {late:?} after its time");
    }
    Ok(())
}

async fn a_candidate_leads_when_the_store_is_back(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(1)?;
    node.store.fail_all(StoreFault::Unavailable);
    let heals = async {
        ctx.pass(ctx.lease() / 2).await;
        node.store.heal();
    };
    let (leadership, ()) = tokio::join!(node.lead(), heals);
    ensure_eq!(leadership?.lost(), None, "the leader");
    Ok(())
}
