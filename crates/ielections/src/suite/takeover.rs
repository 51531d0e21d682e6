//! How long a slot is without a leader.

use std::time::Duration;

use super::{
    context::{Context, release},
    failure::{Verdict, ensure},
};

/// Why the slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// The leader gave its lease away.
    AfterRelease,
    /// The leader died at some moment between two renewals.
    AfterCrash,
}

/// One change of the lead, from a node to another that waits for it.
pub(super) async fn measure(ctx: &Context, after: Takeover) -> Verdict<Duration> {
    let (leader, waiting) = (ctx.node(1)?, ctx.node(2)?);
    let leadership = leader.lead().await?;
    let epoch = leadership.epoch();
    let change = async {
        // It has waited for a while, and its looks are in step with nothing.
        let interval = ctx.timing.renew_every.as_micros() as u64;
        let moment = Duration::from_micros(ctx.clock.random() % interval);
        ctx.pass(ctx.timing.renew_every + moment).await;
        let free = ctx.clock.now();
        match after {
            Takeover::AfterRelease => release(leadership, ctx.soon()).await?,
            Takeover::AfterCrash => drop(leadership),
        }
        Verdict::Ok(free)
    };
    let next = async {
        let leadership = waiting.lead().await?;
        Verdict::Ok((ctx.clock.now(), leadership))
    };
    let (free, next) = tokio::join!(change, next);
    let (free, (led, next)) = (free?, next?);
    let took = led.saturating_since(free);
    ensure!(next.epoch() > epoch, "{} leads in {:?} after {epoch:?}", next.slot(), next.epoch());
    let bound = waiting.elections.budget().failover_bound();
    ensure!(took <= bound, "the slot was free for {took:?}, longer than the bound {bound:?}");
    release(next, ctx.soon()).await?;
    Ok(took)
}
