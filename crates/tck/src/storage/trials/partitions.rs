//! `partitions`: the keys of the partitions of a keyspace.

use bytes::Bytes;

use super::rows::{place, put};
use crate::{
    storage::{client::TrialClient, context::StorageContext},
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(partitions:
    each_partition_is_listed_once,
    only_keys_with_the_prefix_are_listed,
    keys_of_all_lengths_are_listed,
    many_partitions_are_listed,
    all_partitions_are_listed_without_a_prefix,
    nothing_is_listed_where_nothing_was_written,
);

/// Makes a keyspace for a trial. A storage may read all rows of a keyspace to list its partitions,
/// and other trials write very many rows to the shared keyspace.
async fn own_keyspace(ctx: &StorageContext) -> Verdict<TrialClient> {
    let keyspace = ctx.new_keyspace()?;
    ctx.driver().create(&keyspace, ctx.within_setup()).await?;
    ctx.open(ctx.driver(), &keyspace).await
}

/// Writes rows to each of the partitions.
async fn fill(db: &TrialClient, pkeys: &[Bytes], rows: usize) -> Verdict {
    let puts = pkeys
        .iter()
        .flat_map(|pkey| (0..rows).map(|n| put(istorage::Key::new(pkey.clone(), place(n)), "v")));
    let puts: Vec<_> = puts.collect();
    for puts in puts.chunks(100) {
        db.put_batch(puts.to_vec()).await?;
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
    let db = own_keyspace(ctx).await?;
    let pkeys = sorted(ctx, &[b"a", b"b", b"c"]);
    fill(&db, &pkeys, 500).await?;
    ensure_eq!(db.partitions(&ctx.pkey("")).await?, pkeys, "the partitions");
    Ok(())
}

async fn only_keys_with_the_prefix_are_listed(ctx: &StorageContext) -> Verdict {
    let db = own_keyspace(ctx).await?;
    let pkeys = sorted(ctx, &[b"a", b"b", b"ba", b"bb\xff", b"bc", b"c", b"cb"]);
    fill(&db, &pkeys, 1).await?;
    let expected = sorted(ctx, &[b"b", b"ba", b"bb\xff", b"bc"]);
    ensure_eq!(db.partitions(&ctx.pkey("b")).await?, expected, "the keys with `b`");
    ensure_eq!(
        db.partitions(&ctx.pkey("bb\x7f")).await?,
        Vec::<Bytes>::new(),
        "the keys with a longer prefix"
    );
    Ok(())
}

async fn keys_of_all_lengths_are_listed(ctx: &StorageContext) -> Verdict {
    let db = own_keyspace(ctx).await?;
    let longest = ctx.capabilities().row.pkey - ctx.pkey("").len();
    let long = [vec![b'x'; longest], vec![0xff; longest], vec![0xff; longest.min(255)]];
    let mut ends: Vec<&[u8]> = vec![b"", b"\0", b"\0\0", b"x", b"\xff", b"\xff\xff"];
    ends.extend(long.iter().map(Vec::as_slice));
    ends.sort_unstable();
    ends.dedup();
    let pkeys = sorted(ctx, &ends);
    fill(&db, &pkeys, 1).await?;
    ensure_eq!(db.partitions(&ctx.pkey("")).await?, pkeys, "the partitions");
    ensure_eq!(db.partitions(&ctx.pkey("\0")).await?.len(), 2, "the keys with a zero");
    let beyond = vec![0xff; ctx.capabilities().row.pkey + 1];
    ensure_eq!(db.partitions(&beyond).await?, Vec::<Bytes>::new(), "the keys that are too long");
    Ok(())
}

async fn many_partitions_are_listed(ctx: &StorageContext) -> Verdict {
    let db = own_keyspace(ctx).await?;
    let pkeys: Vec<Bytes> = (0..1_500).map(|n| ctx.pkey(place(n))).collect();
    fill(&db, &pkeys, 1).await?;
    let found = db.partitions(&ctx.pkey("")).await?;
    ensure_eq!(found.len(), pkeys.len(), "the number of partitions");
    ensure!(found == pkeys, "the partitions are others");
    Ok(())
}

async fn all_partitions_are_listed_without_a_prefix(ctx: &StorageContext) -> Verdict {
    let db = own_keyspace(ctx).await?;
    let pkeys = sorted(ctx, &[b"a", b"b"]);
    fill(&db, &pkeys, 2).await?;
    ensure_eq!(db.partitions(b"").await?, pkeys, "the partitions");
    Ok(())
}

async fn nothing_is_listed_where_nothing_was_written(ctx: &StorageContext) -> Verdict {
    let db = own_keyspace(ctx).await?;
    fill(&db, &[ctx.pkey("some")], 1).await?;
    ensure_eq!(db.partitions(&ctx.pkey("none")).await?, Vec::<Bytes>::new(), "the partitions");
    let empty = own_keyspace(ctx).await?;
    ensure_eq!(
        empty.partitions(b"").await?,
        Vec::<Bytes>::new(),
        "the partitions of an empty keyspace"
    );
    Ok(())
}
