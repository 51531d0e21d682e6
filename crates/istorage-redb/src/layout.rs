//! The bytes in the file: its tables, its keys and its rows. A change of anything here needs a new
//! [`FORMAT`].
//!
//! - Table `meta`: the key is a name. The values are the mark of this driver, the format, the
//!   highest time so far with its checksum, and the [state of the log](crate::log::LogState).
//! - Table `rows/<keyspace>`: the key is `[u16 length of pkey][pkey][ccols]`. The value is
//!   `[u32 checksum][u8 kind][i64 rank][u64 moment of expiry][value]`. The rank is that of the
//!   [order](istorage::Order::rank). A row without an order or without an expiry does not have that
//!   number.
//! - Table `expiry/<keyspace>`: the key is `[u64 moment of expiry][key of the row]`. The value is
//!   empty.
//!
//! Numbers are big endian. The length before the partition key keeps a storage partition together:
//! no two storage partitions have keys with a common prefix. Every row that can expire has an entry
//! in `expiry`; no other row has one.
//!
//! The checksum of a row is the CRC-32 of its key and of all its bytes after the checksum. redb
//! does not verify its own checksums when it reads, so without the checksum of the row, a flipped
//! bit would be served as data.

mod format;
mod row;

use std::{fmt, ops::Bound, sync::Arc};

use istorage::{Error, KeyspaceName, Range, Result};
use redb::TableDefinition;

pub(crate) use self::{
    format::{FORMAT, WITHOUT_BANDS, WITHOUT_FILER, WITHOUT_LOG},
    row::{FileRow, FileRowKind, checksum, has_flipped_bit},
};
use crate::{errors, time::Moment};

/// The table with the mark of this driver, the format, the time of the file, and the state of its
/// log.
pub(crate) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
/// The key in `meta` of [`MAGIC`].
pub(crate) const META_MAGIC: &str = "magic";
/// The key in `meta` of [`FORMAT`].
pub(crate) const META_FORMAT: &str = "format";
/// The key in `meta` of the highest time so far.
pub(crate) const META_TIME: &str = "time";

/// The key in `meta` of the state of the log.
pub(crate) const META_LOG: &str = "log";

/// Marks files of this driver among other redb files.
pub(crate) const MAGIC: &[u8] = b"vvm istorage";
const ROWS: &str = "rows/";
const EXPIRY: &str = "expiry/";

/// A change of the keyspaces of a file.
#[derive(Clone, Debug)]
pub(crate) enum KeyspaceChange {
    Make(Arc<Keyspace>),
    Drop(Arc<Keyspace>),
}

/// A keyspace with the names of its tables.
#[derive(Debug)]
pub(crate) struct Keyspace {
    pub(crate) name: KeyspaceName,
    rows: String,
    expiry: String,
}

impl Keyspace {
    pub(crate) fn new(name: KeyspaceName) -> Keyspace {
        let (rows, expiry) = (format!("{ROWS}{name}"), format!("{EXPIRY}{name}"));
        Keyspace { name, rows, expiry }
    }

    /// The keyspace that has its rows in `table`; `None` for a table of another purpose.
    pub(crate) fn of_table(table: &str) -> Option<Result<Keyspace>> {
        let name = table.strip_prefix(ROWS)?;
        Some(KeyspaceName::new(name).map(Keyspace::new).map_err(|error| {
            Error::corrupt(format!("the table `{table}` belongs to no keyspace")).with_source(error)
        }))
    }

    pub(crate) fn rows(&self) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
        TableDefinition::new(&self.rows)
    }

    pub(crate) fn expiry(&self) -> TableDefinition<'_, &'static [u8], ()> {
        TableDefinition::new(&self.expiry)
    }

    /// Parses the row with this key and these bytes.
    ///
    /// # Errors
    /// `Corrupt`, with the name of the row, if the bytes are not those that were written.
    pub(crate) fn parse_row<'a>(&self, key: &[u8], bytes: &'a [u8]) -> Result<FileRow<'a>> {
        FileRow::parse(key, bytes).map_err(|why| errors::damaged_row(self.row_name(key), why))
    }

    /// The row with this key, as messages name it.
    pub(crate) fn row_name<'a>(&'a self, key: &'a [u8]) -> RowName<'a> {
        RowName { keyspace: &self.name, key }
    }

    /// The table of all rows, as messages name it.
    pub(crate) fn table_label(&self) -> String {
        format!("the table of the keyspace `{}`", self.name)
    }
}

/// The other table of the same keyspace: the rows have an index, and the index has rows.
pub(crate) fn other_table(table: &str) -> Option<String> {
    match (table.strip_prefix(ROWS), table.strip_prefix(EXPIRY)) {
        (Some(name), _) => Some(format!("{EXPIRY}{name}")),
        (_, Some(name)) => Some(format!("{ROWS}{name}")),
        (None, None) => None,
    }
}

/// A row, as messages name it.
pub(crate) struct RowName<'a> {
    keyspace: &'a KeyspaceName,
    key: &'a [u8],
}

