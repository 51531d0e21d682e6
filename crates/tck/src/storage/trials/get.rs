//! `get`, `get_batch` and `get_values`.

use bytes::Bytes;
use istorage::{Key, Order, OrderedPut};

use super::rows::{awkward_keys, place, put, value, value_of};
use crate::{
    storage::{answers::applied, context::StorageContext},
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(get:
    an_absent_row_is_none,
    a_written_row_is_returned,
    another_node_sees_a_written_row,
    an_empty_value_is_not_absent,
    clustering_columns_may_be_empty,
    clustering_columns_may_have_any_bytes,
    partition_keys_may_have_any_bytes,
    values_may_have_any_bytes,
    the_two_parts_of_a_key_are_not_joined,
    values_of_many_sizes_are_returned,
    conditional_rows_are_returned,
    a_batch_keeps_the_order_of_its_keys,
    the_values_of_a_batch_are_those_of_its_rows,
    a_batch_of_neighbours_has_no_rows_between_them,
    a_batch_says_which_rows_hide_ordered_writes,
    an_empty_batch_returns_nothing,
    a_batch_of_thousands_of_keys_is_returned,
    a_batch_of_large_rows_is_returned,
);

async fn an_absent_row_is_none(ctx: &StorageContext) -> Verdict {
    let (absent, there) = (ctx.key("p", "absent"), ctx.key("p", "there"));
    ensure_eq!(ctx.db.get(&absent).await?, None, "a row of a partition that is empty");
    ctx.db.put(&there, "v").await?;
    ensure_eq!(ctx.db.get(&absent).await?, None, "a row beside another");
    ensure_eq!(ctx.db.get_linearizable(&absent).await?, None, "read linearizably");
    Ok(())
}

async fn a_written_row_is_returned(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    for n in 0..20 {
        ctx.db.put(&key, value(n)).await?;
        ensure_eq!(ctx.db.get(&key).await?, Some(value(n)), "the row after write {n}");
    }
    Ok(())
}

async fn another_node_sees_a_written_row(ctx: &StorageContext) -> Verdict {
    let other = ctx.other().await?;
    for n in 0..20 {
        let key = ctx.key("p", place(n));
        ctx.db.put(&key, value(n)).await?;
        ensure_eq!(other.get(&key).await?, Some(value(n)), "the row on another node");
    }
    Ok(())
}

async fn an_empty_value_is_not_absent(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    ctx.db.put(&key, "").await?;
    let empty = Some(Bytes::new());
    ensure_eq!(ctx.db.get(&key).await?, empty, "get of an empty value");
    ensure_eq!(ctx.db.get_batch(std::slice::from_ref(&key)).await?, [empty], "get_batch of one");
    ctx.db.put(&key, "v").await?;
    ctx.db.put(&key, "").await?;
    ensure_eq!(ctx.db.get(&key).await?, Some(Bytes::new()), "a value that became empty");
    Ok(())
}

async fn clustering_columns_may_be_empty(ctx: &StorageContext) -> Verdict {
    let (plain, conditional) = (ctx.key("plain", ""), ctx.key("conditional", ""));
    ensure_eq!(ctx.db.get(&plain).await?, None, "before it is written");
    ctx.db.put(&plain, "v").await?;
    ensure_eq!(ctx.db.get(&plain).await?, Some("v".into()), "a plain row");
    applied(&ctx.db.insert(&conditional, "1").await?, "its insert")?;
    applied(&ctx.db.swap(&conditional, "1", "2").await?, "its swap")?;
    ensure_eq!(ctx.db.get_linearizable(&conditional).await?, Some("2".into()), "a conditional row");
    applied(&ctx.db.delete(&conditional, "2").await?, "its delete")?;
    ensure_eq!(ctx.db.get(&conditional).await?, None, "after its delete");
    Ok(())
}

/// Writes a row with a value of its own at each key, and reads all rows.
async fn each_key_has_its_row(ctx: &StorageContext, keys: Vec<Key>) -> Verdict {
    let rows = keys.iter().enumerate().map(|(n, key)| put(key.clone(), value(n)));
    ctx.db.put_batch(rows.collect()).await?;
    let values = ctx.db.get_batch(&keys).await?;
    ensure_eq!(values.len(), keys.len(), "the number of values");
    for (n, (key, found)) in keys.iter().zip(values).enumerate() {
        ensure_eq!(found, Some(value(n)), "the row at {key:?}");
    }
    for (n, key) in keys.iter().enumerate().step_by(23) {
        ensure_eq!(ctx.db.get(key).await?, Some(value(n)), "the row at {key:?}");
    }
    Ok(())
}

async fn clustering_columns_may_have_any_bytes(ctx: &StorageContext) -> Verdict {
    let keys = awkward_keys().into_iter().map(|ccols| ctx.key("p", ccols));
    each_key_has_its_row(ctx, keys.collect()).await
}

async fn partition_keys_may_have_any_bytes(ctx: &StorageContext) -> Verdict {
    let keys = awkward_keys().into_iter().map(|pkey| ctx.key(pkey, "a"));
    each_key_has_its_row(ctx, keys.collect()).await
}

async fn values_may_have_any_bytes(ctx: &StorageContext) -> Verdict {
    let all: Bytes = (0..=u8::MAX).collect();
    for value in [all, Bytes::from_static(b"\x00"), Bytes::from_static(b"\xff\xff\x00\x00")] {
        let key = ctx.key("p", value.clone());
        ctx.db.put(&key, value.clone()).await?;
        ensure_eq!(ctx.db.get(&key).await?, Some(value), "the value");
    }
    Ok(())
}

async fn the_two_parts_of_a_key_are_not_joined(ctx: &StorageContext) -> Verdict {
    let parts: [(&[u8], &'static [u8]); 8] = [
        (b"a", b"bc"),
        (b"ab", b"c"),
        (b"abc", b""),
        (b"a\x00", b"b"),
        (b"a", b"\x00b"),
        (b"\xff", b"\xff\xff"),
        (b"\xff\xff", b"\xff"),
        (b"\xff\xff\xff", b""),
    ];
    let keys = parts.map(|(pkey, ccols)| ctx.key(pkey, Bytes::from_static(ccols)));
    each_key_has_its_row(ctx, keys.into()).await
}

async fn values_of_many_sizes_are_returned(ctx: &StorageContext) -> Verdict {
    let largest = ctx.capabilities().row.value;
    let sizes = [0, 1, 2, 255, 256, 4_095, 4_096, 65_535, 65_536, 300_000];
    for size in sizes.into_iter().filter(|size| *size <= largest) {
        let key = ctx.key("p", place(size));
        ctx.db.put(&key, value_of(size)).await?;
        ensure_eq!(ctx.db.get(&key).await?, Some(value_of(size)), "a value of {size} bytes");
    }
    Ok(())
}

async fn conditional_rows_are_returned(ctx: &StorageContext) -> Verdict {
    let other = ctx.other().await?;
    for n in 0..10 {
        let key = ctx.key("p", place(n));
        applied(&ctx.db.insert(&key, "1").await?, "the insert")?;
        ensure_eq!(ctx.db.get(&key).await?, Some("1".into()), "after the insert");
        ensure_eq!(other.get(&key).await?, Some("1".into()), "on another node");
        applied(&ctx.db.swap(&key, "1", "2").await?, "the swap")?;
        ensure_eq!(ctx.db.get(&key).await?, Some("2".into()), "after the swap");
        let batch = other.get_batch(std::slice::from_ref(&key)).await?;
        ensure_eq!(batch, [Some(Bytes::from("2"))], "in a batch on another node");
        applied(&ctx.db.delete(&key, "2").await?, "the delete")?;
        ensure_eq!(ctx.db.get(&key).await?, None, "after the delete");
        ensure_eq!(other.get(&key).await?, None, "on another node after the delete");
    }
    Ok(())
}

async fn a_batch_keeps_the_order_of_its_keys(ctx: &StorageContext) -> Verdict {
    let key = |pkey, n| ctx.key(pkey, place(n));
    ctx.db.put_batch((0..10).map(|n| put(key("p", n), value(n))).collect()).await?;
    ctx.db.put_batch((0..10).map(|n| put(key("q", n), value(100 + n))).collect()).await?;
    let asked = [
        (key("p", 7), Some(value(7))),
        (key("absent", 1), None),
        (key("q", 3), Some(value(103))),
        (key("p", 0), Some(value(0))),
        (key("p", 7), Some(value(7))),
        (key("p", 99), None),
        (key("q", 9), Some(value(109))),
        (key("absent", 1), None),
    ];
    let (keys, expected): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    ensure_eq!(ctx.db.get_batch(&keys).await?, expected, "the values");
    Ok(())
}

/// A single row of a partition may be read in another way than several rows.
async fn the_values_of_a_batch_are_those_of_its_rows(ctx: &StorageContext) -> Verdict {
    let key = |pkey: &'static str, n| ctx.key(pkey, place(n));
    let rows = [("alone", 1), ("together", 300)];
    for (pkey, rows) in rows {
        ctx.db.put_batch((0..rows).map(|n| put(key(pkey, n), value(n))).collect()).await?;
    }
    let [empty, conditional, ordered] =
        ["empty", "conditional", "ordered"].map(|row| ctx.key(row, "a"));
    ctx.db.put(&empty, "").await?;
    applied(&ctx.db.insert(&conditional, "v").await?, "the insert")?;
    let order = Order::new(1)?;
    let row = OrderedPut { key: ordered.clone(), value: "v".into(), order, ttl: None };
    ctx.db.put_ordered(vec![row]).await?;
    let mut keys: Vec<Key> = (0..310).rev().map(|n| key("together", n)).collect();
    keys.extend([ordered, key("alone", 1), key("alone", 0), conditional, key("alone", 0), empty]);
    let values = ctx.db.get_values(&keys).await?;
    ensure_eq!(values, ctx.db.get_batch(&keys).await?, "the values");
    ensure_eq!(values.iter().flatten().count(), 305, "the number of rows that exist");
    ensure_eq!(ctx.db.get_values(&[]).await?, Vec::<Option<Bytes>>::new(), "without keys");
    Ok(())
}

/// Neighbours may be read as a range, which may have other rows, and gaps.
async fn a_batch_of_neighbours_has_no_rows_between_them(ctx: &StorageContext) -> Verdict {
    let neighbour = |n: u16| ctx.key("p", n.to_be_bytes().to_vec());
    let between = |n: u16| ctx.key("p", [&n.to_be_bytes()[..], b"between"].concat());
    let is_there = |n: &u16| n % 50 != 7;
    let rows = (0..200).filter(is_there).map(|n| put(neighbour(n), value(n.into())));
    let others = (0..200).map(|n| put(between(n), "other"));
    ctx.db.put_batch(rows.chain(others).collect()).await?;
    let keys: Vec<Key> = (3..=190).map(neighbour).collect();
    let expected: Vec<_> = (3..=190).map(|n| is_there(&n).then(|| value(n.into()))).collect();
    ensure_eq!(ctx.db.get_values(&keys).await?, expected, "the values");
    ensure_eq!(ctx.db.get_batch(&keys).await?, expected, "the rows");
    Ok(())
}

/// A single row of a partition may be read in another way than several rows.
async fn a_batch_says_which_rows_hide_ordered_writes(ctx: &StorageContext) -> Verdict {
    for pkey in ["alone", "together"] {
        let key = |row: &'static str| match pkey {
            "alone" => ctx.key(row, "a"),
            _ => ctx.key(pkey, row),
        };
        let names = ["plain", "conditional", "first", "last", "swapped", "absent"];
        let [plain, conditional, first, last, swapped, absent] = names.map(key);
        ctx.db.put(&plain, "v").await?;
        applied(&ctx.db.insert(&conditional, "v").await?, "the insert")?;
        let order = Order::new(Order::MAX)?;
        let put = |key: &Key, order| {
            vec![OrderedPut { key: key.clone(), value: "v".into(), order, ttl: None }]
        };
        ctx.db.put_ordered(put(&first, order.first_wins())).await?;
        ctx.db.put_ordered(put(&last, order)).await?;
        ctx.db.put_ordered(put(&swapped, order)).await?;
        applied(&ctx.db.swap(&swapped, "v", "v").await?, "the swap")?;
        let keys = [plain, conditional, first, last, swapped, absent];
        let found = ctx.db.found(&keys).await?;
        let hides = found.into_iter().map(|row| row.map(|row| row.hides_ordered));
        let expected = [Some(true), Some(true), Some(false), Some(false), Some(true), None];
        ensure_eq!(hides.collect::<Vec<_>>(), expected, "whether the rows hide ordered writes");
    }
    Ok(())
}

async fn an_empty_batch_returns_nothing(ctx: &StorageContext) -> Verdict {
    ensure_eq!(ctx.db.get_batch(&[]).await?, Vec::<Option<Bytes>>::new(), "the values");
    Ok(())
}

/// Every other key has a row.
async fn a_batch_of_thousands_of_keys_is_returned(ctx: &StorageContext) -> Verdict {
    const KEYS: usize = 2_500;
    let key = |n: usize| ctx.key(place(n % 50), place(n));
    let rows = (0..KEYS).step_by(2).map(|n| put(key(n), value(n)));
    ctx.db.put_batch(rows.collect()).await?;
    let keys: Vec<Key> = (0..KEYS).rev().map(key).collect();
    let values = ctx.db.get_batch(&keys).await?;
    ensure_eq!(values.len(), KEYS, "the number of values");
    for (n, found) in (0..KEYS).rev().zip(values) {
        let expected = (n % 2 == 0).then(|| value(n));
        ensure_eq!(found, expected, "row {n}");
    }
    Ok(())
}

/// The rows have more bytes than a server answers at once.
async fn a_batch_of_large_rows_is_returned(ctx: &StorageContext) -> Verdict {
    const ROWS: usize = 60;
    let large = value_of(ctx.capabilities().row.value.min(300_000));
    let keys: Vec<Key> = (0..ROWS).map(|n| ctx.key(place(n % 7), place(n))).collect();
    let rows = keys.iter().map(|key| put(key.clone(), large.clone()));
    ctx.db.put_batch(rows.collect()).await?;
    let values = ctx.db.get_batch(&keys).await?;
    ensure_eq!(values.len(), ROWS, "the number of values");
    ensure!(values.iter().all(|found| found.as_ref() == Some(&large)), "a large row is not there");
    Ok(())
}
