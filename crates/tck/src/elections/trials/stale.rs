//! Trials of requests from an earlier leader, and of late requests.

use ielections::{ConditionalOutcome, ElectionRow, Epoch, EpochRow, Incarnation, Lease, TtlStore};

use crate::{
    elections::context::{ElectionsContext, release, seat},
    trial::{EarlyEnd, Trial, Verdict, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(stale:
    writes_of_an_earlier_leadership_of_the_same_node_change_nothing,
    an_epoch_is_raised_once,
    a_foreign_epoch_row_is_not_overwritten,
);

async fn writes_of_an_earlier_leadership_of_the_same_node_change_nothing(
    ctx: &ElectionsContext,
) -> Verdict {
    let (first, store, row) = (ctx.node(1)?, ctx.store(1), ElectionRow::Lease(seat(1)));
    let leadership = first.lead().await?;
    let old = ctx.lease_of_1().await?.to_bytes();
    release(leadership, ctx.soon()).await?;
    let leadership = ctx.node(1)?.lead().await?;
    let new = ctx.lease_of_1().await?.to_bytes();

    let refused = ConditionalOutcome::Refused(Some(new.clone()));
    let ttl = Some(ctx.lease());
    let renewal = store.compare_and_swap(row, old.clone(), old.clone(), ttl, ctx.soon()).await?;
    ensure_eq!(renewal, refused, "a late renewal");
    let release = store.compare_and_delete(row, old.clone(), ctx.soon()).await?;
    ensure_eq!(release, refused, "a late release");
    let take = store.insert_if_not_exists(row, old, ttl, ctx.soon()).await?;
    ensure_eq!(take, refused, "a late taking");
    ctx.pass(ctx.lease() / 2).await;
    ensure_eq!(leadership.lost(), None, "the leader");
    Ok(())
}

/// Of all attempts that read the same epoch, one raises it, however late the others are.
async fn an_epoch_is_raised_once(ctx: &ElectionsContext) -> Verdict {
    let (store, row) = (ctx.store(1), ElectionRow::Epoch(seat(1)));
    let of = |epoch, incarnation| {
        EpochRow { epoch: Epoch(epoch), incarnation: Incarnation(incarnation) }.to_bytes()
    };
    for epoch in 0..3 {
        for attempt in 0..3 {
            let to = of(epoch + 1, attempt);
            let written = match epoch {
                0 => store.insert_if_not_exists(row, to.clone(), None, ctx.soon()).await?,
                _ => {
                    let from = of(epoch, 0);
                    store.compare_and_swap(row, from, to.clone(), None, ctx.soon()).await?
                }
            };
            let expected = match attempt {
                0 => ConditionalOutcome::Done,
                _ => ConditionalOutcome::Refused(Some(of(epoch + 1, 0))),
            };
            ensure_eq!(written, expected, "attempt {attempt} to raise {epoch}");
        }
    }
    let leadership = ctx.node(1)?.lead().await?;
    ensure_eq!(leadership.epoch(), Epoch(4), "the epoch of the next");
    Ok(())
}

/// The row may come from a newer program. No node leads, and the row is not overwritten.
async fn a_foreign_epoch_row_is_not_overwritten(ctx: &ElectionsContext) -> Verdict {
    let (store, row) = (ctx.store(1), ElectionRow::Epoch(seat(1)));
    let foreign = bytes::Bytes::from_static(b"a row of something else");
    let written = store.insert_if_not_exists(row, foreign.clone(), None, ctx.soon()).await?;
    ensure_eq!(written, ConditionalOutcome::Done, "the write of the row");
    let node = ctx.node(1)?;
    if let Ok(leadership) = node.elections.acquire(seat(1), ctx.soon()).await {
        return Err(EarlyEnd::failed(format!("it leads in epoch {}", leadership.epoch())));
    }
    ensure_eq!(ctx.row(row).await?, Some(foreign), "the row");
    let lease = ctx.row(ElectionRow::Lease(seat(1))).await?;
    ensure_eq!(lease.and_then(|lease| Lease::from_bytes(&lease)), None, "the lease");
    Ok(())
}
