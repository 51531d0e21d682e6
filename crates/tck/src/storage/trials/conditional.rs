//! The conditional calls of one row. Each call is applied once, and refused in each possible way.

use bytes::Bytes;
use istorage::Range;

use super::rows::{awkward_keys, row, value, value_of};
use crate::{
    storage::{
        answers::{applied, conflicts},
        context::StorageContext,
    },
    trial::{Trial, Verdict, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(conditional:
    an_insert_of_an_absent_row_is_applied,
    an_insert_of_a_present_row_is_not_applied,
    an_insert_of_equal_bytes_is_not_applied,
    a_swap_of_an_equal_row_is_applied,
    a_swap_of_a_different_row_is_not_applied,
    a_swap_of_an_absent_row_is_not_applied,
    a_swap_to_the_same_bytes_is_applied,
    a_delete_of_an_equal_row_is_applied,
    a_delete_of_a_different_row_is_not_applied,
    a_delete_of_an_absent_row_is_not_applied,
    a_deleted_row_can_be_inserted_again,
    an_empty_value_is_not_an_absent_row,
    similar_values_are_different,
    keys_may_have_any_bytes,
    large_values_are_compared_whole,
    a_long_chain_of_swaps_is_applied,
    nodes_see_each_others_writes,
    a_write_that_is_not_applied_changes_nothing,
);

const ABSENT: Option<&str> = None;

async fn an_insert_of_an_absent_row_is_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "v").await?, "the insert")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("v".into()), "the row");
    ensure_eq!(ctx.db.query_ttl(&key).await?, Some(None), "its TTL");
    Ok(())
}

async fn an_insert_of_a_present_row_is_not_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "first").await?, "the first insert")?;
    let second = ctx.db.insert(&key, "second").await?;
    conflicts(&second, &[(0, Some("first"))], "the second insert")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("first".into()), "the row");
    Ok(())
}

async fn an_insert_of_equal_bytes_is_not_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "v").await?, "the first insert")?;
    conflicts(&ctx.db.insert(&key, "v").await?, &[(0, Some("v"))], "the same insert again")
}

async fn a_swap_of_an_equal_row_is_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "old").await?, "the insert")?;
    applied(&ctx.db.swap(&key, "old", "new").await?, "the swap")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("new".into()), "the row");
    Ok(())
}

async fn a_swap_of_a_different_row_is_not_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "there").await?, "the insert")?;
    let swap = ctx.db.swap(&key, "expected", "new").await?;
    conflicts(&swap, &[(0, Some("there"))], "the swap")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("there".into()), "the row");
    Ok(())
}

async fn a_swap_of_an_absent_row_is_not_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    for old in ["expected", ""] {
        conflicts(&ctx.db.swap(&key, old, "new").await?, &[(0, ABSENT)], "the swap")?;
        ensure_eq!(ctx.db.get_linearizable(&key).await?, None, "the row");
    }
    Ok(())
}

/// A heartbeat is such a swap: it changes nothing.
async fn a_swap_to_the_same_bytes_is_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "v").await?, "the insert")?;
    for _ in 0..3 {
        applied(&ctx.db.swap(&key, "v", "v").await?, "the swap")?;
    }
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("v".into()), "the row");
    Ok(())
}

async fn a_delete_of_an_equal_row_is_applied(ctx: &StorageContext) -> Verdict {
    let (key, beside) = (ctx.key("p", "a"), ctx.key("p", "b"));
    applied(&ctx.db.insert(&key, "v").await?, "the insert")?;
    applied(&ctx.db.insert(&beside, "w").await?, "the insert of another row")?;
    applied(&ctx.db.delete(&key, "v").await?, "the delete")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, None, "the row");
    let found = ctx.db.read_linearizable(&key.pkey, Range::all()).await?;
    ensure_eq!(found, [row("b", "w")], "the partition");
    Ok(())
}

async fn a_delete_of_a_different_row_is_not_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "there").await?, "the insert")?;
    let delete = ctx.db.delete(&key, "expected").await?;
    conflicts(&delete, &[(0, Some("there"))], "the delete")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("there".into()), "the row");
    Ok(())
}

async fn a_delete_of_an_absent_row_is_not_applied(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    conflicts(&ctx.db.delete(&key, "v").await?, &[(0, ABSENT)], "a delete of no row")?;
    applied(&ctx.db.insert(&key, "v").await?, "the insert")?;
    applied(&ctx.db.delete(&key, "v").await?, "the delete")?;
    conflicts(&ctx.db.delete(&key, "v").await?, &[(0, ABSENT)], "the same delete again")?;
    conflicts(&ctx.db.swap(&key, "v", "w").await?, &[(0, ABSENT)], "a swap after the delete")
}

async fn a_deleted_row_can_be_inserted_again(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    for n in 0..5 {
        applied(&ctx.db.insert(&key, value(n)).await?, "an insert")?;
        ensure_eq!(ctx.db.get(&key).await?, Some(value(n)), "after insert {n}");
        applied(&ctx.db.delete(&key, value(n)).await?, "a delete")?;
        ensure_eq!(ctx.db.get(&key).await?, None, "after delete {n}");
    }
    Ok(())
}

