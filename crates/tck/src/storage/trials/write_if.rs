//! `write_if`: several conditional writes of one partition, all or nothing.

use bytes::Bytes;
use istorage::{Conditional, ErrorKind, Range, Row};

use super::rows::{delete, insert, place, row, swap, value, value_of};
use crate::{
    storage::{
        answers::{applied, conflicts, refused},
        context::StorageContext,
    },
    trial::{Trial, Verdict, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(write_if:
    an_empty_write_is_applied,
    inserts_swaps_and_deletes_are_applied_together,
    a_conflict_of_the_first_operation_stops_all,
    a_conflict_of_the_middle_operation_stops_all,
    a_conflict_of_the_last_operation_stops_all,
    a_conflict_of_a_delete_stops_all,
    two_conflicts_are_both_reported,
    conflicts_of_all_operations_are_reported,
    conflicts_come_in_the_order_of_operations,
    a_row_named_twice_is_invalid,
    other_partitions_are_not_touched,
    empty_clustering_columns_among_others_are_written,
    a_write_at_the_limit_of_rows_is_applied,
    a_write_beyond_the_limit_of_rows_is_invalid,
    a_write_at_the_limit_of_bytes_is_applied,
    a_write_beyond_the_limit_of_bytes_is_invalid,
);

const OPS: usize = 9;

/// Fills a partition with rows 0, 3 and 6 for swaps, and rows 1, 4 and 7 for deletes.
async fn fill(ctx: &StorageContext) -> Verdict<(Bytes, Vec<Row>)> {
    let pkey = ctx.pkey("p");
    let there = (0..OPS).filter(|n| n % 3 < 2);
    let rows: Vec<Row> = there.map(|n| row(place(n), value(n))).collect();
    let ops = rows.iter().map(|row| insert(row.ccols.clone(), row.value.clone()));
    applied(&ctx.db.write_if(&pkey, ops.collect()).await?, "the inserts at the beginning")?;
    Ok((pkey, rows))
}

/// Operations that can all be applied to the partition of `fill`: swaps, deletes and inserts in
/// turn.
fn ops() -> Vec<Conditional> {
    let op = |n: usize| match n % 3 {
        0 => swap(place(n), value(n), format!("new {n}")),
        1 => delete(place(n), value(n)),
        _ => insert(place(n), format!("new {n}")),
    };
    (0..OPS).map(op).collect()
}

async fn an_empty_write_is_applied(ctx: &StorageContext) -> Verdict {
    applied(&ctx.db.write_if(&ctx.pkey("p"), Vec::new()).await?, "a write of nothing")
}

async fn inserts_swaps_and_deletes_are_applied_together(ctx: &StorageContext) -> Verdict {
    let (pkey, _) = fill(ctx).await?;
    applied(&ctx.db.write_if(&pkey, ops()).await?, "the write")?;
    let expected = (0..OPS).filter(|n| n % 3 != 1).map(|n| row(place(n), format!("new {n}")));
    let expected: Vec<Row> = expected.collect();
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, expected, "the partition");
    ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, expected, "read plainly");
    Ok(())
}

/// Makes one operation fail, and returns the expected conflict.
fn spoil(ops: &mut [Conditional], n: usize) -> (usize, Option<Bytes>) {
    ops[n] = match n % 3 {
        0 => swap(place(n), "expected", "new"),
        1 => delete(place(n), "expected"),
        // Insert a row that is already there. No other operation names this row now.
        _ => insert(place(n), "new"),
    };
    (n, Some(value(n)))
}

/// If this operation fails, nothing is written.
async fn fails(ctx: &StorageContext, n: usize) -> Verdict {
    let (pkey, mut rows) = fill(ctx).await?;
    let mut ops = ops();
    if n % 3 == 2 {
        let standing = ctx.key("p", place(n));
        applied(
            &ctx.db.insert(&standing, value(n)).await?,
            "an insert that will stand in the way",
        )?;
        rows.push(row(place(n), value(n)));
        rows.sort_unstable_by(|a, b| a.ccols.cmp(&b.ccols));
    }
    let expected = spoil(&mut ops, n);
    let outcome = ctx.db.write_if(&pkey, ops).await?;
    conflicts(&outcome, &[expected], "the write")?;
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, rows, "the partition");
    ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, rows, "read plainly");
    Ok(())
}

async fn a_conflict_of_the_first_operation_stops_all(ctx: &StorageContext) -> Verdict {
    fails(ctx, 0).await
}

