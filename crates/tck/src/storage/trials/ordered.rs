//! `put_ordered`: the write with the higher order stays, in any order of arrival.

use istorage::{Key, Order, OrderedPut, Range};

use super::rows::{ordered, place, row, value};
use crate::{
    storage::{
        answers::{applied, conflicts},
        client::TrialClient,
        context::StorageContext,
    },
    trial::{Trial, Verdict, ensure_eq, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(ordered:
    a_row_is_written,
    the_highest_order_stays_in_any_order_of_arrival,
    the_highest_order_stays_for_nodes_with_clocks_5_s_apart,
    orders_that_are_far_apart_are_compared,
    the_lowest_order_of_first_stays_in_any_order_of_arrival,
    every_order_of_last_replaces_every_order_of_first,
    the_bands_hold_for_nodes_with_clocks_5_s_apart,
    a_plain_row_hides_every_ordered_write,
    a_conditional_row_hides_every_ordered_write,
    a_conditional_write_takes_an_ordered_row_out_of_the_bands,
    an_equal_order_with_equal_bytes_succeeds,
    the_highest_order_of_a_repeated_key_counts,
    a_superseded_row_does_not_stop_the_other_rows,
    an_empty_batch_succeeds,
    thousands_of_rows_are_written,
    racing_writers_leave_the_highest_order,
    linearizable_reads_see_an_ordered_row,
);

async fn a_row_is_written(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    ctx.db.put_ordered(vec![ordered(key.clone(), "v", 7)?]).await?;
    ensure_eq!(ctx.db.get(&key).await?, Some("v".into()), "the row");
    let found = ctx.db.read(&key.pkey, Range::all()).await?;
    ensure_eq!(found, [row("a", "v")], "the partition");
    ensure_eq!(ctx.db.query_ttl(&key).await?, Some(None), "its TTL");
    Ok(())
}

/// All possible orders of arrival of four writes.
fn permutations() -> Vec<[u64; 4]> {
    let mut all = Vec::new();
    for a in 1..=4 {
        for b in (1..=4).filter(|b| *b != a) {
            for c in (1..=4).filter(|c| ![a, b].contains(c)) {
                all.push([a, b, c, 10 - a - b - c]);
            }
        }
    }
    all
}

/// Writes each permutation to a row of its own, step by step, and reads the rows after every step.
/// The numbers from 1 to 4 have orders that ascend.
async fn permute(
    ctx: &StorageContext,
    nodes: [&TrialClient; 2],
    order_of: impl Fn(u64) -> u64,
) -> Verdict {
    permute_orders(ctx, nodes, |number| Ok(Order::new(order_of(number))?)).await
}

async fn permute_orders(
    ctx: &StorageContext,
    nodes: [&TrialClient; 2],
    order_of: impl Fn(u64) -> Verdict<Order>,
) -> Verdict {
    let permutations = permutations();
    let keys: Vec<Key> =
        (0..permutations.len()).map(|n| ctx.key(format!("p{}", n % 5), place(n))).collect();
    for step in 0..4 {
        let mut rows = Vec::new();
        for (key, permutation) in keys.iter().zip(&permutations) {
            let order = order_of(permutation[step])?;
            let value = format!("order {}", order.rank()).into();
            rows.push(OrderedPut { key: key.clone(), value, order, ttl: None });
        }
        let (by, reader) = (nodes[step % 2], nodes[(step + 1) % 2]);
        by.put_ordered(rows).await?;
        let found = reader.get_batch(&keys).await?;
        for (permutation, found) in permutations.iter().zip(found) {
            let highest = permutation[..=step].iter().copied().max().unwrap_or_default();
            let expected = format!("order {}", order_of(highest)?.rank());
            ensure_eq!(found, Some(expected.into()), "after {:?}", &permutation[..=step]);
        }
    }
    Ok(())
}

async fn the_highest_order_stays_in_any_order_of_arrival(ctx: &StorageContext) -> Verdict {
    permute(ctx, [&ctx.db, &ctx.db], |order| order).await
}

async fn the_highest_order_stays_for_nodes_with_clocks_5_s_apart(ctx: &StorageContext) -> Verdict {
    let other = ctx.other().await?;
    permute(ctx, [&ctx.db, &other], |order| order).await?;
    permute(ctx, [&other, &ctx.db], |order| order + 4).await
}

/// Small orders, orders like those of a clock, and the highest order.
async fn orders_that_are_far_apart_are_compared(ctx: &StorageContext) -> Verdict {
    let orders = [1, 2, 1 << 32, (1 << 61) + 1, Order::MAX];
    let order_of = |n: u64| orders[n as usize];
    permute(ctx, [&ctx.db, &ctx.db], order_of).await?;
    let key = ctx.key("first", "a");
    for order in [1, 2, 2_000_000_000_000_000] {
        ctx.db.put_ordered(vec![ordered(key.clone(), value(order as usize), order)?]).await?;
        let found = ctx.db.get(&key).await?;
        ensure_eq!(found, Some(value(order as usize)), "after order {order}");
    }
    Ok(())
}

async fn the_lowest_order_of_first_stays_in_any_order_of_arrival(ctx: &StorageContext) -> Verdict {
    let numbers = [Order::MAX, 1 << 61, 1 << 32, 1];
    let order_of = |n: u64| Ok(Order::new(numbers[n as usize - 1])?.first_wins());
    permute_orders(ctx, [&ctx.db, &ctx.db], order_of).await
}

/// An order of last that is lower than all numbers of first, and one that is higher.
async fn every_order_of_last_replaces_every_order_of_first(ctx: &StorageContext) -> Verdict {
    permute_orders(ctx, [&ctx.db, &ctx.db], in_both_bands).await
}

fn in_both_bands(n: u64) -> Verdict<Order> {
    Ok(match n {
        1 => Order::new(1 << 40)?.first_wins(),
        2 => Order::new(7)?.first_wins(),
        3 => Order::new(1)?,
        _ => Order::new(1 << 41)?,
    })
}

async fn the_bands_hold_for_nodes_with_clocks_5_s_apart(ctx: &StorageContext) -> Verdict {
    let other = ctx.other().await?;
    permute_orders(ctx, [&ctx.db, &other], in_both_bands).await
}

/// Ordered writes of all kinds leave the row as it is.
async fn hides_ordered_writes(ctx: &StorageContext, key: &Key, value: &'static str) -> Verdict {
    let other = ctx.other().await?;
    let most = Order::new(Order::MAX)?;
    for order in [most.first_wins(), Order::new(1)?.first_wins(), Order::new(1)?, most] {
        let put = OrderedPut { key: key.clone(), value: "ordered".into(), order, ttl: None };
        ctx.db.put_ordered(vec![put]).await?;
        ensure_eq!(ctx.db.get(key).await?, Some(value.into()), "after an ordered write");
        ensure_eq!(other.get(key).await?, Some(value.into()), "on another node");
    }
    Ok(())
}

async fn a_plain_row_hides_every_ordered_write(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "plain");
    ctx.db.put(&key, "plain").await?;
    hides_ordered_writes(ctx, &key, "plain").await
}

async fn a_conditional_row_hides_every_ordered_write(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "conditional");
    applied(&ctx.db.insert(&key, "conditional").await?, "the insert")?;
    hides_ordered_writes(ctx, &key, "conditional").await
}

