//! Trials of observing the leaders.

use crate::{
    elections::{
        context::{ElectionsContext, release, seat},
        faulty_store::StoreFault,
    },
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(watch:
    an_observer_reads_the_leaders,
    an_observer_reports_each_change,
    an_observer_reports_a_failing_store_and_continues,
);

async fn an_observer_reads_the_leaders(ctx: &ElectionsContext) -> Verdict {
    let observer = ctx.node(9)?.elections.observer();
    ensure_eq!(observer.leaders().await?.len(), 0, "the leaders before anybody leads");
    let first = ctx.node(1)?.lead_one_of(1).await?;
    let second = ctx.node(2)?.lead_one_of(2).await?;
    let leaders = observer.leaders().await?;
    let leader_of =
        |number| leaders.get(&seat(number)).map(|lease| (lease.owner.port(), lease.epoch));
    ensure_eq!(leader_of(1), Some((1, first.epoch())), "who leads seat 1");
    ensure_eq!(leader_of(2), Some((2, second.epoch())), "who leads seat 2");
    ensure_eq!(leaders.len(), 2, "the number of leaders");
    Ok(())
}

async fn an_observer_reports_each_change(ctx: &ElectionsContext) -> Verdict {
    let mut observer = ctx.node(9)?.elections.observer();
    ensure!(observer.changed().await?.is_empty(), "somebody leads before anybody does");
    let first = ctx.node(1)?.lead().await?;
    let owner =
        |leaders: &ielections::Leaders| leaders.get(&seat(1)).map(|lease| lease.owner.port());
    ensure_eq!(owner(observer.changed().await?), Some(1), "who leads at first");
    release(first, ctx.soon()).await?;
    ensure_eq!(owner(observer.changed().await?), None, "who leads between them");
    let _second = ctx.node(2)?.lead().await?;
    ensure_eq!(owner(observer.changed().await?), Some(2), "who leads then");
    Ok(())
}

async fn an_observer_reports_a_failing_store_and_continues(ctx: &ElectionsContext) -> Verdict {
    let node = ctx.node(9)?;
    let mut observer = node.elections.observer();
    for fault in [StoreFault::Unavailable, StoreFault::Hangs] {
        node.store.fail_all(fault);
        let start = ctx.clock.now();
        ensure!(observer.changed().await.is_err(), "{fault:?} is not told");
        let took = ctx.clock.now() - start;
        ensure!(took < 3 * ctx.timing.call_timeout, "{fault:?} is told after {took:?}");
    }
    node.store.heal();
    ensure!(observer.changed().await?.is_empty(), "somebody leads before anybody does");
    Ok(())
}
