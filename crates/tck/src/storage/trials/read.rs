//! `read`: ranges of a partition.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use istorage::{Consistency, Range, Row};

use super::rows::{awkward_keys, place, put, row, value, value_of};
use crate::{
    storage::{answers::applied, client::CALL, context::StorageContext},
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(read:
    an_empty_partition_has_no_rows,
    rows_come_in_the_order_of_unsigned_bytes,
    the_start_is_included_and_the_end_is_not,
    a_range_may_be_open,
    the_bounds_need_no_rows,
    the_bounds_may_be_longer_than_any_key,
    a_range_may_have_no_rows,
    a_range_may_have_one_row,
    all_ranges_of_unusual_keys_are_read,
    rows_of_other_partitions_are_not_read,
    written_rows_are_read_at_once,
    rows_with_empty_values_are_read,
    conditional_rows_are_read,
    many_megabytes_of_rows_are_read,
    concurrent_streams_are_independent,
);

async fn an_empty_partition_has_no_rows(ctx: &StorageContext) -> Verdict {
    let pkey = ctx.pkey("p");
    ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, [], "the rows");
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, [], "read linearizably");
    ensure_eq!(ctx.db.ttl_read(&pkey, Range::all()).await?, [], "read with their TTL");
    Ok(())
}

/// Writes a row at each of the keys, but not in the order of the keys.
async fn fill(ctx: &StorageContext, pkey: &str, ccols: &[Bytes]) -> Verdict<Vec<Row>> {
    let rows = ccols.iter().enumerate().map(|(n, ccols)| row(ccols.clone(), value(n)));
    let rows: Vec<Row> = rows.collect();
    let puts =
        rows.iter().rev().map(|row| put(ctx.key(pkey, row.ccols.clone()), row.value.clone()));
    ctx.db.put_batch(puts.collect()).await?;
    Ok(rows)
}

async fn rows_come_in_the_order_of_unsigned_bytes(ctx: &StorageContext) -> Verdict {
    let expected = fill(ctx, "p", &awkward_keys()).await?;
    let found = ctx.db.read(&ctx.pkey("p"), Range::all()).await?;
    ensure_eq!(found.len(), expected.len(), "the number of rows");
    for (found, expected) in found.into_iter().zip(expected) {
        ensure_eq!(found, expected, "the next row");
    }
    Ok(())
}

/// Writes rows at 0, 10, 20 and so on up to 90.
async fn fill_tens(ctx: &StorageContext) -> Verdict<(Bytes, Vec<Row>)> {
    let ccols: Vec<Bytes> = (0..10).map(|n| place(10 * n)).collect();
    Ok((ctx.pkey("tens"), fill(ctx, "tens", &ccols).await?))
}

async fn the_start_is_included_and_the_end_is_not(ctx: &StorageContext) -> Verdict {
    let (pkey, rows) = fill_tens(ctx).await?;
    let found = ctx.db.read(&pkey, Range::between(place(20), place(50))).await?;
    ensure_eq!(found, rows[2..5], "rows from 20 to 50");
    let found = ctx.db.read_linearizable(&pkey, Range::between(place(20), place(50))).await?;
    ensure_eq!(found, rows[2..5], "rows from 20 to 50, read linearizably");
    let found = ctx.db.ttl_read(&pkey, Range::between(place(20), place(50))).await?;
    ensure_eq!(found.len(), 3, "the number of rows from 20 to 50, read with their TTL");
    Ok(())
}

async fn a_range_may_be_open(ctx: &StorageContext) -> Verdict {
    let (pkey, rows) = fill_tens(ctx).await?;
    ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, rows, "all rows");
    let from = ctx.db.read(&pkey, Range::from(place(70))).await?;
    ensure_eq!(from, rows[7..], "rows from 70");
    let to = ctx.db.read(&pkey, Range::between("", place(30))).await?;
    ensure_eq!(to, rows[..3], "rows up to 30");
    Ok(())
}

