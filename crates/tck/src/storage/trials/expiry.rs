//! The expiry of rows with a TTL: never early, in time, and for every call at once.

use std::time::Duration;

use futures::FutureExt;
use istorage::{AtomicBatch, Key, OrderedPut, Range, Row};

use super::{
    expiring_rows::{
        ExpiryWindow, TTL, ensure_absent, ensure_present, insert_row, read_by_every_call,
        read_by_every_conditional_call, retry_with_longer_ttl, rows_of_every_kind,
    },
    rows::{delete, insert, insert_for, ordered, place, row, swap, swap_for, value},
};
use crate::{
    storage::{
        answers::{applied, conflicts},
        context::StorageContext,
    },
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, equal, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(expiry:
    a_row_never_expires_early,
    a_row_expires_in_time,
    short_ttls_are_kept,
    all_calls_agree_on_the_moment_of_expiry,
    an_expired_row_can_be_inserted_again,
    swap_and_delete_see_an_expired_row_as_absent,
    a_row_that_is_swapped_with_a_ttl_expires,
    a_swap_without_a_ttl_ends_the_expiry,
    a_renewed_row_stays,
    a_delete_ends_the_expiry,
    each_operation_of_a_write_has_its_own_ttl,
    conflicts_show_expired_rows_as_absent,
    expired_rows_among_many_are_absent,
    a_higher_order_ends_the_expiry,
    an_expired_ordered_row_can_be_written_again,
    an_ordered_row_that_is_sent_again_gets_a_new_ttl,
    rows_of_an_atomic_write_expire,
    nodes_with_different_clocks_agree,
    one_of_many_clients_takes_over_an_expired_row,
);

async fn a_row_never_expires_early(ctx: &StorageContext) -> Verdict {
    let rows = rows_of_every_kind(ctx, TTL).await?;
    loop {
        for (key, window) in &rows {
            let seen = read_by_every_call(&ctx.db, key).await?;
            if ctx.db.clock.now() >= window.present_until {
                return Ok(());
            }
            for (call, seen) in seen {
                ensure_eq!(seen, Some("v".into()), "what {call} sees of {key:?} before its end");
            }
        }
        ctx.pass(TTL / 60).await;
    }
}

async fn a_row_expires_in_time(ctx: &StorageContext) -> Verdict {
    let rows = rows_of_every_kind(ctx, TTL).await?;
    for (key, window) in rows {
        ctx.pass_until(window.absent_from).await;
        ensure_absent(&ctx.db, &key).await?;
    }
    ensure_eq!(ctx.db.read(&ctx.pkey("p"), Range::all()).await?, [], "the partition");
    Ok(())
}

/// Rows with TTLs that are no multiples of a second.
async fn short_ttls_are_kept(ctx: &StorageContext) -> Verdict {
    let ttls = [1, 300_000, 999_999, 1_000_001, 1_700_000].map(Duration::from_micros);
    let mut rows = Vec::new();
    for (n, ttl) in ttls.into_iter().enumerate() {
        let key = ctx.key("p", place(n));
        let window = insert_row(ctx, &key, ttl).await?;
        rows.push((key, ttl, window));
    }
    for (key, ttl, window) in rows {
        loop {
            let start = ctx.db.clock.now();
            let seen = ctx.db.get(&key).await?;
            if seen.is_none() {
                let end = ctx.db.clock.now();
                ensure!(end >= window.present_until, "a row with a TTL of {ttl:?} is gone early");
                break;
            }
            ensure!(start < window.absent_from, "a row with a TTL of {ttl:?} is there too late");
            ctx.pass(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// Once one call has found the row gone, no call sees the row any more.
async fn all_calls_agree_on_the_moment_of_expiry(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    let window = insert_row(ctx, &key, TTL).await?;
    let mut gone: Option<&'static str> = None;
    let mut rounds_after = 0;
    while rounds_after < 3 {
        let start = ctx.db.clock.now();
        for (call, seen) in read_by_every_conditional_call(&ctx.db, &key).await? {
            match (&seen, gone) {
                (Some(_), Some(first)) => {
                    ensure!(false, "{call} sees a row that {first} before it did not see");
                }
                (None, None) => gone = Some(call),
                _ => {}
            }
        }
        rounds_after += usize::from(gone.is_some());
        ensure!(gone.is_some() || start < window.absent_from, "the row is there too late");
        ctx.pass(Duration::from_millis(7)).await;
    }
    Ok(())
}

async fn an_expired_row_can_be_inserted_again(ctx: &StorageContext) -> Verdict {
    let (again, forever) = (ctx.key("p", "again"), ctx.key("p", "forever"));
    insert_row(ctx, &forever, TTL).await?;
    let window = insert_row(ctx, &again, TTL).await?;
    ctx.pass_until(window.absent_from).await;
    applied(&ctx.db.insert(&forever, "new").await?, "an insert without TTL")?;
    let second = insert_row(ctx, &again, TTL).await?;
    ensure_present(&ctx.db, &forever, "new").await?;
    ctx.pass_until(second.absent_from).await;
    ensure_present(&ctx.db, &forever, "new").await?;
    ensure_absent(&ctx.db, &again).await?;
    applied(&ctx.db.insert(&again, "third").await?, "a third insert")?;
    ensure_present(&ctx.db, &again, "third").await
}

async fn swap_and_delete_see_an_expired_row_as_absent(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    let window = insert_row(ctx, &key, TTL).await?;
    ctx.pass_until(window.absent_from).await;
    let absent: [(usize, Option<&str>); 1] = [(0, None)];
    conflicts(&ctx.db.swap(&key, "v", "new").await?, &absent, "a swap of an expired row")?;
    let renewal = ctx.db.swap_for(&key, "v", "v", TTL).await?;
    conflicts(&renewal, &absent, "a renewal of an expired row")?;
    conflicts(&ctx.db.delete(&key, "v").await?, &absent, "a delete of an expired row")?;
    ensure_absent(&ctx.db, &key).await
}

/// On some storages, a row that was inserted without a TTL has more parts than its value.
async fn a_row_that_is_swapped_with_a_ttl_expires(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            let key = ctx.key("p", "a");
            applied(&ctx.db.insert(&key, "w").await?, "an insert without ttl")?;
            let (window, outcome) =
                ExpiryWindow::of_write(ctx, ttl, ctx.db.swap_for(&key, "w", "v", ttl)).await?;
            applied(&outcome, "a swap with a ttl")?;
            window.judge(ctx, ensure_present(&ctx.db, &key, "v").await)?;
            ctx.pass_until(window.absent_from).await;
            ensure_absent(&ctx.db, &key).await?;
            let absent: [(usize, Option<&str>); 1] = [(0, None)];
            conflicts(&ctx.db.swap(&key, "v", "new").await?, &absent, "a swap of the expired row")?;
            conflicts(&ctx.db.delete(&key, "v").await?, &absent, "a delete of the expired row")?;
            applied(&ctx.db.insert(&key, "again").await?, "an insert of the expired row")?;
            ensure_present(&ctx.db, &key, "again").await?;
            applied(&ctx.db.delete(&key, "again").await?, "the delete")?;
            applied(&ctx.db.insert(&key, "last").await?, "an insert after the delete")
        }
        .boxed()
    })
    .await
}

async fn a_swap_without_a_ttl_ends_the_expiry(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            let key = ctx.key("p", "a");
            let window = insert_row(ctx, &key, ttl).await?;
            let swap = ctx.db.swap(&key, "v", "stays").await?;
            window.judge(ctx, applied(&swap, "a swap without ttl"))?;
            ensure_eq!(ctx.db.query_ttl(&key).await?, Some(None), "its ttl");
            ctx.pass_until(window.absent_from).await;
            ensure_present(&ctx.db, &key, "stays").await?;
            applied(&ctx.db.swap(&key, "stays", "on").await?, "a swap after the former end")
        }
        .boxed()
    })
    .await
}

