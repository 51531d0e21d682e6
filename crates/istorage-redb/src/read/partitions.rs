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

/// Reads the keys that begin with `prefix`, from the row with the key `from` on.
pub(crate) fn read(
    view: &mut RowView,
    keyspace: &Keyspace,
    prefix: &[u8],
    from: &[u8],
) -> Result<(Vec<Bytes>, Option<Vec<u8>>)> {
    let (mut pkeys, mut bytes, mut next) = (Vec::new(), 0, Some(from.to_vec()));
    for _ in 0..PAGE_STEPS {
        let Some(from) = next.as_deref().filter(|_| bytes < PAGE_BYTES) else { break };
        let Some(key) = next_row(view, keyspace, from)? else {
            next = None;
            break;
        };
        let pkey = layout::pkey(&key).ok_or_else(|| {
            errors::damaged_row(keyspace.row_name(from), "a page holds other rows")
        })?;
        if pkey.starts_with(prefix) {
            bytes += pkey.len();
            pkeys.push(Bytes::copy_from_slice(pkey));
        }
        next = behind(pkey, prefix);
    }
    Ok((pkeys, next))
}

/// The key of the first row from `from` on. A row that was removed in memory may count.
fn next_row(view: &mut RowView, keyspace: &Keyspace, from: &[u8]) -> Result<Option<Bytes>> {
    let in_memory = view.of_one_moment(|held| held.first_from(&keyspace.name, from))?;
    let failed = |error| {
        errors::read_error(format!("{} and those after it", keyspace.row_name(from)), error)
    };
    let mut rows = search::rows_from(view.table(keyspace)?, from).map_err(failed)?;
    let in_file = rows.next().map_err(failed)?;
    let in_file = in_file.map(|(key, _)| Bytes::copy_from_slice(key.value()));
    Ok(in_file.into_iter().chain(in_memory).min())
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