async fn the_bounds_need_no_rows(ctx: &StorageContext) -> Verdict {
    let (pkey, rows) = fill_tens(ctx).await?;
    for (start, end, expected) in [(15, 45, &rows[2..5]), (11, 20, &[]), (0, 1_000, &rows[..])] {
        let found = ctx.db.read(&pkey, Range::between(place(start), place(end))).await?;
        ensure_eq!(found, expected, "rows from {start} to {end}");
    }
    let found = ctx.db.read(&pkey, Range::from(place(91))).await?;
    ensure_eq!(found, [], "rows after the last");
    Ok(())
}

async fn the_bounds_may_be_longer_than_any_key(ctx: &StorageContext) -> Verdict {
    let longest = ctx.capabilities().row.ccols;
    let beyond = |first: u8| Bytes::from([&[first], &vec![0xff; longest + 10][..]].concat());
    let ccols = [b"\x01".as_slice(), b"\x02", b"\x03"].map(Bytes::from_static);
    let rows = fill(ctx, "p", &ccols).await?;
    let found = ctx.db.read(&ctx.pkey("p"), Range::between(beyond(1), beyond(2))).await?;
    ensure_eq!(found, rows[1..2], "rows between two long bounds");
    let found = ctx.db.read(&ctx.pkey("p"), Range::from(beyond(0xff))).await?;
    ensure_eq!(found, [], "rows from a bound above every key");
    Ok(())
}

async fn a_range_may_have_no_rows(ctx: &StorageContext) -> Verdict {
    let (pkey, _) = fill_tens(ctx).await?;
    for (start, end) in [(20, 20), (50, 20), (0, 0)] {
        let range = Range::between(place(start), place(end));
        ensure_eq!(ctx.db.read(&pkey, range.clone()).await?, [], "rows from {start} to {end}");
        let found = ctx.db.read_linearizable(&pkey, range).await?;
        ensure_eq!(found, [], "rows from {start} to {end}, read linearizably");
    }
    ensure_eq!(ctx.db.read(&pkey, Range::between("", "")).await?, [], "rows up to the first key");
    Ok(())
}

async fn a_range_may_have_one_row(ctx: &StorageContext) -> Verdict {
    let keys = awkward_keys();
    let rows = fill(ctx, "p", &keys).await?;
    let pkey = ctx.pkey("p");
    let awkward = rows.iter().filter(|row| row.ccols.len() != 1 || row.ccols[0] % 32 == 31);
    for row in awkward {
        let found = ctx.db.read(&pkey, Range::only(&row.ccols)).await?;
        ensure_eq!(found, std::slice::from_ref(row), "the row at {:?}", row.ccols);
    }
    ensure_eq!(ctx.db.read(&pkey, Range::only(b"none")).await?, [], "the row that is not there");
    Ok(())
}

async fn all_ranges_of_unusual_keys_are_read(ctx: &StorageContext) -> Verdict {
    // These keys have every kind of neighbours. More keys would have too many pairs.
    let keys: Vec<Bytes> = awkward_keys().into_iter().filter(|key| key.len() != 1).collect();
    let rows = fill(ctx, "p", &keys).await?;
    let pkey = ctx.pkey("p");
    let pairs = (0..rows.len()).flat_map(|start| (start..rows.len()).map(move |end| (start, end)));
    for (start, end) in pairs.step_by(3) {
        let range = Range::between(rows[start].ccols.clone(), rows[end].ccols.clone());
        let found = ctx.db.read(&pkey, range.clone()).await?;
        ensure_eq!(found, rows[start..end], "the rows of {range:?}");
    }
    Ok(())
}

