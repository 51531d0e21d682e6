//! The measurement of the time that a seat is without a leader.

use std::time::Duration;

use crate::{
    elections::context::{ElectionsContext, release},
    trial::{Verdict, ensure},
};

/// Why the seat becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// The leader released its lease.
    AfterRelease,
    /// The leader died at some moment between two renewals.
    AfterCrash,
}

/// Measures one change of leaders, from a leader to a standby.
pub(crate) async fn measure(ctx: &ElectionsContext, after: Takeover) -> Verdict<Duration> {
    let (leader, waiting) = (ctx.node(1)?, ctx.node(2)?);
    // A random pause, so that the rounds are in step neither with the seconds of a server nor with
    // the round before.
    let interval = ctx.timing.renew_every.as_micros() as u64;
    let chance = || Duration::from_micros(ctx.clock.random() % interval);
    ctx.pass(chance()).await;
    let leadership = leader.lead().await?;
    let epoch = leadership.epoch();
    let change = async {
        ctx.pass(ctx.timing.renew_every + chance()).await;
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
    ensure!(next.epoch() > epoch, "{} leads in {:?} after {epoch:?}", next.seat(), next.epoch());
    let bound = waiting.elections.budget().failover_bound();
    ensure!(took <= bound, "the seat was free for {took:?}, longer than the bound {bound:?}");
    release(next, ctx.soon()).await?;
    Ok(took)
}
