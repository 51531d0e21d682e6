//! Trials of the end of a lease, as the store sees it.

use bytes::Bytes;
use ielections::{ConditionalOutcome, ElectionRow, TtlStore};

use crate::{
    elections::context::{ElectionsContext, seat},
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<ElectionsContext>] = trials!(expiry:
    a_lease_exists_for_its_ttl_and_expires_soon_after,
    a_renewal_restarts_the_ttl,
    an_expired_lease_is_absent_to_every_call,
);

const VALUE: Bytes = Bytes::from_static(b"lease");

async fn a_lease_exists_for_its_ttl_and_expires_soon_after(ctx: &ElectionsContext) -> Verdict {
    let (store, row, ttl) = (ctx.store(1), ElectionRow::Lease(seat(1)), ctx.lease() / 2);
    let sent = ctx.clock.now();
    let written = store.insert_if_not_exists(row, VALUE, Some(ttl), ctx.soon()).await?;
    ensure_eq!(written, ConditionalOutcome::Done, "the write");
    let answered = ctx.clock.now();
    loop {
        let asked = ctx.clock.now();
        let there = store.get(row, ctx.soon()).await?;
        let seen = ctx.clock.now();
        if there.is_none() {
            ensure!(seen >= sent + ttl, "it was gone {:?} early", sent + ttl - seen);
            return Ok(());
        }
        let end = answered + ttl + ctx.expiry_delay() + ctx.timing.clock_skew;
        ensure!(asked < end, "it is still there {:?} after its time", asked - end);
        ctx.pass(ctx.lease() / 100).await;
    }
}

async fn a_renewal_restarts_the_ttl(ctx: &ElectionsContext) -> Verdict {
    let (store, row, ttl) = (ctx.store(1), ElectionRow::Lease(seat(1)), ctx.lease() / 2);
    let written = store.insert_if_not_exists(row, VALUE, Some(ttl), ctx.soon()).await?;
    ensure_eq!(written, ConditionalOutcome::Done, "the write");
    for round in 0..6 {
        ctx.pass(ttl / 2).await;
        let sent = ctx.clock.now();
        let renewed = store.compare_and_swap(row, VALUE, VALUE, Some(ttl), ctx.soon()).await?;
        let took = ctx.clock.now() - sent;
        // A call that took as long as the rest of the lease proves nothing.
        ensure!(
            renewed == ConditionalOutcome::Done || took > ttl / 4,
            "renewal {round}, before the end: {renewed:?}"
        );
    }
    Ok(())
}

async fn an_expired_lease_is_absent_to_every_call(ctx: &ElectionsContext) -> Verdict {
    let (store, ttl) = (ctx.store(1), ctx.lease() / 4);
    let rows = [1, 2, 3, 4].map(|number| ElectionRow::Lease(seat(number)));
    for row in rows {
        let written = store.insert_if_not_exists(row, VALUE, Some(ttl), ctx.soon()).await?;
        ensure_eq!(written, ConditionalOutcome::Done, "the write of {row:?}");
    }
    ctx.pass(ttl + ctx.expiry_delay() + ctx.timing.clock_skew).await;
    ensure_eq!(store.leases(ctx.soon()).await?, [], "what a look shows");
    ensure_eq!(store.get(rows[0], ctx.soon()).await?, None, "what a read shows");
    let inserted = store.insert_if_not_exists(rows[1], VALUE, Some(ttl), ctx.soon()).await?;
    ensure_eq!(inserted, ConditionalOutcome::Done, "an insert");
    let swapped = store.compare_and_swap(rows[2], VALUE, VALUE, Some(ttl), ctx.soon()).await?;
    ensure_eq!(swapped, ConditionalOutcome::Refused(None), "a renewal");
    let deleted = store.compare_and_delete(rows[3], VALUE, ctx.soon()).await?;
    ensure_eq!(deleted, ConditionalOutcome::Refused(None), "a release");
    Ok(())
}