/// A lease is such a row: it is renewed with the same bytes and with others.
async fn a_renewed_row_stays(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            let key = ctx.key("p", "a");
            let mut window = insert_row(ctx, &key, ttl).await?;
            for n in 0..5 {
                ctx.pass(ttl / 3).await;
                let swap = ctx.db.swap_for(&key, "v", "v", ttl);
                let (renewed, outcome) = ExpiryWindow::of_write(ctx, ttl, swap).await?;
                window.judge(ctx, applied(&outcome, &format!("renewal {n}")))?;
                window = renewed;
            }
            window.judge(ctx, ensure_present(&ctx.db, &key, "v").await)?;
            ctx.pass_until(window.absent_from).await;
            ensure_absent(&ctx.db, &key).await
        }
        .boxed()
    })
    .await
}

/// A row that is inserted after a delete keeps nothing from before the delete.
async fn a_delete_ends_the_expiry(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            let (stays, goes) = (ctx.key("p", "stays"), ctx.key("p", "goes"));
            let ended = insert_row(ctx, &stays, ttl).await?;
            ended.judge(ctx, applied(&ctx.db.delete(&stays, "v").await?, "a delete"))?;
            applied(&ctx.db.insert(&stays, "new").await?, "an insert without ttl")?;
            applied(&ctx.db.insert(&goes, "v").await?, "an insert without ttl")?;
            applied(&ctx.db.delete(&goes, "v").await?, "a delete")?;
            let window = insert_row(ctx, &goes, ttl).await?;
            ctx.pass_until(window.absent_from).await;
            ensure_present(&ctx.db, &stays, "new").await?;
            ensure_absent(&ctx.db, &goes).await
        }
        .boxed()
    })
    .await
}

