//! Rows with a TTL, and the calls that see them.

use std::time::Duration;

use bytes::Bytes;
use clock::Instant;
use futures::future::BoxFuture;
use istorage::{Conflict, Key, OrderedPut, Outcome, Range, Row};

use super::rows::{insert_for, ordered};
use crate::{
    storage::{answers::applied, client::TrialClient, context::StorageContext},
    trial::{EarlyEnd, Verdict, ensure_eq},
};

pub(super) const TTL: Duration = Duration::from_secs(3);

/// Why a row may have expired before the trial looked at it.
const SLOW_CALLS: &str = "calls take so long that expiry cannot be judged";

/// The allowed error between clocks, as clocks of different machines do not tick equally.
const SLACK: Duration = Duration::from_millis(10);

/// Until when a row must be there, and from when on it must be gone.
#[derive(Clone, Copy)]
pub(super) struct ExpiryWindow {
    pub(super) present_until: Instant,
    pub(super) absent_from: Instant,
}

impl ExpiryWindow {
    /// Writes a row with a TTL, and notes the time before and after the write.
    pub(super) async fn of_write<T>(
        ctx: &StorageContext,
        ttl: Duration,
        write: impl Future<Output = istorage::Result<T>>,
    ) -> Verdict<(ExpiryWindow, T)> {
        let before = ctx.db.clock.now();
        let answer = write.await?;
        let resolution = ctx.capabilities().expiry_resolution;
        let absent_from = ctx.db.clock.now() + ttl + 2 * resolution + SLACK;
        Ok((ExpiryWindow { present_until: before + ttl - SLACK, absent_from }, answer))
    }

    /// Judges a verdict that expected the row to be there. If the row may be gone by now, a failure
    /// says nothing and becomes `TooSlow`.
    pub(super) fn judge(&self, ctx: &StorageContext, verdict: Verdict) -> Verdict {
        match verdict {
            Err(_) if ctx.db.clock.now() >= self.present_until => {
                Err(EarlyEnd::TooSlow(SLOW_CALLS))
            }
            verdict => verdict,
        }
    }
}

/// Runs a trial that makes some calls while a row is there. If the calls do not end within the TTL,
/// the trial runs again with a longer TTL: on a busy machine some seconds are soon over.
pub(super) async fn retry_with_longer_ttl(
    ctx: &StorageContext,
    trial: for<'a> fn(&'a StorageContext, Duration) -> BoxFuture<'a, Verdict>,
) -> Verdict {
    for (attempt, ttl) in [(1, TTL), (2, 4 * TTL)] {
        match trial(&ctx.attempt(attempt), ttl).await {
            Err(EarlyEnd::TooSlow(_)) => {}
            verdict => return verdict,
        }
    }
    trial(&ctx.attempt(3), 10 * TTL).await
}

/// Writes a row with this TTL.
pub(super) async fn insert_row(
    ctx: &StorageContext,
    key: &Key,
    ttl: Duration,
) -> Verdict<ExpiryWindow> {
    let (window, outcome) =
        ExpiryWindow::of_write(ctx, ttl, ctx.db.insert_for(key, "v", ttl)).await?;
    applied(&outcome, "the insert with a TTL")?;
    Ok(window)
}

/// The value of a row as seen by each call that reads rows of any kind.
pub(super) async fn read_by_every_call(
    db: &TrialClient,
    key: &Key,
) -> Verdict<Vec<(&'static str, Option<Bytes>)>> {
    let only = || Range::only(&key.ccols);
    let first = |rows: Vec<Row>| rows.into_iter().next().map(|row| row.value);
    let mut seen = vec![
        ("get", db.get(key).await?),
        ("get, linearizable", db.get_linearizable(key).await?),
        ("get_batch", db.get_batch(std::slice::from_ref(key)).await?.pop().flatten()),
        ("get_values", db.get_values(std::slice::from_ref(key)).await?.pop().flatten()),
        ("read", first(db.read(&key.pkey, only()).await?)),
        ("read, linearizable", first(db.read_linearizable(&key.pkey, only()).await?)),
    ];
    let rows = db.ttl_read(&key.pkey, only()).await?;
    seen.push(("ttl_read", rows.into_iter().next().map(|row| row.value)));
    Ok(seen)
}

/// The value of a row as [`read_by_every_call`] and the calls of conditional rows see it. Writes
/// nothing.
pub(super) async fn read_by_every_conditional_call(
    db: &TrialClient,
    key: &Key,
) -> Verdict<Vec<(&'static str, Option<Bytes>)>> {
    let mut seen = read_by_every_call(db, key).await?;
    let lost = |outcome: Outcome| match outcome {
        Outcome::NotApplied(conflicts) => {
            Ok(conflicts.into_iter().next().and_then(|Conflict { actual, .. }| actual))
        }
        Outcome::Applied => {
            Err(EarlyEnd::failed("a write whose condition cannot hold was applied"))
        }
    };
    seen.push(("a lost swap", lost(db.swap(key, "something else", "v").await?)?));
    seen.push(("a lost delete", lost(db.delete(key, "something else").await?)?));
    Ok(seen)
}

pub(super) async fn ensure_absent(db: &TrialClient, key: &Key) -> Verdict {
    for (call, seen) in read_by_every_call(db, key).await? {
        ensure_eq!(seen, None, "what {call} sees of an expired row");
    }
    Ok(())
}

pub(super) async fn ensure_present(db: &TrialClient, key: &Key, value: &'static str) -> Verdict {
    for (call, seen) in read_by_every_call(db, key).await? {
        ensure_eq!(seen, Some(value.into()), "what {call} sees of a row that has not expired");
    }
    Ok(())
}

/// A row for each way to get a TTL.
pub(super) async fn rows_of_every_kind(
    ctx: &StorageContext,
    ttl: Duration,
) -> Verdict<Vec<(Key, ExpiryWindow)>> {
    let key = |ccols| ctx.key("p", ccols);
    let mut rows = vec![(key("insert"), insert_row(ctx, &key("insert"), ttl).await?)];

    let swapped = key("swap");
    applied(&ctx.db.insert(&swapped, "w").await?, "an insert without TTL")?;
    let swap = ctx.db.swap_for(&swapped, "w", "v", ttl);
    let (window, outcome) = ExpiryWindow::of_write(ctx, ttl, swap).await?;
    applied(&outcome, "a swap with a TTL")?;
    rows.push((swapped, window));

    let several = [key("several 1"), key("several 2")];
    let ops = several.iter().map(|key| insert_for(key.ccols.clone(), "v", ttl)).collect();
    let (window, outcome) =
        ExpiryWindow::of_write(ctx, ttl, ctx.db.write_if(&ctx.pkey("p"), ops)).await?;
    applied(&outcome, "several inserts with a TTL")?;
    rows.extend(several.map(|key| (key, window)));

    let put = OrderedPut { ttl: Some(ttl), ..ordered(key("ordered"), "v", 1)? };
    let (window, ()) = ExpiryWindow::of_write(ctx, ttl, ctx.db.put_ordered(vec![put])).await?;
    rows.push((key("ordered"), window));
    Ok(rows)
}