async fn a_conflict_of_the_middle_operation_stops_all(ctx: &StorageContext) -> Verdict {
    fails(ctx, 3).await
}

async fn a_conflict_of_the_last_operation_stops_all(ctx: &StorageContext) -> Verdict {
    fails(ctx, OPS - 1).await
}

async fn a_conflict_of_a_delete_stops_all(ctx: &StorageContext) -> Verdict {
    fails(ctx, 4).await
}

async fn two_conflicts_are_both_reported(ctx: &StorageContext) -> Verdict {
    let (pkey, rows) = fill(ctx).await?;
    let mut ops = ops();
    let expected = [spoil(&mut ops, 1), spoil(&mut ops, 6)];
    conflicts(&ctx.db.write_if(&pkey, ops).await?, &expected, "the write")?;
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, rows, "the partition");
    Ok(())
}

async fn conflicts_of_all_operations_are_reported(ctx: &StorageContext) -> Verdict {
    let (pkey, rows) = fill(ctx).await?;
    let ops = vec![
        insert(place(0), "new"),
        swap(place(2), "expected", "new"),
        swap(place(3), "expected", "new"),
        delete(place(4), "expected"),
        delete(place(5), "expected"),
    ];
    let expected = [(0, Some(0)), (1, None), (2, Some(3)), (3, Some(4)), (4, None)];
    let expected = expected.map(|(op, there)| (op, there.map(value)));
    conflicts(&ctx.db.write_if(&pkey, ops).await?, &expected, "the write")?;
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, rows, "the partition");
    Ok(())
}

/// Operations are numbered in the order of the call, not in the order of their rows.
async fn conflicts_come_in_the_order_of_operations(ctx: &StorageContext) -> Verdict {
    let (pkey, _) = fill(ctx).await?;
    let ops = vec![
        insert(place(7), "new"),
        insert(place(200), "new"),
        swap(place(0), "expected", "new"),
        swap(place(6), value(6), "new"),
        delete(place(100), "expected"),
        insert(place(3), "new"),
    ];
    let expected = [(0, Some(value(7))), (2, Some(value(0))), (4, None), (5, Some(value(3)))];
    conflicts(&ctx.db.write_if(&pkey, ops).await?, &expected, "the write")
}

async fn a_row_named_twice_is_invalid(ctx: &StorageContext) -> Verdict {
    let pkey = ctx.pkey("p");
    let twice = [
        vec![insert("a", "1"), insert("a", "1")],
        vec![insert("a", "1"), insert("b", "1"), swap("a", "1", "2")],
        vec![insert("a", "1"), delete("a", "1")],
    ];
    for ops in twice {
        refused(ctx.db.write_if(&pkey, ops).await, ErrorKind::Invalid, "a row named twice")?;
    }
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, [], "the partition");
    Ok(())
}

async fn other_partitions_are_not_touched(ctx: &StorageContext) -> Verdict {
    let pkeys: [Bytes; 4] = ["p", "p\0", "pp", "q"].map(|pkey| ctx.pkey(pkey));
    for pkey in &pkeys {
        let ops = vec![insert("", pkey.clone()), insert("a", pkey.clone())];
        applied(&ctx.db.write_if(pkey, ops).await?, "the inserts")?;
    }
    let ops = vec![delete("", pkeys[0].clone()), swap("a", pkeys[0].clone(), "new")];
    applied(&ctx.db.write_if(&pkeys[0], ops).await?, "the write")?;
    for pkey in &pkeys[1..] {
        let expected = [row("", pkey.clone()), row("a", pkey.clone())];
        let found = ctx.db.read_linearizable(pkey, Range::all()).await?;
        ensure_eq!(found, expected, "another partition");
    }
    Ok(())
}

async fn empty_clustering_columns_among_others_are_written(ctx: &StorageContext) -> Verdict {
    let pkey = ctx.pkey("p");
    let keys: [&'static [u8]; 4] = [b"", b"\x00", b"\x00\x00", b"\xff"];
    let inserts = || keys.map(|ccols| insert(ccols, ccols)).to_vec();
    applied(&ctx.db.write_if(&pkey, inserts()).await?, "the inserts")?;
    let expected = keys.map(|ccols| row(ccols, ccols));
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, expected, "the partition");
    let standing: Vec<_> = keys.into_iter().map(Some).enumerate().collect();
    conflicts(&ctx.db.write_if(&pkey, inserts()).await?, &standing, "the inserts again")
}

