//! The abilities and limits that the storage reports.

use std::time::Duration;

use istorage::BatchLimits;

use crate::{
    storage::context::StorageContext,
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(capabilities:
    the_limits_are_large_enough_for_a_node,
    the_capabilities_do_not_change,
    the_server_time_is_plausible,
);

/// The least room for a node: keys of some dozen bytes, events of some kilobytes, and a group of
/// commands in one write.
async fn the_limits_are_large_enough_for_a_node(ctx: &StorageContext) -> Verdict {
    let found = ctx.capabilities();
    ensure!(found.row.pkey >= 256, "partition keys of {} bytes are too short", found.row.pkey);
    ensure!(
        found.row.ccols >= 256,
        "clustering columns of {} bytes are too short",
        found.row.ccols
    );
    ensure!(found.row.value >= 65_536, "values of {} bytes are too small", found.row.value);
    for limits in [Some(found.conditional), found.atomic, found.ordered].into_iter().flatten() {
        let BatchLimits { rows, bytes } = limits;
        ensure!(rows >= 32, "{rows} rows at once are too few");
        let largest = found.row.pkey + found.row.ccols + found.row.value;
        ensure!(bytes >= largest, "{bytes} bytes at once do not hold the largest row");
    }
    let resolution = found.expiry_resolution;
    let plausible = Duration::from_nanos(1)..=Duration::from_secs(2);
    ensure!(
        plausible.contains(&resolution),
        "the expiry resolution {resolution:?} is too coarse for leases"
    );
    Ok(())
}

async fn the_capabilities_do_not_change(ctx: &StorageContext) -> Verdict {
    let other = ctx.other().await?;
    let first = ctx.capabilities();
    for _ in 0..3 {
        ctx.db.put(&ctx.key("p", "a"), "v").await?;
        ensure_eq!(ctx.capabilities(), first, "the capabilities later");
        ensure_eq!(other.storage.capabilities(), first, "the capabilities of another node");
    }
    Ok(())
}

/// The longest time of a question for the time, also on a busy machine.
const LONGEST_CALL: Duration = Duration::from_secs(60);

async fn the_server_time_is_plausible(ctx: &StorageContext) -> Verdict {
    let storage = &ctx.db.storage;
    let Some(first) = storage.server_time(ctx.db.soon()).await? else {
        return Err(EarlyEnd::Ignored("this storage has no server with a clock"));
    };
    let resolution = first.uncertainty;
    ensure!(
        !resolution.is_zero() && resolution <= Duration::from_secs(1),
        "a resolution of {resolution:?} tells no skew"
    );
    let ahead = first.at.millis_ahead_of(ctx.db.clock.wall());
    const DAY_MS: i64 = 24 * 3_600 * 1_000;
    ensure!(ahead.abs() < DAY_MS, "the server is {ahead} ms ahead");

    let (start, pause) = (ctx.db.clock.now(), Duration::from_secs(2));
    ctx.pass(pause).await;
    let Some(second) = storage.server_time(ctx.db.soon()).await? else {
        return Err(EarlyEnd::failed("the server reports no time any more"));
    };
    let passed = Duration::from_millis(second.at.millis_ahead_of(first.at).unsigned_abs());
    let slack = resolution + Duration::from_millis(20);
    let most = (ctx.db.clock.now() - start) + slack + LONGEST_CALL;
    ensure!(
        (pause.saturating_sub(slack)..=most).contains(&passed),
        "the server's clock went by {passed:?} in at least {pause:?}"
    );
    Ok(())
}
