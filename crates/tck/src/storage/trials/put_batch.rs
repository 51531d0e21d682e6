//! `put_batch` and `put`.

use istorage::{Key, Put, Range};

use super::rows::{place, put, row, value, value_of};
use crate::{
    storage::context::StorageContext,
    trial::{Trial, Verdict, ensure, ensure_eq, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(put_batch:
    a_batch_of_0_rows_is_written,
    a_batch_of_1_row_is_written,
    a_batch_of_25_rows_is_written,
    a_batch_of_26_rows_is_written,
    a_batch_of_100_rows_is_written,
    a_batch_of_1_000_rows_is_written,
    a_batch_of_10_000_rows_is_written,
    a_batch_of_1_000_partitions_is_written,
    a_batch_of_large_rows_is_written,
    the_last_write_of_a_repeated_key_counts,
    a_batch_overwrites_rows,
    the_last_of_many_writes_stays,
    concurrent_batches_are_all_written,
);

/// Writes a batch into three partitions and reads all of its rows.
async fn of(ctx: &StorageContext, rows: usize) -> Verdict {
    let key = |n: usize| ctx.key(format!("p{}", n % 3), place(n));
    ctx.db.put_batch((0..rows).map(|n| put(key(n), value(n))).collect()).await?;
    for partition in 0..3 {
        let found = ctx.db.read(&ctx.pkey(format!("p{partition}")), Range::all()).await?;
        let numbers = (partition..rows).step_by(3);
        ensure_eq!(found.len(), numbers.len(), "the number of rows in partition {partition}");
        for (found, n) in found.into_iter().zip(numbers) {
            ensure_eq!(found, row(place(n), value(n)), "row {n}");
        }
    }
    Ok(())
}

async fn a_batch_of_0_rows_is_written(ctx: &StorageContext) -> Verdict {
    of(ctx, 0).await
}

async fn a_batch_of_1_row_is_written(ctx: &StorageContext) -> Verdict {
    of(ctx, 1).await
}

async fn a_batch_of_25_rows_is_written(ctx: &StorageContext) -> Verdict {
    of(ctx, 25).await
}

async fn a_batch_of_26_rows_is_written(ctx: &StorageContext) -> Verdict {
    of(ctx, 26).await
}

async fn a_batch_of_100_rows_is_written(ctx: &StorageContext) -> Verdict {
    of(ctx, 100).await
}

async fn a_batch_of_1_000_rows_is_written(ctx: &StorageContext) -> Verdict {
    of(ctx, 1_000).await
}

async fn a_batch_of_10_000_rows_is_written(ctx: &StorageContext) -> Verdict {
    of(ctx, 10_000).await
}

async fn a_batch_of_1_000_partitions_is_written(ctx: &StorageContext) -> Verdict {
    let keys: Vec<Key> = (0..1_000).map(|n| ctx.key(place(n), "a")).collect();
    let puts = keys.iter().enumerate().map(|(n, key)| put(key.clone(), value(n)));
    ctx.db.put_batch(puts.collect()).await?;
    for (n, found) in ctx.db.get_batch(&keys).await?.into_iter().enumerate() {
        ensure_eq!(found, Some(value(n)), "the row of partition {n}");
    }
    Ok(())
}

/// The rows have more bytes than a server takes at once.
async fn a_batch_of_large_rows_is_written(ctx: &StorageContext) -> Verdict {
    const ROWS: usize = 80;
    let large = value_of(ctx.capabilities().row.value.min(250_000));
    let puts = (0..ROWS).map(|n| put(ctx.key("p", place(n)), large.clone()));
    ctx.db.put_batch(puts.collect()).await?;
    let found = ctx.db.read(&ctx.pkey("p"), Range::all()).await?;
    ensure_eq!(found.len(), ROWS, "the number of rows");
    ensure!(found.iter().all(|row| row.value == large), "a large row is not whole");
    Ok(())
}

async fn the_last_write_of_a_repeated_key_counts(ctx: &StorageContext) -> Verdict {
    for (round, size) in [2, 30, 300].into_iter().enumerate() {
        let pkey = format!("p{round}");
        let other = |n| put(ctx.key(&pkey, place(n)), value(n));
        let mut puts: Vec<Put> = (0..size).map(other).collect();
        for (at, value) in [(0, "first"), (size / 2, "second"), (size, "last")] {
            puts.insert(at, put(ctx.key(&pkey, "twice"), value));
        }
        ctx.db.put_batch(puts).await?;
        let found = ctx.db.get(&ctx.key(&pkey, "twice")).await?;
        ensure_eq!(found, Some("last".into()), "the row that is {size} rows apart in its batch");
        let found = ctx.db.read(&ctx.pkey(&pkey), Range::all()).await?;
        ensure_eq!(found.len(), size + 1, "the number of rows");
    }
    Ok(())
}

async fn a_batch_overwrites_rows(ctx: &StorageContext) -> Verdict {
    for round in 0..4 {
        let puts = (0..40).map(|n| put(ctx.key("p", place(n)), value(100 * round + n)));
        ctx.db.put_batch(puts.collect()).await?;
        let expected: Vec<_> = (0..40).map(|n| row(place(n), value(100 * round + n))).collect();
        let found = ctx.db.read(&ctx.pkey("p"), Range::all()).await?;
        ensure_eq!(found, expected, "the rows after write {round}");
    }
    Ok(())
}

/// Some writes follow each other faster than a clock ticks. They still keep their order.
async fn the_last_of_many_writes_stays(ctx: &StorageContext) -> Verdict {
    let keys = [ctx.key("p", "a"), ctx.key("q", "a")];
    for n in 0..200 {
        let puts = keys.each_ref().map(|key| put(key.clone(), value(n)));
        ctx.db.put_batch(puts.into()).await?;
    }
    let found = ctx.db.get_batch(&keys).await?;
    ensure_eq!(found, [Some(value(199)), Some(value(199))], "the rows after 200 writes");
    Ok(())
}

async fn concurrent_batches_are_all_written(ctx: &StorageContext) -> Verdict {
    const BATCHES: usize = 32;
    const ROWS: usize = 30;
    let write = |batch: usize| {
        let ctx = ctx.clone();
        async move {
            let key = |n: usize| ctx.key(format!("p{}", n % 2), place(ROWS * batch + n));
            let puts = (0..ROWS).map(|n| put(key(n), value(batch)));
            Ok(ctx.db.put_batch(puts.collect()).await?)
        }
    };
    tasks::all((0..BATCHES).map(write)).await?;
    for partition in ["p0", "p1"] {
        let found = ctx.db.read(&ctx.pkey(partition), Range::all()).await?;
        ensure_eq!(found.len(), BATCHES * ROWS / 2, "the number of rows in {partition}");
        for (n, found) in found.iter().enumerate() {
            ensure_eq!(found.value, value(2 * n / ROWS), "the value of row {n} in {partition}");
        }
    }
    Ok(())
}
