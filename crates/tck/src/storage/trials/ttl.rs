//! `ttl_get`, `ttl_read` and `query_ttl`: the remaining TTL of a row.

use std::time::Duration;

use istorage::{AppStorageExt, ExpiringRow, Key, OrderedPut, Range, TTL_MAX};

use super::rows::{insert, insert_for, ordered, place, put, value};
use crate::{
    storage::{answers::applied, client::CALL, context::StorageContext},
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(ttl:
    an_absent_row_has_no_ttl,
    a_row_without_a_ttl_reports_none,
    an_expiring_row_reports_its_ttl,
    the_ttl_counts_down,
    the_ttl_follows_swaps,
    ordered_rows_report_their_ttl,
    the_longest_ttl_is_stored,
    ttl_get_returns_the_whole_row,
    ttl_read_returns_rows_with_and_without_a_ttl,
    ttl_read_returns_only_its_range,
);

const LONG: Duration = Duration::from_secs(1_000);

/// Reads the remaining TTL of a row, and checks it. The remaining TTL must be the TTL minus the
/// time that has passed, at most the time since `start`. The resolution is the allowed error.
async fn left_of(
    ctx: &StorageContext,
    key: &Key,
    ttl: Duration,
    start: clock::Instant,
) -> Verdict<Duration> {
    let found = ctx.db.query_ttl(key).await?;
    let (passed, resolution) = (ctx.db.clock.now() - start, ctx.capabilities().expiry_resolution);
    let Some(Some(left)) = found else {
        ensure!(false, "a row with a TTL of {ttl:?} has {found:?}");
        return Ok(ttl);
    };
    let slack = Duration::from_millis(10);
    let least = ttl.saturating_sub(passed + resolution + slack);
    let most = ttl + 2 * resolution + slack;
    ensure!(
        (least..=most).contains(&left),
        "a TTL of {ttl:?} is {left:?} after {passed:?}, expected from {least:?} to {most:?}"
    );
    Ok(left)
}

async fn an_absent_row_has_no_ttl(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "absent");
    ensure_eq!(ctx.db.query_ttl(&key).await?, None, "of an empty partition");
    ctx.db.put(&ctx.key("p", "there"), "v").await?;
    ensure_eq!(ctx.db.query_ttl(&key).await?, None, "beside another row");
    ensure_eq!(ctx.db.storage.ttl_get(&key, CALL).await?, None, "ttl_get");
    Ok(())
}

async fn a_row_without_a_ttl_reports_none(ctx: &StorageContext) -> Verdict {
    let (plain, conditional) = (ctx.key("p", "plain"), ctx.key("p", "conditional"));
    ctx.db.put(&plain, "v").await?;
    applied(&ctx.db.insert(&conditional, "").await?, "the insert")?;
    ensure_eq!(ctx.db.query_ttl(&plain).await?, Some(None), "of a plain row");
    ensure_eq!(ctx.db.query_ttl(&conditional).await?, Some(None), "of a conditional row");
    Ok(())
}

async fn an_expiring_row_reports_its_ttl(ctx: &StorageContext) -> Verdict {
    let (key, start) = (ctx.key("p", ""), ctx.db.clock.now());
    applied(&ctx.db.insert_for(&key, "", LONG).await?, "the insert")?;
    left_of(ctx, &key, LONG, start).await.map(drop)
}

async fn the_ttl_counts_down(ctx: &StorageContext) -> Verdict {
    let (key, start) = (ctx.key("p", "a"), ctx.db.clock.now());
    applied(&ctx.db.insert_for(&key, "v", LONG).await?, "the insert")?;
    let first = left_of(ctx, &key, LONG, start).await?;
    let (pause, resolution) = (Duration::from_secs(3), ctx.capabilities().expiry_resolution);
    ctx.pass(pause).await;
    let second = left_of(ctx, &key, LONG, start).await?;
    ensure!(
        second + pause <= first + resolution + Duration::from_millis(10),
        "{first:?} were left, and {second:?} when {pause:?} had passed"
    );
    Ok(())
}

