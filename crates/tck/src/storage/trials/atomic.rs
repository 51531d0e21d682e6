//! `write_atomic`: rows of any partitions and kinds, all or nothing. Only for storages that offer
//! the call.

use bytes::Bytes;
use istorage::{AtomicBatch, Conditional, ErrorKind, Key, Range};

use super::rows::{delete, insert, ordered, place, put, row, swap, value};
use crate::{
    storage::{
        answers::{applied, conflicts, refused},
        context::StorageContext,
    },
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(atomic:
    a_storage_without_the_call_answers_invalid,
    an_empty_batch_is_applied,
    several_partitions_and_kinds_are_written_together,
    a_failed_condition_stops_all_partitions,
    conflicts_of_several_partitions_are_reported,
    a_superseded_row_does_not_fail_the_batch,
    a_row_named_twice_is_invalid,
    a_batch_at_the_limit_of_rows_is_applied,
    a_batch_beyond_the_limit_of_rows_is_invalid,
    a_batch_beyond_the_limit_of_bytes_is_invalid,
    batches_that_share_rows_exclude_each_other,
    concurrent_batches_are_each_written_whole,
);

async fn a_storage_without_the_call_answers_invalid(ctx: &StorageContext) -> Verdict {
    if ctx.capabilities().atomic.is_some() {
        return Err(EarlyEnd::Ignored("this storage offers write_atomic"));
    }
    let key = ctx.key("p", "a");
    let batch = AtomicBatch { puts: vec![put(key.clone(), "v")], ..AtomicBatch::default() };
    refused(ctx.db.write_atomic(batch).await, ErrorKind::Invalid, "the write")?;
    ensure_eq!(ctx.db.get(&key).await?, None, "the row");
    Ok(())
}

async fn an_empty_batch_is_applied(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    applied(&ctx.db.write_atomic(AtomicBatch::default()).await?, "a write of nothing")
}

fn conditionals(ops: impl IntoIterator<Item = (Bytes, Conditional)>) -> AtomicBatch {
    AtomicBatch { conditionals: ops.into_iter().collect(), ..AtomicBatch::default() }
}

/// A batch with every kind of write, in partitions a to e. A trial may first write the ordered row
/// `("d", "x")` with a higher order. The batch then does not change that row.
fn every_kind(ctx: &StorageContext) -> Verdict<AtomicBatch> {
    Ok(AtomicBatch {
        conditionals: vec![
            (ctx.pkey("a"), insert("x", "inserted")),
            (ctx.pkey("b"), swap("x", "old", "swapped")),
            (ctx.pkey("c"), delete("x", "old")),
        ],
        ordered: vec![
            ordered(ctx.key("d", "x"), "ordered", 50)?,
            ordered(ctx.key("d", "y"), "ordered", 50)?,
        ],
        puts: vec![put(ctx.key("e", "x"), "put"), put(ctx.key("a", "y"), "put")],
    })
}

fn rows_of_every_kind(ctx: &StorageContext) -> Vec<Key> {
    let rows = [("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("d", "y"), ("e", "x"), ("a", "y")];
    rows.map(|(pkey, ccols)| ctx.key(pkey, ccols)).into()
}

async fn fill(ctx: &StorageContext) -> Verdict {
    for pkey in ["b", "c"] {
        applied(&ctx.db.insert(&ctx.key(pkey, "x"), "old").await?, "an insert before")?;
    }
    Ok(())
}

async fn several_partitions_and_kinds_are_written_together(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    fill(ctx).await?;
    applied(&ctx.db.write_atomic(every_kind(ctx)?).await?, "the write")?;
    let found = ctx.db.get_batch(&rows_of_every_kind(ctx)).await?;
    let expected = ["inserted", "swapped", "", "ordered", "ordered", "put", "put"];
    let expected = expected.map(|value| (!value.is_empty()).then(|| Bytes::from(value)));
    ensure_eq!(found, expected, "the rows");
    Ok(())
}

async fn a_failed_condition_stops_all_partitions(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    fill(ctx).await?;
    let old = Some(Bytes::from("old"));
    let before = [None, old.clone(), old, None, None, None, None];
    for (spoiled, op) in [
        (0, (ctx.pkey("b"), insert("x", "new"))),
        (1, (ctx.pkey("b"), swap("x", "expected", "new"))),
        (2, (ctx.pkey("c"), delete("x", "expected"))),
    ] {
        let mut batch = every_kind(ctx)?;
        if spoiled == 0 {
            // Remove the swap, so that no row is named twice.
            batch.conditionals.remove(1);
        }
        batch.conditionals[spoiled] = op;
        let outcome = ctx.db.write_atomic(batch).await?;
        conflicts(&outcome, &[(spoiled, Some("old"))], "the write")?;
        let found = ctx.db.get_batch(&rows_of_every_kind(ctx)).await?;
        ensure_eq!(found, before, "the rows after condition {spoiled} failed");
    }
    Ok(())
}

async fn conflicts_of_several_partitions_are_reported(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    fill(ctx).await?;
    let batch = conditionals([
        (ctx.pkey("c"), insert("x", "new")),
        (ctx.pkey("a"), insert("x", "new")),
        (ctx.pkey("b"), swap("x", "expected", "new")),
        (ctx.pkey("d"), delete("x", "expected")),
    ]);
    let expected = [(0, Some("old")), (2, Some("old")), (3, None)];
    conflicts(&ctx.db.write_atomic(batch).await?, &expected, "the write")?;
    ensure_eq!(ctx.db.get(&ctx.key("a", "x")).await?, None, "the row without a conflict");
    Ok(())
}

async fn a_superseded_row_does_not_fail_the_batch(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    fill(ctx).await?;
    ctx.db.put_ordered(vec![ordered(ctx.key("d", "x"), "high", 51)?]).await?;
    applied(&ctx.db.write_atomic(every_kind(ctx)?).await?, "the write")?;
    let found = ctx.db.get_batch(&rows_of_every_kind(ctx)).await?;
    let expected = ["inserted", "swapped", "", "high", "ordered", "put", "put"];
    let expected = expected.map(|value| (!value.is_empty()).then(|| Bytes::from(value)));
    ensure_eq!(found, expected, "the rows");
    Ok(())
}

async fn a_row_named_twice_is_invalid(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    let (key, pkey) = (ctx.key("p", "a"), ctx.pkey("p"));
    let mixed = AtomicBatch {
        conditionals: vec![(pkey.clone(), insert("a", "1"))],
        puts: vec![put(key.clone(), "2")],
        ..AtomicBatch::default()
    };
    refused(ctx.db.write_atomic(mixed).await, ErrorKind::Invalid, "a row of two kinds")?;
    let twice = conditionals([(pkey.clone(), insert("a", "1")), (pkey, delete("a", "1"))]);
    refused(ctx.db.write_atomic(twice).await, ErrorKind::Invalid, "a row with two conditions")?;
    ensure_eq!(ctx.db.get(&key).await?, None, "the row");

    let (plain, high) = (ctx.key("q", "a"), ctx.key("r", "a"));
    let batch = AtomicBatch {
        ordered: [(5, "5"), (9, "9"), (7, "7")]
            .map(|(order, value)| ordered(high.clone(), value, order))
            .into_iter()
            .collect::<Verdict<_>>()?,
        puts: ["first", "second", "last"].map(|value| put(plain.clone(), value)).into(),
        ..AtomicBatch::default()
    };
    applied(&ctx.db.write_atomic(batch).await?, "plain and ordered rows named several times")?;
    let found = ctx.db.get_batch(&[plain, high]).await?;
    ensure_eq!(found, [Some("last".into()), Some("9".into())], "the rows");
    Ok(())
}

fn inserts(ctx: &StorageContext, rows: usize) -> AtomicBatch {
    conditionals((0..rows).map(|n| (ctx.pkey(place(n % 10)), insert(place(n), value(n)))))
}

async fn a_batch_at_the_limit_of_rows_is_applied(ctx: &StorageContext) -> Verdict {
    let limit = ctx.atomic()?.rows;
    applied(&ctx.db.write_atomic(inserts(ctx, limit)).await?, "as many rows as allowed")?;
    for pkey in 0..10 {
        let expected: Vec<_> = (pkey..limit).step_by(10).map(|n| row(place(n), value(n))).collect();
        let found = ctx.db.read_linearizable(&ctx.pkey(place(pkey)), Range::all()).await?;
        ensure_eq!(found, expected, "partition {pkey}");
    }
    Ok(())
}

async fn a_batch_beyond_the_limit_of_rows_is_invalid(ctx: &StorageContext) -> Verdict {
    let limit = ctx.atomic()?.rows;
    let answer = ctx.db.write_atomic(inserts(ctx, limit + 1)).await;
    refused(answer, ErrorKind::Invalid, "one row more than allowed")?;
    ensure_eq!(ctx.db.read(&ctx.pkey(place(0)), Range::all()).await?, [], "the first partition");
    Ok(())
}

async fn a_batch_beyond_the_limit_of_bytes_is_invalid(ctx: &StorageContext) -> Verdict {
    let limits = ctx.atomic()?;
    let size = ctx.capabilities().row.value.min(limits.bytes);
    let large = Bytes::from(vec![7; size]);
    let rows = limits.bytes / size + 1;
    let batch = conditionals((0..rows).map(|n| (ctx.pkey("p"), insert(place(n), large.clone()))));
    refused(ctx.db.write_atomic(batch).await, ErrorKind::Invalid, "more bytes than allowed")?;
    ensure_eq!(ctx.db.read(&ctx.pkey("p"), Range::all()).await?, [], "the partition");
    Ok(())
}

/// Several batches write at once, each over two partitions. Any two of them share a row, so exactly
/// one batch is applied.
async fn batches_that_share_rows_exclude_each_other(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    let partitions = [["a", "b"], ["b", "c"], ["c", "a"]];
    for round in 0..ctx.reduced_rounds() {
        let write = |task: usize| {
            let ctx = ctx.clone();
            async move {
                let insert = |pkey| (ctx.pkey(pkey), insert(place(round), value(task)));
                let batch = conditionals(partitions[task].map(insert));
                Ok(ctx.db.settled_atomic(batch).await?.is_applied())
            }
        };
        let applied = tasks::all((0..3).map(write)).await?;
        let winners: Vec<usize> = (0..3).filter(|task| applied[*task]).collect();
        ensure_eq!(winners.len(), 1, "the number of winners in round {round}");
        let winner = winners[0];
        for pkey in ["a", "b", "c"] {
            let expected = partitions[winner].contains(&pkey).then(|| value(winner));
            let found = ctx.db.get_linearizable(&ctx.key(pkey, place(round))).await?;
            ensure_eq!(found, expected, "the row in {pkey} that task {winner} won");
        }
    }
    Ok(())
}

/// Many batches are written at once, and every other batch has a condition that fails. A driver may
/// merge batches into one transaction. Still each batch is written in whole or not at all.
async fn concurrent_batches_are_each_written_whole(ctx: &StorageContext) -> Verdict {
    ctx.atomic()?;
    const BATCHES: usize = 64;
    applied(&ctx.db.insert(&ctx.key("standing", "x"), "there").await?, "the insert before")?;
    let write = |n: usize| {
        let ctx = ctx.clone();
        async move {
            let pkeys = ["a", "b", "c"].map(|pkey| ctx.pkey(pkey));
            let mut ops = pkeys.map(|pkey| (pkey, insert(place(n), value(n)))).to_vec();
            if n % 2 == 1 {
                ops.push((ctx.pkey("standing"), insert("x", "new")));
            }
            Ok(ctx.db.settled_atomic(conditionals(ops)).await?)
        }
    };
    let outcomes = tasks::all((0..BATCHES).map(write)).await?;
    for (n, outcome) in outcomes.iter().enumerate() {
        match n % 2 {
            0 => applied(outcome, "a batch without a conflict")?,
            _ => conflicts(outcome, &[(3, Some("there"))], "a batch with a conflict")?,
        }
    }
    for pkey in ["a", "b", "c"] {
        let found = ctx.db.read_linearizable(&ctx.pkey(pkey), Range::all()).await?;
        let expected = (0..BATCHES).step_by(2).map(|n| row(place(n), value(n)));
        ensure!(found.into_iter().eq(expected), "partition {pkey} is not as its batches left it");
    }
    Ok(())
}