fn inserts(rows: usize) -> Vec<Conditional> {
    (0..rows).map(|n| insert(place(n), value(n))).collect()
}

async fn a_write_at_the_limit_of_rows_is_applied(ctx: &StorageContext) -> Verdict {
    let (limit, pkey) = (ctx.capabilities().conditional.rows, ctx.pkey("p"));
    applied(&ctx.db.write_if(&pkey, inserts(limit)).await?, "as many inserts as allowed")?;
    let found = ctx.db.read_linearizable(&pkey, Range::all()).await?;
    let expected: Vec<Row> = (0..limit).map(|n| row(place(n), value(n))).collect();
    ensure_eq!(found.len(), limit, "the number of rows");
    ensure_eq!(found, expected, "the partition");

    let mut ops: Vec<_> = (0..limit).map(|n| swap(place(n), value(n), "new")).collect();
    ops[limit - 1] = insert(place(limit - 1), "new");
    let standing = [(limit - 1, Some(value(limit - 1)))];
    conflicts(&ctx.db.write_if(&pkey, ops).await?, &standing, "swaps, and an insert that fails")?;
    let found = ctx.db.read_linearizable(&pkey, Range::all()).await?;
    ensure_eq!(found, expected, "the partition after a write that failed");

    // Every other row is swapped, and new rows are inserted.
    let op = |n: usize| match n % 2 {
        0 => swap(place(n), value(n), "new"),
        _ => insert(place(limit + n), "new"),
    };
    applied(&ctx.db.write_if(&pkey, (0..limit).map(op).collect()).await?, "swaps and inserts")?;
    let found = ctx.db.read_linearizable(&pkey, Range::all()).await?;
    ensure_eq!(found.len(), limit + limit / 2, "the number of rows after swaps and inserts");
    let new = found.iter().filter(|row| row.value == "new").count();
    ensure_eq!(new, limit, "the number of rows that swaps and inserts wrote");
    Ok(())
}

async fn a_write_beyond_the_limit_of_rows_is_invalid(ctx: &StorageContext) -> Verdict {
    let (limit, pkey) = (ctx.capabilities().conditional.rows, ctx.pkey("p"));
    let answer = ctx.db.write_if(&pkey, inserts(limit + 1)).await;
    refused(answer, ErrorKind::Invalid, "one insert more than allowed")?;
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, [], "the partition");
    Ok(())
}

/// Inserts of exactly this many bytes, including their keys, with the largest allowed values.
fn inserts_of(ctx: &StorageContext, pkey: &Bytes, bytes: usize) -> Vec<Conditional> {
    let overhead = pkey.len() + place(0).len();
    let largest = value_of(ctx.capabilities().row.value);
    let (mut ops, mut left) = (Vec::new(), bytes);
    while left > overhead {
        let size = largest.len().min(left - overhead);
        ops.push(insert(place(ops.len()), largest.slice(..size)));
        left -= overhead + size;
    }
    ops
}

async fn a_write_at_the_limit_of_bytes_is_applied(ctx: &StorageContext) -> Verdict {
    let (limits, pkey) = (ctx.capabilities().conditional, ctx.pkey("p"));
    let mut ops = inserts_of(ctx, &pkey, limits.bytes);
    ops.truncate(limits.rows);
    let expected: Vec<Row> = ops
        .iter()
        .map(|op| row(op.ccols().clone(), op.written().cloned().unwrap_or_default()))
        .collect();
    applied(&ctx.db.write_if(&pkey, ops).await?, "as many bytes as allowed")?;
    let found = ctx.db.read_linearizable(&pkey, Range::all()).await?;
    ensure_eq!(found == expected, true, "whether the partition is as written");
    Ok(())
}

async fn a_write_beyond_the_limit_of_bytes_is_invalid(ctx: &StorageContext) -> Verdict {
    let (limits, pkey) = (ctx.capabilities().conditional, ctx.pkey("p"));
    let ops = inserts_of(ctx, &pkey, limits.bytes + 1);
    let answer = ctx.db.write_if(&pkey, ops).await;
    refused(answer, ErrorKind::Invalid, "one byte more than allowed")?;
    ensure_eq!(ctx.db.read_linearizable(&pkey, Range::all()).await?, [], "the partition");
    Ok(())
}