async fn a_conditional_write_takes_an_ordered_row_out_of_the_bands(
    ctx: &StorageContext,
) -> Verdict {
    for order in [Order::new(5)?.first_wins(), Order::new(5)?, Order::new(Order::MAX)?] {
        let key = ctx.key("p", format!("{}", order.rank()));
        let put = OrderedPut { key: key.clone(), value: "ordered".into(), order, ttl: None };
        ctx.db.put_ordered(vec![put]).await?;
        let refused = ctx.db.insert(&key, "conditional").await?;
        conflicts(&refused, &[(0, Some("ordered"))], "an insert over an ordered row")?;
        applied(&ctx.db.swap(&key, "ordered", "conditional").await?, "the swap")?;
        hides_ordered_writes(ctx, &key, "conditional").await?;
        applied(&ctx.db.delete(&key, "conditional").await?, "the delete")?;
        ensure_eq!(ctx.db.get(&key).await?, None, "after the delete");
        applied(&ctx.db.insert(&key, "again").await?, "an insert after the delete")?;
    }
    Ok(())
}

async fn an_equal_order_with_equal_bytes_succeeds(ctx: &StorageContext) -> Verdict {
    let (other, key) = (ctx.other().await?, ctx.key("p", "a"));
    for db in [&ctx.db, &other, &ctx.db] {
        db.put_ordered(vec![ordered(key.clone(), "same", 5)?]).await?;
        ensure_eq!(db.get(&key).await?, Some("same".into()), "the row");
    }
    ctx.db.put_ordered(vec![ordered(key.clone(), "lower", 4)?]).await?;
    ensure_eq!(ctx.db.get(&key).await?, Some("same".into()), "after a lower order");
    Ok(())
}