async fn the_ttl_follows_swaps(ctx: &StorageContext) -> Verdict {
    let (key, start) = (ctx.key("p", "a"), ctx.db.clock.now());
    applied(&ctx.db.insert(&key, "1").await?, "the insert")?;
    for (old, new, ttl) in [("1", "2", LONG), ("2", "2", 2 * LONG), ("2", "3", LONG / 2)] {
        applied(&ctx.db.swap_for(&key, old, new, ttl).await?, "a swap with a TTL")?;
        left_of(ctx, &key, ttl, start).await?;
    }
    applied(&ctx.db.swap(&key, "3", "4").await?, "a swap without TTL")?;
    ensure_eq!(ctx.db.query_ttl(&key).await?, Some(None), "its TTL");
    Ok(())
}

async fn ordered_rows_report_their_ttl(ctx: &StorageContext) -> Verdict {
    let (key, start) = (ctx.key("p", "a"), ctx.db.clock.now());
    ctx.db.put_ordered(vec![ordered(key.clone(), "1", 1)?]).await?;
    ensure_eq!(ctx.db.query_ttl(&key).await?, Some(None), "of a row without TTL");
    let row = OrderedPut { ttl: Some(LONG), ..ordered(key.clone(), "2", 2)? };
    ctx.db.put_ordered(vec![row]).await?;
    left_of(ctx, &key, LONG, start).await?;
    ctx.db.put_ordered(vec![ordered(key.clone(), "3", 3)?]).await?;
    ensure_eq!(ctx.db.query_ttl(&key).await?, Some(None), "after a higher order without TTL");
    Ok(())
}

async fn the_longest_ttl_is_stored(ctx: &StorageContext) -> Verdict {
    let (key, start) = (ctx.key("p", "a"), ctx.db.clock.now());
    applied(&ctx.db.insert_for(&key, "v", TTL_MAX).await?, "the insert")?;
    ensure_eq!(ctx.db.get(&key).await?, Some("v".into()), "the row");
    left_of(ctx, &key, TTL_MAX, start).await.map(drop)
}

async fn ttl_get_returns_the_whole_row(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", &b"\x00\xff"[..]);
    // The rows around the key must not be taken for its row.
    for ccols in [&b"\x00"[..], b"\x00\xff\x00", b"\x01"] {
        ctx.db.put(&ctx.key("p", ccols), "beside").await?;
    }
    ensure_eq!(ctx.db.storage.ttl_get(&key, CALL).await?, None, "the row before it is written");
    ctx.db.put(&key, "v").await?;
    let expected = ExpiringRow { ccols: key.ccols.clone(), value: "v".into(), ttl: None };
    ensure_eq!(ctx.db.storage.ttl_get(&key, CALL).await?, Some(expected), "the row");
    Ok(())
}

async fn ttl_read_returns_rows_with_and_without_a_ttl(ctx: &StorageContext) -> Verdict {
    let pkey = ctx.pkey("p");
    let op = |n: usize| match n % 2 {
        0 => insert_for(place(n), value(n), LONG),
        _ => insert(place(n), value(n)),
    };
    applied(&ctx.db.write_if(&pkey, (0..20).map(op).collect()).await?, "the inserts")?;
    ctx.db.put(&ctx.key("p", place(20)), value(20)).await?;
    let found = ctx.db.ttl_read(&pkey, Range::all()).await?;
    ensure_eq!(found.len(), 21, "the number of rows");
    for (n, found) in found.into_iter().enumerate() {
        ensure_eq!(found.ccols, place(n), "the place of row {n}");
        ensure_eq!(found.value, value(n), "the value of row {n}");
        let expires = n < 20 && n % 2 == 0;
        ensure_eq!(found.ttl.is_some(), expires, "whether row {n} expires");
    }
    Ok(())
}

async fn ttl_read_returns_only_its_range(ctx: &StorageContext) -> Verdict {
    let rows = (0..10).map(|n| put(ctx.key("p", place(n)), value(n)));
    ctx.db.put_batch(rows.collect()).await?;
    let expected: Vec<_> =
        (3..7).map(|n| ExpiringRow { ccols: place(n), value: value(n), ttl: None }).collect();
    let range = Range::between(place(3), place(7));
    ensure_eq!(ctx.db.ttl_read(&ctx.pkey("p"), range).await?, expected, "rows 3 to 7");
    let empty = ctx.db.ttl_read(&ctx.pkey("p"), Range::between(place(7), place(3))).await?;
    ensure_eq!(empty, [], "a range without rows");
    Ok(())
}