async fn rows_of_other_partitions_are_not_read(ctx: &StorageContext) -> Verdict {
    let partitions: [&'static [u8]; 9] =
        [b"a", b"a\x00", b"a\x00\x00", b"aa", b"ab", b"a\xff", b"b", b"\xff", b"\xff\xff"];
    let ccols: [&'static [u8]; 5] = [b"", b"\x00", b"a", b"\xff", b"\xff\xff"];
    let mut puts = Vec::new();
    for pkey in partitions {
        let rows = ccols.map(|ccols| put(ctx.key(pkey, ccols), Bytes::from_static(pkey)));
        puts.extend(rows);
    }
    ctx.db.put_batch(puts).await?;
    for pkey in partitions {
        let expected = ccols.map(|ccols| row(ccols, pkey));
        let found = ctx.db.read(&ctx.pkey(pkey), Range::all()).await?;
        ensure_eq!(found, expected, "the rows of the partition {pkey:?}");
        let found = ctx.db.read(&ctx.pkey(pkey), Range::from(ccols[3])).await?;
        ensure_eq!(found, expected[3..], "the last rows of the partition {pkey:?}");
    }
    Ok(())
}

async fn written_rows_are_read_at_once(ctx: &StorageContext) -> Verdict {
    let (other, pkey) = (ctx.other().await?, ctx.pkey("p"));
    let mut expected = Vec::new();
    for n in 0..20 {
        ctx.db.put(&ctx.key("p", place(n)), value(n)).await?;
        expected.push(row(place(n), value(n)));
        ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, expected, "the rows");
        ensure_eq!(other.read(&pkey, Range::all()).await?, expected, "the rows on another node");
    }
    Ok(())
}

async fn rows_with_empty_values_are_read(ctx: &StorageContext) -> Verdict {
    let keys = ["", "a", "b"];
    ctx.db.put_batch(keys.map(|ccols| put(ctx.key("p", ccols), "")).into()).await?;
    let found = ctx.db.read(&ctx.pkey("p"), Range::all()).await?;
    ensure_eq!(found, keys.map(|ccols| row(ccols, "")), "the rows");
    Ok(())
}

async fn conditional_rows_are_read(ctx: &StorageContext) -> Verdict {
    let (other, pkey) = (ctx.other().await?, ctx.pkey("p"));
    let keys = ["a", "b", "c"].map(|ccols| ctx.key("p", ccols));
    for key in &keys {
        applied(&ctx.db.insert(key, "1").await?, "the insert")?;
    }
    applied(&ctx.db.swap(&keys[0], "1", "2").await?, "the swap")?;
    applied(&ctx.db.delete(&keys[1], "1").await?, "the delete")?;
    let expected = [row("a", "2"), row("c", "1")];
    ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, expected, "the rows");
    ensure_eq!(other.read(&pkey, Range::all()).await?, expected, "the rows on another node");
    Ok(())
}

/// The rows have more bytes than fit into a page.
async fn many_megabytes_of_rows_are_read(ctx: &StorageContext) -> Verdict {
    const ROWS: usize = 48;
    let large = value_of(ctx.capabilities().row.value.min(100_000));
    let rows = (0..ROWS).map(|n| put(ctx.key("p", place(n)), large.clone()));
    ctx.db.put_batch(rows.collect()).await?;
    let range = Range::between(place(1), place(ROWS - 1));
    let found = ctx.db.read(&ctx.pkey("p"), range).await?;
    let places: Vec<Bytes> = found.iter().map(|row| row.ccols.clone()).collect();
    ensure_eq!(places, (1..ROWS - 1).map(place).collect::<Vec<_>>(), "the places of the rows");
    ensure!(found.iter().all(|row| row.value == large), "a large row is not whole");
    Ok(())
}

/// Streams that are polled in turn do not disturb each other. A stream also does not borrow from
/// its storage.
async fn concurrent_streams_are_independent(ctx: &StorageContext) -> Verdict {
    const ROWS: usize = 300;
    let ccols: Vec<Bytes> = (0..ROWS).map(place).collect();
    let rows = fill(ctx, "p", &ccols).await?;
    let mut streams: Vec<_> = (0..20)
        .map(|n| {
            let range = Range::from(place(10 * n));
            ctx.db.storage.read(ctx.pkey("p"), range, Consistency::Plain, CALL)
        })
        .collect();
    for step in 0..5 {
        for (n, stream) in streams.iter_mut().enumerate() {
            let found = stream.next().await.transpose()?;
            ensure_eq!(found.as_ref(), rows.get(10 * n + step), "row {step} of stream {n}");
        }
    }
    for (n, stream) in streams.into_iter().enumerate() {
        let rest: Vec<Row> = stream.try_collect().await?;
        ensure_eq!(rest, rows[10 * n + 5..], "the rest of stream {n}");
    }
    Ok(())
}