async fn the_highest_order_of_a_repeated_key_counts(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "twice");
    let rows = [(3, "3"), (9, "9"), (5, "5")];
    let rows = rows.map(|(order, value)| ordered(key.clone(), value, order));
    ctx.db.put_ordered(rows.into_iter().collect::<Verdict<_>>()?).await?;
    ensure_eq!(ctx.db.get(&key).await?, Some("9".into()), "the row");
    Ok(())
}

async fn a_superseded_row_does_not_stop_the_other_rows(ctx: &StorageContext) -> Verdict {
    let keys = [("p", "a"), ("p", "b"), ("p", "c"), ("q", "a")].map(|(p, c)| ctx.key(p, c));
    ctx.db.put_ordered(vec![ordered(keys[1].clone(), "high", 100)?]).await?;
    let rows = keys.iter().map(|key| ordered(key.clone(), "low", 10));
    ctx.db.put_ordered(rows.collect::<Verdict<_>>()?).await?;
    let expected = ["low", "high", "low", "low"].map(|value| Some(value.into()));
    ensure_eq!(ctx.db.get_batch(&keys).await?, expected, "the rows");
    Ok(())
}

async fn an_empty_batch_succeeds(ctx: &StorageContext) -> Verdict {
    ctx.db.put_ordered(Vec::new()).await?;
    Ok(())
}

/// The batch has more rows than fit into a request, in one partition and in many partitions. Then
/// half of the rows are written again with other orders.
async fn thousands_of_rows_are_written(ctx: &StorageContext) -> Verdict {
    const ROWS: usize = 3_000;
    let key = |n: usize| match n % 2 {
        0 => ctx.key("one", place(n)),
        _ => ctx.key(place(n % 100), place(n)),
    };
    let rows = (0..ROWS).map(|n| ordered(key(n), value(n), 1_000));
    ctx.db.put_ordered(rows.collect::<Verdict<_>>()?).await?;
    let again = |n: usize| {
        let order = if n.is_multiple_of(3) { 1_001 } else { 999 };
        ordered(key(n), format!("again {n}"), order)
    };
    ctx.db.put_ordered((0..ROWS / 2).map(again).collect::<Verdict<_>>()?).await?;
    let keys: Vec<Key> = (0..ROWS).map(key).collect();
    for (n, found) in ctx.db.get_batch(&keys).await?.into_iter().enumerate() {
        let newer = n < ROWS / 2 && n.is_multiple_of(3);
        let expected = if newer { format!("again {n}").into() } else { value(n) };
        ensure_eq!(found, Some(expected), "row {n}");
    }
    Ok(())
}

async fn racing_writers_leave_the_highest_order(ctx: &StorageContext) -> Verdict {
    const WRITERS: u64 = 4;
    const ROWS: usize = 5;
    let (other, writes) = (ctx.other().await?, ctx.reduced_rounds() as u64 / 2);
    let write = |writer: u64| {
        let (ctx, other) = (ctx.clone(), other.clone());
        async move {
            let db = if writer.is_multiple_of(2) { &ctx.db } else { &other };
            for n in 1..=writes {
                let order = n * WRITERS + writer;
                let row = |row| ordered(ctx.key("p", place(row)), value(order as usize), order);
                let rows = (0..ROWS).map(row).collect::<Verdict<Vec<OrderedPut>>>()?;
                db.put_ordered(rows).await?;
            }
            Ok(())
        }
    };
    tasks::all((0..WRITERS).map(write)).await?;
    let highest = value((writes * WRITERS + WRITERS - 1) as usize);
    let expected: Vec<_> = (0..ROWS).map(|n| row(place(n), highest.clone())).collect();
    ensure_eq!(ctx.db.read(&ctx.pkey("p"), Range::all()).await?, expected, "the rows");
    ensure_eq!(other.read(&ctx.pkey("p"), Range::all()).await?, expected, "on another node");
    Ok(())
}

/// Rows of different kinds may be in one partition.
async fn linearizable_reads_see_an_ordered_row(ctx: &StorageContext) -> Verdict {
    let (one, conditional) = (ctx.key("p", "a"), ctx.key("p", "b"));
    ctx.db.put_ordered(vec![ordered(one.clone(), "ordered", 3)?]).await?;
    applied(&ctx.db.insert(&conditional, "conditional").await?, "the insert")?;
    ctx.db.put_ordered(vec![ordered(one.clone(), "late", 2)?]).await?;
    ensure_eq!(ctx.db.get_linearizable(&one).await?, Some("ordered".into()), "the ordered row");
    let found = ctx.db.read_linearizable(&one.pkey, Range::all()).await?;
    ensure_eq!(found, [row("a", "ordered"), row("b", "conditional")], "the partition");
    Ok(())
}
