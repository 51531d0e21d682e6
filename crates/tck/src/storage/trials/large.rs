//! A partition of 100,000 rows, written once for all of these trials.

use bytes::Bytes;
use clock::Clock;
use futures::{StreamExt, TryStreamExt, stream};
use istorage::{Consistency, ExpiringRow, Put, Range, RowStream};

use super::rows::{place, put};
use crate::{
    storage::{client::CALL, context::StorageContext},
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(long large:
    a_partition_of_100_000_rows_is_read_completely,
    a_range_in_the_middle_is_read,
    the_end_of_the_partition_is_read,
    a_large_partition_is_read_with_ttl,
    a_large_partition_is_read_lazily,
    streams_of_a_large_partition_may_be_dropped,
);

const ROWS: usize = 100_000;

fn value(n: usize) -> Bytes {
    Bytes::copy_from_slice(&(n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
}

/// The partition. The first trial that asks for it writes it.
async fn partition(ctx: &StorageContext) -> Verdict<Bytes> {
    let write = || async {
        const BATCH: usize = 2_500;
        let pkey = ctx.pkey("large");
        let batches = stream::iter((0..ROWS).step_by(BATCH)).map(|start| {
            let rows = (start..start + BATCH).map(|n| put(ctx.key("large", place(n)), value(n)));
            ctx.db.put_batch(rows.collect::<Vec<Put>>())
        });
        batches.buffer_unordered(4).try_collect::<Vec<()>>().await?;
        Ok(pkey)
    };
    ctx.shared().large.get_or_try_init(write).await.cloned()
}

fn read(ctx: &StorageContext, pkey: &Bytes, range: Range) -> RowStream {
    ctx.db.storage.read(pkey.clone(), range, Consistency::Plain, CALL)
}

/// The stream has exactly the rows of these numbers, in order.
async fn has_rows(mut rows: RowStream, mut expected: std::ops::Range<usize>) -> Verdict {
    while let Some(row) = rows.try_next().await? {
        let Some(n) = expected.next() else {
            ensure!(false, "a row after the last, at {:?}", row.ccols);
            return Ok(());
        };
        ensure_eq!(row.ccols, place(n), "the place of the next row");
        ensure_eq!(row.value, value(n), "the value of row {n}");
    }
    ensure_eq!(expected.next(), None, "the next row when the stream ended");
    Ok(())
}

async fn a_partition_of_100_000_rows_is_read_completely(ctx: &StorageContext) -> Verdict {
    let pkey = partition(ctx).await?;
    has_rows(read(ctx, &pkey, Range::all()), 0..ROWS).await
}

async fn a_range_in_the_middle_is_read(ctx: &StorageContext) -> Verdict {
    let pkey = partition(ctx).await?;
    let (start, end) = (ROWS / 3, 2 * ROWS / 3);
    has_rows(read(ctx, &pkey, Range::between(place(start), place(end))), start..end).await
}

async fn the_end_of_the_partition_is_read(ctx: &StorageContext) -> Verdict {
    let pkey = partition(ctx).await?;
    has_rows(read(ctx, &pkey, Range::from(place(ROWS - 3))), ROWS - 3..ROWS).await
}

async fn a_large_partition_is_read_with_ttl(ctx: &StorageContext) -> Verdict {
    let pkey = partition(ctx).await?;
    let mut rows = ctx.db.storage.ttl_read(pkey, Range::all(), CALL);
    let mut count = 0;
    while let Some(found) = rows.try_next().await? {
        let expected = ExpiringRow { ccols: place(count), value: value(count), ttl: None };
        ensure_eq!(found, expected, "row {count}");
        count += 1;
    }
    ensure_eq!(count, ROWS, "the number of rows");
    Ok(())
}

/// The first rows must come long before the last row could. A busy machine makes any read slow, so
/// the quickest of several reads counts.
async fn a_large_partition_is_read_lazily(ctx: &StorageContext) -> Verdict {
    const FIRST: usize = 10;
    let pkey = partition(ctx).await?;
    // Measure real time, whichever clock the storage uses.
    let clock = Clock::system();
    let (mut first, mut all) = (CALL, CALL);
    for _ in 0..3 {
        let start = clock.now();
        let rows = read(ctx, &pkey, Range::all());
        let count = rows.take(FIRST).try_fold(0, |count, _| async move { Ok(count + 1) }).await?;
        ensure_eq!(count, FIRST, "the number of first rows");
        first = first.min(clock.now() - start);

        let start = clock.now();
        has_rows(read(ctx, &pkey, Range::all()), 0..ROWS).await?;
        all = all.min(clock.now() - start);
    }
    ensure!(
        first * 3 < all,
        "the stream is not lazy: the first rows took {first:?}, all rows {all:?}"
    );
    Ok(())
}

async fn streams_of_a_large_partition_may_be_dropped(ctx: &StorageContext) -> Verdict {
    const STREAMS: usize = 100;
    let pkey = partition(ctx).await?;
    for n in 0..STREAMS {
        let mut rows = read(ctx, &pkey, Range::from(place(n)));
        for step in 0..n % 7 {
            let row = rows.try_next().await?;
            ensure_eq!(row.map(|row| row.ccols), Some(place(n + step)), "row {step} of stream {n}");
        }
    }
    has_rows(read(ctx, &pkey, Range::from(place(ROWS - 100))), ROWS - 100..ROWS).await
}
