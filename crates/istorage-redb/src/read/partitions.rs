//! A page of the keys of partitions.
//!
//! The rows of a keyspace are sorted by the length of their partition key first. So the keys with a
//! prefix are a range of rows for each length. Each step jumps over the rows of one partition.

use bytes::Bytes;
use istorage::Result;

use crate::{
    errors,
    layout::{self, Keyspace},
    search,
    view::RowView,
};

/// A page ends after this many steps, or at this many bytes of keys.
const PAGE_STEPS: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

/// A part of the requested keys.
#[derive(Debug)]
pub(crate) struct PartitionPage {
    pub(crate) pkeys: Vec<Bytes>,
    /// The key of the row where the next page begins, if the page did not reach the end.
    pub(crate) rest: Option<Vec<u8>>,
}

/// Reads the keys that begin with `prefix`, from the row with the key `from` on.
pub(super) fn read(
    view: &mut RowView,
    keyspace: &Keyspace,
    prefix: &[u8],
    from: Vec<u8>,
) -> Result<PartitionPage> {
    let (mut pkeys, mut bytes, mut next) = (Vec::new(), 0, Some(from));
    for _ in 0..PAGE_STEPS {
        let Some(from) = next.as_deref().filter(|_| bytes < PAGE_BYTES) else { break };
        let Some((key, is_there)) = next_row(view, keyspace, from)? else {
            next = None;
            break;
        };
        if !is_there {
            next = Some([&key[..], &[0]].concat());
            continue;
        }
        let pkey = layout::pkey(&key).ok_or_else(|| {
            errors::damaged_row(keyspace.row_name(from), "a page holds other rows")
        })?;
        if pkey.starts_with(prefix) {
            bytes += pkey.len();
            pkeys.push(Bytes::copy_from_slice(pkey));
        }
        next = behind(pkey, prefix);
    }
    Ok(PartitionPage { pkeys, rest: next })
}

/// The key of the first row from `from` on, and whether the row is there: a row of the file may
/// have been removed in memory.
fn next_row(view: &mut RowView, keyspace: &Keyspace, from: &[u8]) -> Result<Option<(Bytes, bool)>> {
    let in_memory = view.of_one_moment(|held| held.first_from(&keyspace.name, from))?;
    let failed = |error| {
        errors::read_error(format!("{} and those after it", keyspace.row_name(from)), error)
    };
    let in_file = {
        let mut rows = search::rows_from(view.table(keyspace)?, from).map_err(failed)?;
        let next = rows.next().map_err(failed)?;
        next.map(|(key, _)| Bytes::copy_from_slice(key.value()))
    };
    match (in_file, in_memory) {
        (Some(file), Some(memory)) if memory <= file => Ok(Some((memory, true))),
        (None, Some(memory)) => Ok(Some((memory, true))),
        (Some(file), _) => {
            let known = view.of_one_moment(|held| held.get(&keyspace.name, &file).cloned())?;
            let is_there = known.is_none_or(|row| row.is_some());
            Ok(Some((file, is_there)))
        }
        (None, None) => Ok(None),
    }
}

/// The first key of a row that can follow the partition `pkey`.
fn behind(pkey: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let length = pkey.len();
    if pkey.starts_with(prefix) {
        return layout::successor(layout::row_key(pkey, &[]));
    }
    // The first keys of the same length, or of the next length, that begin with the prefix.
    let is_before = length >= prefix.len() && pkey < prefix;
    let length = if is_before { length } else { length.max(prefix.len().saturating_sub(1)) + 1 };
    let length = u16::try_from(length).ok()?;
    Some([&length.to_be_bytes(), prefix].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_partition_is_looked_for_behind_the_last_one() {
        let at = |length: u16, prefix: &[u8]| Some([&length.to_be_bytes(), prefix].concat());
        // Too short, too low, too high, and the longest of all.
        assert_eq!(behind(b"a", b"ab"), at(2, b"ab"));
        assert_eq!(behind(b"", b"ab"), at(2, b"ab"));
        assert_eq!(behind(b"aaa", b"ab"), at(3, b"ab"));
        assert_eq!(behind(b"acc", b"ab"), at(4, b"ab"));
        assert_eq!(behind(&[b'c'; 65_535], b"ab"), None);
        // One that begins with the prefix.
        assert_eq!(behind(b"ab", b"ab"), at(2, b"ac"));
        assert_eq!(behind(b"\xff\xff", b""), at(3, b""));
        assert_eq!(behind(&[0xff; 65_535], b""), None);
    }
}