async fn each_operation_of_a_write_has_its_own_ttl(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            let pkey = ctx.pkey("p");
            let ops = vec![insert("c", "w"), insert("d", "w"), insert("e", "w")];
            applied(&ctx.db.write_if(&pkey, ops).await?, "the inserts before")?;
            let ops = vec![
                insert_for("a", "v", ttl),
                insert("b", "v"),
                swap_for("c", "w", "v", ttl),
                swap("d", "w", "v"),
                delete("e", "w"),
                insert_for("f", "v", 100 * ttl),
            ];
            let (window, outcome) =
                ExpiryWindow::of_write(ctx, ttl, ctx.db.write_if(&pkey, ops)).await?;
            applied(&outcome, "the write")?;
            let rows = |places: &[&'static str]| -> Vec<Row> {
                places.iter().map(|place| row(*place, "v")).collect()
            };
            let found = ctx.db.read_linearizable(&pkey, Range::all()).await?;
            let expected = rows(&["a", "b", "c", "d", "f"]);
            window.judge(
                ctx,
                equal(&found, &expected, || "the partition before the end".to_owned()),
            )?;
            ctx.pass_until(window.absent_from).await;
            let found = ctx.db.read_linearizable(&pkey, Range::all()).await?;
            ensure_eq!(found, rows(&["b", "d", "f"]), "the partition after the end");
            ensure_eq!(
                ctx.db.read(&pkey, Range::all()).await?,
                rows(&["b", "d", "f"]),
                "read plainly"
            );
            Ok(())
        }
        .boxed()
    })
    .await
}

async fn conflicts_show_expired_rows_as_absent(ctx: &StorageContext) -> Verdict {
    let pkey = ctx.pkey("p");
    let ops = vec![insert_for("a", "v", TTL), insert("b", "there"), insert_for("c", "v", TTL)];
    let (window, outcome) = ExpiryWindow::of_write(ctx, TTL, ctx.db.write_if(&pkey, ops)).await?;
    applied(&outcome, "the inserts")?;
    ctx.pass_until(window.absent_from).await;
    let ops = || vec![swap("a", "v", "new"), insert("b", "new"), insert("c", "new")];
    let outcome = ctx.db.write_if(&pkey, ops()).await?;
    conflicts(&outcome, &[(0, None), (1, Some("there"))], "the write")?;
    let found = ctx.db.read_linearizable(&pkey, Range::all()).await?;
    ensure_eq!(found, [row("b", "there")], "the partition");
    let ops = vec![insert("a", "new"), swap("b", "there", "new"), insert("c", "new")];
    applied(&ctx.db.write_if(&pkey, ops).await?, "a write that takes them for absent")
}

