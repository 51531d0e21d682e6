//! The largest sizes that the capabilities promise, and one byte or row beyond: the call is
//! `Invalid`, and nothing is written.

use std::time::Duration;

use bytes::Bytes;
use istorage::{AtomicBatch, ErrorKind, Key, Order, OrderedPut, Range, RowLimits, TTL_MAX};

use super::rows::{insert, insert_for, ordered, put, row, swap, value_of};
use crate::{
    storage::{
        answers::{applied, refused},
        context::StorageContext,
    },
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(limits:
    the_largest_value_is_stored,
    the_longest_keys_are_stored,
    the_longest_keys_with_the_largest_value_are_stored,
    the_limits_hold_for_ordered_rows,
    the_limits_hold_for_conditional_rows,
    a_value_beyond_the_largest_is_invalid,
    keys_beyond_the_longest_are_invalid,
    an_empty_partition_key_is_invalid,
    an_invalid_row_stops_the_others_of_its_batch,
    a_ttl_of_zero_or_beyond_the_longest_is_invalid,
    orders_outside_the_bounds_are_invalid,
);

/// A partition key of exactly this length that no other trial uses.
fn pkey_of(ctx: &StorageContext, name: u8, len: usize) -> Bytes {
    let prefix = ctx.pkey([name]);
    [&prefix[..], &vec![0xff; len - prefix.len()]].concat().into()
}

fn ccols_of(len: usize) -> Bytes {
    vec![0xff; len].into()
}

/// A plain row with parts of these sizes can be written and read.
async fn takes(ctx: &StorageContext, name: u8, sizes: RowLimits) -> Verdict {
    let key = Key::new(pkey_of(ctx, name, sizes.pkey), ccols_of(sizes.ccols));
    let value = value_of(sizes.value);
    ctx.db.put(&key, value.clone()).await?;
    let found = ctx.db.get(&key).await?;
    ensure!(found.as_ref() == Some(&value), "get does not find the row of {sizes:?}");
    let found = ctx.db.get_batch(std::slice::from_ref(&key)).await?;
    ensure!(found == [Some(value.clone())], "get_batch does not find the row of {sizes:?}");
    for range in [Range::all(), Range::only(&key.ccols)] {
        let found = ctx.db.read(&key.pkey, range).await?;
        let expected = [row(key.ccols.clone(), value.clone())];
        ensure!(found == expected, "read does not find the row of {sizes:?}");
    }
    Ok(())
}

async fn the_largest_value_is_stored(ctx: &StorageContext) -> Verdict {
    let value = ctx.capabilities().row.value;
    takes(ctx, 0, RowLimits { pkey: 8, ccols: 1, value }).await
}

async fn the_longest_keys_are_stored(ctx: &StorageContext) -> Verdict {
    let RowLimits { pkey, ccols, .. } = ctx.capabilities().row;
    takes(ctx, 0, RowLimits { pkey, ccols: 1, value: 1 }).await?;
    takes(ctx, 1, RowLimits { pkey: 8, ccols, value: 1 }).await?;
    takes(ctx, 2, RowLimits { pkey, ccols, value: 1 }).await?;
    takes(ctx, 3, RowLimits { pkey, ccols, value: 0 }).await
}

async fn the_longest_keys_with_the_largest_value_are_stored(ctx: &StorageContext) -> Verdict {
    let largest = ctx.capabilities().row;
    takes(ctx, 0, largest).await
}

async fn the_limits_hold_for_ordered_rows(ctx: &StorageContext) -> Verdict {
    let sizes = ctx.capabilities().row;
    let key = Key::new(pkey_of(ctx, 0, sizes.pkey), ccols_of(sizes.ccols));
    let value = value_of(sizes.value);
    ctx.db.put_ordered(vec![ordered(key.clone(), value.clone(), 2)?]).await?;
    ctx.db.put_ordered(vec![ordered(key.clone(), "lower", 1)?]).await?;
    ensure!(ctx.db.get(&key).await? == Some(value), "get does not find the row of {sizes:?}");
    Ok(())
}

async fn the_limits_hold_for_conditional_rows(ctx: &StorageContext) -> Verdict {
    let limits = ctx.capabilities();
    let key = Key::new(pkey_of(ctx, 0, limits.row.pkey), ccols_of(limits.row.ccols));
    let value = value_of(limits.row.value);
    applied(&ctx.db.insert(&key, value.clone()).await?, "the insert of the largest row")?;
    let found = ctx.db.get_linearizable(&key).await?;
    ensure!(found.as_ref() == Some(&value), "get does not find the largest row");
    applied(&ctx.db.swap(&key, value, "small").await?, "the swap of the largest row")?;
    applied(&ctx.db.delete(&key, "small").await?, "the delete")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, None, "the row after its delete");
    Ok(())
}

/// Every call that writes refuses a row with this key and value.
async fn refuses(ctx: &StorageContext, key: &Key, value: &Bytes, what: &str) -> Verdict {
    let db = &ctx.db;
    refused(db.put(key, value.clone()).await, ErrorKind::Invalid, &format!("put of {what}"))?;
    let rows = vec![ordered(key.clone(), value.clone(), 1)?];
    refused(db.put_ordered(rows).await, ErrorKind::Invalid, &format!("put_ordered of {what}"))?;
    let answer = db.insert(key, value.clone()).await;
    refused(answer, ErrorKind::Invalid, &format!("an insert of {what}"))?;
    let ops = vec![swap(key.ccols.clone(), "old", value.clone())];
    let answer = db.write_if(&key.pkey, ops).await;
    refused(answer, ErrorKind::Invalid, &format!("a swap to {what}"))?;
    let puts = vec![put(key.clone(), value.clone())];
    let answer = db.write_atomic(AtomicBatch { puts, ..AtomicBatch::default() }).await;
    refused(answer, ErrorKind::Invalid, &format!("write_atomic of {what}"))
}