async fn an_empty_value_is_not_an_absent_row(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "").await?, "the insert of an empty value")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some(Bytes::new()), "the row");
    conflicts(&ctx.db.insert(&key, "x").await?, &[(0, Some(""))], "a second insert")?;
    conflicts(&ctx.db.swap(&key, "x", "y").await?, &[(0, Some(""))], "a swap of something else")?;
    applied(&ctx.db.swap(&key, "", "x").await?, "a swap of the empty value")?;
    conflicts(&ctx.db.swap(&key, "", "y").await?, &[(0, Some("x"))], "the same swap again")?;
    applied(&ctx.db.swap(&key, "x", "").await?, "a swap to the empty value")?;
    applied(&ctx.db.delete(&key, "").await?, "a delete of the empty value")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, None, "the row after its delete");
    Ok(())
}

async fn similar_values_are_different(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    let there = Bytes::from_static(b"v\x00\xff");
    applied(&ctx.db.insert(&key, there.clone()).await?, "the insert")?;
    let similar: [&'static [u8]; 7] =
        [b"v", b"v\x00", b"v\x00\xfe", b"v\x00\xff\x00", b"V\x00\xff", b"\x00\xff", b""];
    for old in similar {
        let swap = ctx.db.swap(&key, old, "new").await?;
        conflicts(&swap, &[(0, Some(&there))], "a swap of a similar value")?;
        let delete = ctx.db.delete(&key, old).await?;
        conflicts(&delete, &[(0, Some(&there))], "a delete of a similar value")?;
    }
    applied(&ctx.db.swap(&key, there, "new").await?, "the swap of the value itself")
}

async fn keys_may_have_any_bytes(ctx: &StorageContext) -> Verdict {
    let keys = awkward_keys().into_iter().filter(|key| key.len() != 1);
    for (n, ccols) in keys.enumerate() {
        let key = ctx.key(ccols.clone(), ccols.clone());
        applied(&ctx.db.insert(&key, value(n)).await?, "the insert")?;
        let again = ctx.db.insert(&key, "again").await?;
        conflicts(&again, &[(0, Some(value(n)))], "the second insert")?;
        applied(&ctx.db.swap(&key, value(n), ccols.clone()).await?, "the swap")?;
        ensure_eq!(ctx.db.get_linearizable(&key).await?, Some(ccols.clone()), "the row");
        applied(&ctx.db.delete(&key, ccols).await?, "the delete")?;
    }
    Ok(())
}

async fn large_values_are_compared_whole(ctx: &StorageContext) -> Verdict {
    let limits = ctx.capabilities();
    // Both values of a swap must fit into one write.
    let size = limits.row.value.min(limits.conditional.bytes / 2 - 1_000).min(500_000);
    let (key, there) = (ctx.key("p", "a"), value_of(size));
    let mut similar = there.to_vec();
    similar[size - 1] ^= 1;
    let similar = Bytes::from(similar);
    applied(&ctx.db.insert(&key, there.clone()).await?, "the insert")?;
    let swap = ctx.db.swap(&key, similar.clone(), "new").await?;
    conflicts(&swap, &[(0, Some(&there))], "a swap of a value that differs in its last bit")?;
    applied(&ctx.db.swap(&key, there, similar.clone()).await?, "the swap of the value itself")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some(similar.clone()), "the row");
    applied(&ctx.db.delete(&key, similar).await?, "the delete")
}

async fn a_long_chain_of_swaps_is_applied(ctx: &StorageContext) -> Verdict {
    const SWAPS: usize = 100;
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, value(0)).await?, "the insert")?;
    for n in 0..SWAPS {
        applied(&ctx.db.swap(&key, value(n), value(n + 1)).await?, "a swap")?;
    }
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some(value(SWAPS)), "the row");
    let late = ctx.db.swap(&key, value(SWAPS / 2), "late").await?;
    conflicts(&late, &[(0, Some(value(SWAPS)))], "a swap of what was there before")
}

async fn nodes_see_each_others_writes(ctx: &StorageContext) -> Verdict {
    let (key, other) = (ctx.key("p", "a"), ctx.other().await?);
    applied(&ctx.db.insert(&key, value(0)).await?, "the insert")?;
    for n in 0..20 {
        let (by, reader) = if n % 2 == 0 { (&other, &ctx.db) } else { (&ctx.db, &other) };
        applied(&by.swap(&key, value(n), value(n + 1)).await?, "a swap of the other's value")?;
        ensure_eq!(reader.get_linearizable(&key).await?, Some(value(n + 1)), "the row");
    }
    applied(&other.delete(&key, value(20)).await?, "the delete")?;
    applied(&ctx.db.insert(&key, "again").await?, "the insert after the other's delete")
}

async fn a_write_that_is_not_applied_changes_nothing(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "there").await?, "the insert")?;
    for _ in 0..5 {
        conflicts(&ctx.db.insert(&key, "1").await?, &[(0, Some("there"))], "an insert")?;
        conflicts(&ctx.db.swap(&key, "2", "3").await?, &[(0, Some("there"))], "a swap")?;
        conflicts(&ctx.db.delete(&key, "4").await?, &[(0, Some("there"))], "a delete")?;
    }
    let found = ctx.db.read_linearizable(&key.pkey, Range::all()).await?;
    ensure_eq!(found, [row("a", "there")], "the partition");
    Ok(())
}