/// A stream does not end at a page that has expired rows only.
async fn expired_rows_among_many_are_absent(ctx: &StorageContext) -> Verdict {
    const ROWS: usize = 600;
    let (pkey, at_once) = (ctx.pkey("p"), ctx.capabilities().conditional.rows.min(100));
    let mut last = None;
    for start in (0..ROWS).step_by(at_once) {
        let places = start..(start + at_once).min(ROWS);
        let ops = places.map(|n| insert_for(place(n), value(n), TTL)).collect();
        let (window, outcome) =
            ExpiryWindow::of_write(ctx, TTL, ctx.db.write_if(&pkey, ops)).await?;
        applied(&outcome, "the inserts with a TTL")?;
        last = Some(window);
    }
    let standing = [ROWS, ROWS + 1, ROWS + 2];
    let ops = standing.map(|n| insert(place(n), value(n))).to_vec();
    applied(&ctx.db.write_if(&pkey, ops).await?, "the inserts without TTL")?;
    if let Some(window) = last {
        ctx.pass_until(window.absent_from).await;
    }
    let expected = standing.map(|n| row(place(n), value(n)));
    ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, expected, "the partition");
    let found = ctx.db.read_linearizable(&pkey, Range::between(place(10), place(ROWS + 2))).await?;
    ensure_eq!(found, expected[..2], "a range, read linearizably");
    ensure_eq!(ctx.db.ttl_read(&pkey, Range::all()).await?.len(), 3, "rows with their TTL");
    Ok(())
}

async fn a_higher_order_ends_the_expiry(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            let (stays, goes) = (ctx.key("p", "stays"), ctx.key("p", "goes"));
            let with_ttl = |key: &Key, value: &'static str, order| {
                Ok::<_, EarlyEnd>(OrderedPut {
                    ttl: Some(ttl),
                    ..ordered(key.clone(), value, order)?
                })
            };
            let first = vec![with_ttl(&stays, "v", 1)?, ordered(goes.clone(), "w", 1)?];
            ctx.db.put_ordered(first).await?;
            let second = vec![ordered(stays.clone(), "new", 2)?, with_ttl(&goes, "v", 2)?];
            let (window, ()) = ExpiryWindow::of_write(ctx, ttl, ctx.db.put_ordered(second)).await?;
            // A superseded write neither brings a TTL of its own, nor ends the TTL of the row.
            let third = vec![with_ttl(&stays, "v", 1)?, ordered(goes.clone(), "w", 1)?];
            ctx.db.put_ordered(third).await?;
            ensure_present(&ctx.db, &stays, "new").await?;
            window.judge(ctx, ensure_present(&ctx.db, &goes, "v").await)?;
            ctx.pass_until(window.absent_from).await;
            ensure_present(&ctx.db, &stays, "new").await?;
            ensure_absent(&ctx.db, &goes).await
        }
        .boxed()
    })
    .await
}

async fn an_expired_ordered_row_can_be_written_again(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    let first = OrderedPut { ttl: Some(TTL), ..ordered(key.clone(), "first", 5)? };
    let (window, ()) = ExpiryWindow::of_write(ctx, TTL, ctx.db.put_ordered(vec![first])).await?;
    ctx.pass_until(window.absent_from).await;
    ensure_absent(&ctx.db, &key).await?;
    ctx.db.put_ordered(vec![ordered(key.clone(), "second", 6)?]).await?;
    ensure_present(&ctx.db, &key, "second").await
}

/// After an unknown outcome the same write is sent again. The TTL must not count from the first
/// write.
async fn an_ordered_row_that_is_sent_again_gets_a_new_ttl(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    let put = |ttl| {
        let put = ordered(key.clone(), "v", 5)?;
        Ok::<_, EarlyEnd>(vec![OrderedPut { ttl: Some(ttl), ..put }])
    };
    let (window, ()) = ExpiryWindow::of_write(ctx, TTL, ctx.db.put_ordered(put(TTL)?)).await?;
    ctx.db.put_ordered(put(100 * TTL)?).await?;
    ctx.pass_until(window.absent_from).await;
    ensure_present(&ctx.db, &key, "v").await
}