async fn a_value_beyond_the_largest_is_invalid(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    let value = vec![7; ctx.capabilities().row.value + 1].into();
    refuses(ctx, &key, &value, "a value that is one byte too large").await?;
    ensure_eq!(ctx.db.get(&key).await?, None, "the row");
    Ok(())
}

async fn keys_beyond_the_longest_are_invalid(ctx: &StorageContext) -> Verdict {
    let limits = ctx.capabilities().row;
    let long = ctx.key("p", ccols_of(limits.ccols + 1));
    refuses(ctx, &long, &"v".into(), "a clustering key that is one byte too long").await?;
    refused(ctx.db.get(&long).await, ErrorKind::Invalid, "get of long clustering columns")?;
    ensure_eq!(ctx.db.read(&long.pkey, Range::all()).await?, [], "the partition");

    let long = Key::new(pkey_of(ctx, 0, limits.pkey + 1), "a");
    refuses(ctx, &long, &"v".into(), "a partition key that is one byte too long").await?;
    let answer = ctx.db.get_batch(std::slice::from_ref(&long)).await;
    refused(answer, ErrorKind::Invalid, "get_batch of a long partition key")?;
    let answer = ctx.db.read(&long.pkey, Range::all()).await;
    refused(answer, ErrorKind::Invalid, "read of a long partition key")
}

async fn an_empty_partition_key_is_invalid(ctx: &StorageContext) -> Verdict {
    let key = Key::new("", "a");
    refuses(ctx, &key, &"v".into(), "an empty partition key").await?;
    refused(ctx.db.get(&key).await, ErrorKind::Invalid, "get")?;
    refused(ctx.db.get_linearizable(&key).await, ErrorKind::Invalid, "get, linearizable")?;
    let keys = [ctx.key("p", "a"), key.clone()];
    refused(ctx.db.get_batch(&keys).await, ErrorKind::Invalid, "get_batch")?;
    let answer = ctx.db.read(&key.pkey, Range::all()).await;
    refused(answer, ErrorKind::Invalid, "read")?;
    let answer = ctx.db.ttl_read(&key.pkey, Range::all()).await;
    refused(answer, ErrorKind::Invalid, "ttl_read")
}

async fn an_invalid_row_stops_the_others_of_its_batch(ctx: &StorageContext) -> Verdict {
    let too_large: Bytes = vec![7; ctx.capabilities().row.value + 1].into();
    let key = |ccols| ctx.key("p", ccols);
    let rows = vec![put(key("a"), "v"), put(key("b"), too_large.clone()), put(key("c"), "v")];
    refused(ctx.db.put_batch(rows).await, ErrorKind::Invalid, "put_batch")?;
    let rows = vec![ordered(key("a"), "v", 1)?, ordered(key("b"), too_large.clone(), 1)?];
    refused(ctx.db.put_ordered(rows).await, ErrorKind::Invalid, "put_ordered")?;
    let ops = vec![insert("a", "v"), insert("b", too_large)];
    refused(ctx.db.write_if(&ctx.pkey("p"), ops).await, ErrorKind::Invalid, "write_if")?;
    ensure_eq!(ctx.db.read(&ctx.pkey("p"), Range::all()).await?, [], "the partition");
    Ok(())
}

async fn a_ttl_of_zero_or_beyond_the_longest_is_invalid(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    for ttl in [Duration::ZERO, TTL_MAX + Duration::from_nanos(1)] {
        let answer = ctx.db.insert_for(&key, "v", ttl).await;
        refused(answer, ErrorKind::Invalid, &format!("an insert for {ttl:?}"))?;
        let answer = ctx.db.swap_for(&key, "v", "w", ttl).await;
        refused(answer, ErrorKind::Invalid, &format!("a swap for {ttl:?}"))?;
        let ops = vec![insert("b", "v"), insert_for("c", "v", ttl)];
        let answer = ctx.db.write_if(&key.pkey, ops).await;
        refused(answer, ErrorKind::Invalid, &format!("an insert among others for {ttl:?}"))?;
        let row = OrderedPut { ttl: Some(ttl), ..ordered(key.clone(), "v", 1)? };
        let answer = ctx.db.put_ordered(vec![row]).await;
        refused(answer, ErrorKind::Invalid, &format!("an ordered write for {ttl:?}"))?;
    }
    ensure_eq!(ctx.db.read(&key.pkey, Range::all()).await?, [], "the partition");
    Ok(())
}

async fn orders_outside_the_bounds_are_invalid(ctx: &StorageContext) -> Verdict {
    for order in [0, Order::MAX + 1, u64::MAX] {
        refused(Order::new(order), ErrorKind::Invalid, &format!("order {order}"))?;
    }
    let key = ctx.key("p", "a");
    for order in [1, Order::MAX] {
        let row = ordered(key.clone(), format!("{order}"), order)?;
        ctx.db.storage.put_ordered(vec![row], ctx.db.soon()).await?;
        ensure_eq!(ctx.db.get(&key).await?, Some(format!("{order}").into()), "after {order}");
    }
    Ok(())
}
