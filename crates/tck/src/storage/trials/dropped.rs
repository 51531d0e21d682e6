//! Calls that are dropped. The rows of a dropped write are there in whole or not at all, and the
//! storage still works.

use std::{future::Future, time::Duration};

use clock::Clock;
use futures::{
    FutureExt, StreamExt,
    future::{Either, select},
    stream,
};
use istorage::{AtomicBatch, Consistency, Key, Range};

use super::rows::{insert, ordered, place, put, row, value};
use crate::{
    storage::{answers::applied, client::CALL, context::StorageContext},
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(dropped:
    a_conditional_write_is_all_or_nothing,
    an_atomic_write_is_all_or_nothing,
    ordered_rows_of_a_partition_are_all_or_nothing,
    the_storage_works_after_many_dropped_calls,
);

const ROWS: usize = 8;

/// The longest time until a write that was sent lands.
const LANDING: Duration = Duration::from_secs(20);

/// Runs the future for a random moment, and then drops it.
async fn run_a_little<F: Future>(future: F, random: &mut fastrand::Rng) {
    let mut future = std::pin::pin!(future);
    if random.bool() {
        for _ in 0..random.usize(0..4) {
            if future.as_mut().now_or_never().is_some() {
                return;
            }
            tasks::yield_now().await;
        }
    } else {
        // Wait in real time: the drop must hit the threads and servers of the storage in the middle
        // of their work.
        let moment = Clock::system();
        let moment = moment.sleep(Duration::from_micros(random.u64(0..4_000)));
        match select(future, std::pin::pin!(moment)).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }
}

/// Once all writes have landed, each of these groups of rows is there in whole, or not at all.
async fn all_or_nothing(ctx: &StorageContext, groups: &[Vec<Key>]) -> Verdict {
    // A read is no snapshot, and a write that was sent may land in the middle of a read. But each
    // write lands in the end.
    let until = ctx.db.clock.now() + LANDING;
    for (n, group) in groups.iter().enumerate() {
        loop {
            let written = ctx.db.get_batch(group).await?.into_iter().flatten().count();
            if written == 0 || written == group.len() {
                break;
            }
            let late = ctx.db.clock.now() >= until;
            ensure!(!late, "{written} of the {} rows of write {n} are written", group.len());
            ctx.pass(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// Writes a group of rows for each round, several groups at once, and drops most of the writes in
/// the middle.
async fn drop_writes<'a, F>(ctx: &StorageContext, write: impl Fn(usize) -> F)
where
    F: Future + Send + 'a,
{
    let writes = stream::iter((0..ctx.rounds() / 2).map(|n| (n, write(n))));
    let dropping = writes.for_each_concurrent(4, |(n, write)| async move {
        run_a_little(write, &mut fastrand::Rng::with_seed(n as u64)).await;
    });
    dropping.await;
}

fn groups(ctx: &StorageContext, key: impl Fn(usize, usize) -> Key) -> Vec<Vec<Key>> {
    (0..ctx.rounds() / 2).map(|n| (0..ROWS).map(|row| key(n, row)).collect()).collect()
}

async fn a_conditional_write_is_all_or_nothing(ctx: &StorageContext) -> Verdict {
    let key = |n, row| ctx.key(place(n), place(row));
    drop_writes(ctx, |n| {
        let (db, pkey) = (ctx.db.clone(), ctx.pkey(place(n)));
        let ops = (0..ROWS).map(|row| insert(place(row), value(row))).collect();
        async move { db.write_if(&pkey, ops).await }
    })
    .await;
    all_or_nothing(ctx, &groups(ctx, key)).await
}

async fn an_atomic_write_is_all_or_nothing(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    let key = |n, row| ctx.key(place(row), place(n));
    drop_writes(ctx, |n| {
        let mut batch = AtomicBatch::default();
        for row in 0..ROWS / 2 {
            let key = key(n, row);
            batch.conditionals.push((key.pkey, insert(key.ccols, value(n))));
        }
        batch.puts.extend((ROWS / 2..ROWS - 1).map(|row| put(key(n, row), value(n))));
        batch.ordered.extend(ordered(key(n, ROWS - 1), value(n), 1));
        let db = ctx.db.clone();
        async move { db.write_atomic(batch).await }
    })
    .await;
    all_or_nothing(ctx, &groups(ctx, key)).await
}

async fn ordered_rows_of_a_partition_are_all_or_nothing(ctx: &StorageContext) -> Verdict {
    if ctx.capabilities().ordered.is_none() {
        return Err(EarlyEnd::Ignored("this storage writes each ordered row by itself"));
    }
    let key = |n, row| ctx.key(place(n), place(row));
    drop_writes(ctx, |n| {
        let rows = (0..ROWS).flat_map(|row| ordered(key(n, row), value(n), 1)).collect();
        let db = ctx.db.clone();
        async move { db.put_ordered(rows).await }
    })
    .await;
    all_or_nothing(ctx, &groups(ctx, key)).await
}

/// A dropped call gives back everything that it holds: places in a queue, connections, locks.
async fn the_storage_works_after_many_dropped_calls(ctx: &StorageContext) -> Verdict {
    let calls = stream::iter(0..ctx.rounds()).for_each_concurrent(32, |n| async move {
        let mut random = fastrand::Rng::with_seed(n as u64);
        let (key, db) = (ctx.key("dropped", place(n % 50)), &ctx.db);
        let puts = || (0..20).map(|n| put(ctx.key("puts", place(n)), "v")).collect();
        match n % 6 {
            0 => run_a_little(db.get(&key), &mut random).await,
            1 => run_a_little(db.get_linearizable(&key), &mut random).await,
            2 => run_a_little(db.insert(&key, "v"), &mut random).await,
            3 => run_a_little(db.put_batch(puts()), &mut random).await,
            4 => run_a_little(db.swap(&key, "v", "w"), &mut random).await,
            _ => {
                let pkey = key.pkey.clone();
                let mut rows = db.storage.read(pkey, Range::all(), Consistency::Linearizable, CALL);
                run_a_little(rows.next(), &mut random).await;
            }
        }
    });
    calls.await;
    let rows = (0..100).map(|n| put(ctx.key("after", place(n)), value(n)));
    ctx.db.put_batch(rows.collect()).await?;
    let expected: Vec<_> = (0..100).map(|n| row(place(n), value(n))).collect();
    ensure_eq!(ctx.db.read(&ctx.pkey("after"), Range::all()).await?, expected, "the rows");
    for n in 0..20 {
        let key = ctx.key("inserted after", place(n));
        applied(&ctx.db.insert(&key, value(n)).await?, "an insert")?;
        ensure_eq!(ctx.db.get_linearizable(&key).await?, Some(value(n)), "the row");
    }
    Ok(())
}
