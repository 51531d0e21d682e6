//! `partitions`: the keys of the partitions of a keyspace.

use bytes::Bytes;
use trialkit::{Trial, Verdict, ensure, ensure_eq, trials};

use super::rows::{place, put};
use crate::context::StorageContext;

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(partitions:
    each_partition_is_listed_once,
    only_keys_with_the_prefix_are_listed,
    keys_of_all_lengths_are_listed,
    many_partitions_are_listed,
    all_partitions_are_listed_without_a_prefix,
    nothing_is_listed_where_nothing_was_written,
);

/// Writes rows to each of the partitions.
async fn fill(ctx: &StorageContext, pkeys: &[Bytes], rows: usize) -> Verdict {
    let puts = pkeys
        .iter()
        .flat_map(|pkey| (0..rows).map(|n| put(istorage::Key::new(pkey.clone(), place(n)), "v")));
    let puts: Vec<_> = puts.collect();
    for puts in puts.chunks(500) {
        ctx.db.put_batch(puts.to_vec()).await?;
    }
    Ok(())
}

/// The keys with these ends, sorted.
fn sorted(ctx: &StorageContext, ends: &[&[u8]]) -> Vec<Bytes> {
    let mut pkeys: Vec<Bytes> = ends.iter().map(|end| ctx.pkey(end)).collect();
    pkeys.sort_unstable();
    pkeys
}

async fn each_partition_is_listed_once(ctx: &StorageContext) -> Verdict {
    let pkeys = sorted(ctx, &[b"a", b"b", b"c"]);
    fill(ctx, &pkeys, 1_500).await?;
    ensure_eq!(ctx.db.partitions(&ctx.pkey("")).await?, pkeys, "the partitions");
    Ok(())
}

async fn only_keys_with_the_prefix_are_listed(ctx: &StorageContext) -> Verdict {
    let pkeys = sorted(ctx, &[b"a", b"b", b"ba", b"bb\xff", b"bc", b"c", b"cb"]);
    fill(ctx, &pkeys, 1).await?;
    let expected = sorted(ctx, &[b"b", b"ba", b"bb\xff", b"bc"]);
    ensure_eq!(ctx.db.partitions(&ctx.pkey("b")).await?, expected, "the keys with `b`");
    ensure_eq!(
        ctx.db.partitions(&ctx.pkey("bb\x7f")).await?,
        Vec::<Bytes>::new(),
        "the keys with a longer prefix"
    );
    Ok(())
}

async fn keys_of_all_lengths_are_listed(ctx: &StorageContext) -> Verdict {
    let longest = ctx.capabilities().row.pkey - ctx.pkey("").len();
    let long = [vec![b'x'; longest], vec![0xff; longest], vec![0xff; longest.min(255)]];
    let mut ends: Vec<&[u8]> = vec![b"", b"\0", b"\0\0", b"x", b"\xff", b"\xff\xff"];
    ends.extend(long.iter().map(Vec::as_slice));
    ends.sort_unstable();
    ends.dedup();
    let pkeys = sorted(ctx, &ends);
    fill(ctx, &pkeys, 1).await?;
    ensure_eq!(ctx.db.partitions(&ctx.pkey("")).await?, pkeys, "the partitions");
    ensure_eq!(ctx.db.partitions(&ctx.pkey("\0")).await?.len(), 2, "the keys with a zero");
    let beyond = vec![0xff; ctx.capabilities().row.pkey + 1];
    ensure_eq!(
        ctx.db.partitions(&beyond).await?,
        Vec::<Bytes>::new(),
        "the keys that are too long"
    );
    Ok(())
}

async fn many_partitions_are_listed(ctx: &StorageContext) -> Verdict {
    let pkeys: Vec<Bytes> = (0..3_000).map(|n| ctx.pkey(place(n))).collect();
    fill(ctx, &pkeys, 1).await?;
    let found = ctx.db.partitions(&ctx.pkey("")).await?;
    ensure_eq!(found.len(), pkeys.len(), "the number of partitions");
    ensure!(found == pkeys, "the partitions are others");
    Ok(())
}

async fn all_partitions_are_listed_without_a_prefix(ctx: &StorageContext) -> Verdict {
    let pkeys = sorted(ctx, &[b"a", b"b"]);
    fill(ctx, &pkeys, 2).await?;
    // Other trials write at the same time.
    let found = ctx.db.partitions(b"").await?;
    for pkey in &pkeys {
        let times = found.iter().filter(|found| *found == pkey).count();
        ensure_eq!(times, 1, "the times that {pkey:?} is listed");
    }
    Ok(())
}

async fn nothing_is_listed_where_nothing_was_written(ctx: &StorageContext) -> Verdict {
    fill(ctx, &[ctx.pkey("some")], 1).await?;
    ensure_eq!(ctx.db.partitions(&ctx.pkey("none")).await?, Vec::<Bytes>::new(), "the partitions");
    let keyspace = ctx.new_keyspace()?;
    ctx.driver().create(&keyspace, ctx.within_setup()).await?;
    let empty = ctx.open(ctx.driver(), &keyspace).await?;
    ensure_eq!(
        empty.partitions(b"").await?,
        Vec::<Bytes>::new(),
        "the partitions of an empty keyspace"
    );
    Ok(())
}