async fn rows_of_an_atomic_write_expire(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            ctx.atomic()?;
            let (goes, stays) = (ctx.key("p", "goes"), ctx.key("q", "stays"));
            let batch = || AtomicBatch {
                conditionals: vec![
                    (goes.pkey.clone(), insert_for("goes", "v", ttl)),
                    (stays.pkey.clone(), insert("stays", "v")),
                ],
                ..AtomicBatch::default()
            };
            let (window, outcome) =
                ExpiryWindow::of_write(ctx, ttl, ctx.db.write_atomic(batch())).await?;
            applied(&outcome, "the write")?;
            let standing = [(0, Some("v")), (1, Some("v"))];
            let outcome = ctx.db.write_atomic(batch()).await?;
            window.judge(ctx, conflicts(&outcome, &standing, "the write before the end"))?;
            ctx.pass_until(window.absent_from).await;
            ensure_absent(&ctx.db, &goes).await?;
            conflicts(
                &ctx.db.write_atomic(batch()).await?,
                &standing[1..],
                "the write after the end",
            )?;
            let mut batch = batch();
            batch.conditionals[1].1 = swap("stays", "v", "w");
            applied(
                &ctx.db.write_atomic(batch).await?,
                "a write that takes the expired row for absent",
            )
        }
        .boxed()
    })
    .await
}

async fn nodes_with_different_clocks_agree(ctx: &StorageContext) -> Verdict {
    retry_with_longer_ttl(ctx, |ctx, ttl| {
        async move {
            let (other, keys) = (ctx.other().await?, ["a", "b"].map(|ccols| ctx.key("p", ccols)));
            let mut rows = Vec::new();
            for (by, reader, key) in [(&ctx.db, &other, &keys[0]), (&other, &ctx.db, &keys[1])] {
                let (window, outcome) =
                    ExpiryWindow::of_write(ctx, ttl, by.insert_for(key, "v", ttl)).await?;
                applied(&outcome, "the insert")?;
                window.judge(ctx, ensure_present(reader, key, "v").await)?;
                rows.push((reader, key, window));
            }
            for (reader, key, window) in &rows {
                let lost = reader.insert(key, "new").await?;
                let standing = [(0, Some("v"))];
                let verdict =
                    conflicts(&lost, &standing, "an insert by the other node before the end");
                window.judge(ctx, verdict)?;
            }
            for (reader, key, window) in rows {
                ctx.pass_until(window.absent_from).await;
                ensure_absent(reader, key).await?;
                applied(
                    &reader.insert(key, "new").await?,
                    "an insert by the other node after the end",
                )?;
            }
            Ok(())
        }
        .boxed()
    })
    .await
}

/// Several candidates compete for a lease that ran out.
async fn one_of_many_clients_takes_over_an_expired_row(ctx: &StorageContext) -> Verdict {
    const TASKS: usize = 3;
    let (other, rows) = (ctx.other().await?, ctx.reduced_rounds());
    let at_once = ctx.capabilities().conditional.rows.min(50);
    let mut last = None;
    let pkey = ctx.pkey("p");
    for start in (0..rows).step_by(at_once) {
        let places = start..(start + at_once).min(rows);
        let ops = places.map(|n| insert_for(place(n), "expires", TTL)).collect();
        let (window, outcome) =
            ExpiryWindow::of_write(ctx, TTL, ctx.db.write_if(&pkey, ops)).await?;
        applied(&outcome, "the inserts with a TTL")?;
        last = Some(window);
    }
    // On some storages a node judges the expiry of a row by watching the row. So the other node
    // must have seen the rows.
    let seen = other.read(&pkey, Range::all()).await?;
    ensure!(seen.len() <= rows, "{} rows of {rows} are there", seen.len());
    if let Some(window) = last {
        ctx.pass_until(window.absent_from).await;
    }
    for n in 0..rows {
        let take = |task: usize| {
            let (db, pkey) = (if task == 0 { &other } else { &ctx.db }.clone(), pkey.clone());
            async move {
                let ops = vec![insert_for(place(n), value(task), 100 * TTL)];
                Ok(db.settled(&pkey, ops).await?.is_applied())
            }
        };
        let taken = tasks::all((0..TASKS).map(take)).await?;
        let winners: Vec<usize> = (0..TASKS).filter(|task| taken[*task]).collect();
        ensure_eq!(winners.len(), 1, "the number of tasks that took row {n} over");
        let found = ctx.db.get_linearizable(&Key::new(pkey.clone(), place(n))).await?;
        ensure_eq!(found, Some(value(winners[0])), "row {n}");
    }
    Ok(())
}