impl fmt::Display for RowName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, rest) = self.key.split_at_checked(2).unwrap_or((&[], self.key));
        let length = length.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        let (pkey, ccols) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        let (pkey, ccols) = (Hex(pkey), Hex(ccols));
        write!(f, "the row {pkey}/{ccols} of the keyspace `{}`", self.keyspace)
    }
}

/// Bytes as `0x0a1b`; long ones are cut off.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        f.write_str("0x")?;
        self.0.iter().take(SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        if self.0.len() > SHOWN { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

/// The key of a row.
pub(crate) fn row_key(pkey: &[u8], ccols: &[u8]) -> Vec<u8> {
    // The length was checked against the capabilities. A longer key would share a prefix with other
    // storage partitions.
    let length = u16::try_from(pkey.len()).unwrap_or(u16::MAX);
    let mut key = Vec::with_capacity(2 + pkey.len() + ccols.len());
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(pkey);
    key.extend_from_slice(ccols);
    key
}

/// The partition key in the key of a row; `None` if the key is no key of a row.
pub(crate) fn pkey(key: &[u8]) -> Option<&[u8]> {
    let (length, rest) = key.split_first_chunk()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

/// The clustering columns in the key of a row of the storage partition `pkey`.
pub(crate) fn ccols<'a>(pkey: &[u8], key: &'a [u8]) -> &'a [u8] {
    key.get(2 + pkey.len()..).unwrap_or_default()
}

/// The first key of a range of a storage partition, and the end of its keys.
pub(crate) fn row_keys(pkey: &[u8], range: &Range) -> (Vec<u8>, Bound<Vec<u8>>) {
    let end = match &range.end {
        Some(end) => Some(row_key(pkey, end)),
        None => successor(row_key(pkey, &[])),
    };
    (row_key(pkey, &range.start), end.map_or(Bound::Unbounded, Bound::Excluded))
}

/// The smallest key after all keys that start with `prefix`; `None` if there is none.
pub(crate) fn successor(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// The key in `expiry` of a row.
pub(crate) fn expiry_key(at: Moment, row_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + row_key.len());
    key.extend_from_slice(&at.0.to_be_bytes());
    key.extend_from_slice(row_key);
    key
}

/// Parses a key of `expiry` to the moment and the key of the row.
pub(crate) fn parse_expiry_key(key: &[u8]) -> Result<(Moment, &[u8])> {
    let (at, row_key) = key
        .split_first_chunk()
        .ok_or_else(|| Error::corrupt("an entry of the expiry index is too short"))?;
    Ok((Moment(u64::from_be_bytes(*at)), row_key))
}

/// The value of [`META_TIME`]: the time and its checksum.
pub(crate) fn encode_time(seen: Moment) -> Vec<u8> {
    let seen = seen.0.to_be_bytes();
    [&seen[..], &checksum(META_TIME.as_bytes(), &seen).to_be_bytes()].concat()
}

/// Parses a value of [`META_TIME`]. Returns `None` if the bytes are not those that were written.
pub(crate) fn parse_time(bytes: &[u8]) -> Option<Moment> {
    let (seen, _) = bytes.split_first_chunk()?;
    let seen = Moment(u64::from_be_bytes(*seen));
    (encode_time(seen) == bytes).then_some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains((start, end): &(Vec<u8>, Bound<Vec<u8>>), key: &[u8]) -> bool {
        key >= &start[..] && !matches!(end, Bound::Excluded(end) if key >= &end[..])
    }

    #[test]
    fn a_partition_holds_its_own_rows_and_no_others() {
        let pkeys: [&[u8]; 7] =
            [b"a", b"a\0", b"b", b"\xff", b"\xff\xff", &[0xff; 255], &[0xff; 65_535]];
        for own in pkeys {
            let keys = row_keys(own, &Range::all());
            for other in pkeys {
                for ccols in [&b""[..], b"\0", b"\xff\xff\xff"] {
                    assert_eq!(contains(&keys, &row_key(other, ccols)), own == other);
                }
            }
        }
    }

    #[test]
    fn a_range_is_half_open() {
        let keys = row_keys(b"p", &Range::between("b", "d"));
        let inside = |ccols: &[u8]| contains(&keys, &row_key(b"p", ccols));
        assert!(!inside(b"a") && inside(b"b") && inside(b"c\xff") && !inside(b"d"));
        assert_eq!(ccols(b"p", &row_key(b"p", b"cc")), b"cc");
    }

    #[test]
    fn a_damaged_time_is_noticed() {
        let seen = Moment(0x0102_0304);
        assert_eq!(parse_time(&encode_time(seen)), Some(seen));
        for bit in 0..encode_time(seen).len() * 8 {
            let mut flipped = encode_time(seen);
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse_time(&flipped), None);
        }
        assert_eq!(parse_time(&encode_time(seen)[..8]), None);
    }

    #[test]
    fn expiry_entries_sort_by_moment() {
        let early = expiry_key(Moment(255), b"z");
        let late = expiry_key(Moment(256), b"a");
        assert!(early < late);
        assert_eq!(parse_expiry_key(&late).unwrap(), (Moment(256), &b"a"[..]));
    }
}
