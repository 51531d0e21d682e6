//! The bytes in the file: its tables, its keys and its rows. A change of anything here needs a new
//! [`FORMAT`].
//!
//! - Table `meta`: the key is a name. The values are the mark of this driver, the format, and the
//!   highest time so far with its checksum.
//! - Table `rows/<keyspace>`: the key is `[u16 length of pkey][pkey][ccols]`. The value is
//!   `[u32 checksum][u8 kind][u64 order][u64 moment of expiry][value]`. A row without an order or
//!   without an expiry does not have that number.
//! - Table `expiry/<keyspace>`: the key is `[u64 moment of expiry][key of the row]`. The value is
//!   empty.
//!
//! Numbers are big endian. The length in front of the partition key keeps a storage partition
//! together: no two storage partitions have keys with a common prefix. Every row that can expire
//! has an entry in `expiry`; no other row has one.
//!
//! The checksum of a row is the CRC-32 of its key and of all its bytes behind the checksum. redb
//! does not verify its own checksums when it reads, so without the checksum of the row, a flipped
//! bit would be served as data.

use std::{fmt, ops::Bound};

use bytes::Bytes;
use istorage::{Error, KeyspaceName, Range, Result};
use redb::TableDefinition;

use crate::{errors, time::Moment};

/// The table with the mark of this driver, the format, and the time of the file.
pub(crate) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
/// The key in `meta` of [`MAGIC`].
pub(crate) const META_MAGIC: &str = "magic";
/// The key in `meta` of [`FORMAT`].
pub(crate) const META_FORMAT: &str = "format";
/// The key in `meta` of the highest time so far.
pub(crate) const META_TIME: &str = "time";

/// Marks files of this driver among other redb files.
pub(crate) const MAGIC: &[u8] = b"vvm istorage";
/// The version of everything in this module.
pub(crate) const FORMAT: u32 = 2;

const ROWS: &str = "rows/";
const EXPIRY: &str = "expiry/";

const PLAIN: u8 = 0;
const CONDITIONAL: u8 = 1;
const EXPIRING: u8 = 2;
const ORDERED: u8 = 3;
const ORDERED_EXPIRING: u8 = 4;

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
struct Hex<'a>(&'a [u8]);

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

/// The clustering columns in the key of a row of the storage partition `pkey`.
pub(crate) fn ccols<'a>(pkey: &[u8], key: &'a [u8]) -> &'a [u8] {
    key.get(2 + pkey.len()..).unwrap_or_default()
}

/// The keys of a range of a storage partition.
pub(crate) fn row_keys(pkey: &[u8], range: &Range) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let end = match &range.end {
        Some(end) => Some(row_key(pkey, end)),
        None => successor(row_key(pkey, &[])),
    };
    (Bound::Included(row_key(pkey, &range.start)), end.map_or(Bound::Unbounded, Bound::Excluded))
}

/// The smallest key behind all keys that start with `prefix`; `None` if there is none.
fn successor(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
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

/// The kind of a row. A row keeps its kind for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileRowKind {
    Plain,
    Conditional { expires: Option<Moment> },
    Ordered { order: u64, expires: Option<Moment> },
}

impl FileRowKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileRowKind::Plain => "plain",
            FileRowKind::Conditional { .. } => "conditional",
            FileRowKind::Ordered { .. } => "ordered",
        }
    }

    /// The moment at which the row expires.
    pub(crate) fn expires(self) -> Option<Moment> {
        match self {
            FileRowKind::Conditional { expires } | FileRowKind::Ordered { expires, .. } => expires,
            FileRowKind::Plain => None,
        }
    }
}

/// A row as it is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRow<'a> {
    pub(crate) kind: FileRowKind,
    pub(crate) value: &'a [u8],
}

impl<'a> FileRow<'a> {
    /// Parses the row in `bytes`.
    ///
    /// # Errors
    /// The reason why these are not the bytes that were written for this key.
    pub(crate) fn parse(
        key: &[u8],
        bytes: &'a [u8],
    ) -> std::result::Result<FileRow<'a>, RowDamage> {
        let (sum, row) = bytes.split_first_chunk().ok_or(RowDamage::CutOff)?;
        if u32::from_be_bytes(*sum) != checksum(key, row) {
            return Err(RowDamage::Checksum);
        }
        let (kind, rest) = row.split_first().ok_or(RowDamage::CutOff)?;
        let (kind, value) = match *kind {
            PLAIN => (FileRowKind::Plain, rest),
            CONDITIONAL => (FileRowKind::Conditional { expires: None }, rest),
            EXPIRING => {
                let (at, value) = parse_u64(rest)?;
                (FileRowKind::Conditional { expires: Some(Moment(at)) }, value)
            }
            ORDERED => {
                let (order, value) = parse_u64(rest)?;
                (FileRowKind::Ordered { order, expires: None }, value)
            }
            ORDERED_EXPIRING => {
                let (order, rest) = parse_u64(rest)?;
                let (at, value) = parse_u64(rest)?;
                (FileRowKind::Ordered { order, expires: Some(Moment(at)) }, value)
            }
            unknown => return Err(RowDamage::UnknownKind(unknown)),
        };
        Ok(FileRow { kind, value })
    }

    /// Writes the row with this key into `bytes`. Earlier contents of `bytes` are removed.
    pub(crate) fn write(self, key: &[u8], bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&[0; SUM]);
        bytes.push(match self.kind {
            FileRowKind::Plain => PLAIN,
            FileRowKind::Conditional { expires: None } => CONDITIONAL,
            FileRowKind::Conditional { expires: Some(_) } => EXPIRING,
            FileRowKind::Ordered { expires: None, .. } => ORDERED,
            FileRowKind::Ordered { expires: Some(_), .. } => ORDERED_EXPIRING,
        });
        if let FileRowKind::Ordered { order, .. } = self.kind {
            bytes.extend_from_slice(&order.to_be_bytes());
        }
        if let Some(at) = self.kind.expires() {
            bytes.extend_from_slice(&at.0.to_be_bytes());
        }
        bytes.extend_from_slice(self.value);
        let sum = checksum(key, &bytes[SUM..]);
        bytes[..SUM].copy_from_slice(&sum.to_be_bytes());
    }

    /// Whether the row has not expired. A row is absent from exactly its moment of expiry on.
    pub(crate) fn is_live(self, now: Moment) -> bool {
        self.kind.expires().is_none_or(|at| now < at)
    }

    /// The value, if the row has not expired.
    pub(crate) fn value_at(self, now: Moment) -> Option<Bytes> {
        self.is_live(now).then(|| Bytes::copy_from_slice(self.value))
    }
}

/// The reason why the bytes of a row are not those that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowDamage {
    CutOff,
    Checksum,
    UnknownKind(u8),
}

impl fmt::Display for RowDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowDamage::CutOff => f.write_str("its header is cut off"),
            RowDamage::Checksum => f.write_str("its checksum is wrong"),
            RowDamage::UnknownKind(unknown) => write!(f, "its kind, {unknown}, is unknown"),
        }
    }
}

/// The length of a checksum.
const SUM: usize = 4;

fn checksum(key: &[u8], row: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key);
    sum.update(row);
    sum.finalize()
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

fn parse_u64(bytes: &[u8]) -> std::result::Result<(u64, &[u8]), RowDamage> {
    let (number, rest) = bytes.split_first_chunk().ok_or(RowDamage::CutOff)?;
    Ok((u64::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains((start, end): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
        let behind_start = matches!(start, Bound::Included(start) if key >= &start[..]);
        behind_start && !matches!(end, Bound::Excluded(end) if key >= &end[..])
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
    fn a_row_is_read_as_it_was_written() {
        let expires = Some(Moment(u64::MAX - 1));
        let kinds = [
            FileRowKind::Plain,
            FileRowKind::Conditional { expires: None },
            FileRowKind::Conditional { expires },
            FileRowKind::Ordered { order: 7, expires: None },
            FileRowKind::Ordered { order: 7, expires },
        ];
        let (key, mut bytes) = (row_key(b"p", b"c"), vec![1, 2, 3]);
        for kind in kinds {
            for value in [&b""[..], b"\0value"] {
                let row = FileRow { kind, value };
                row.write(&key, &mut bytes);
                assert_eq!(FileRow::parse(&key, &bytes).unwrap(), row);
            }
        }
        let with_sum = |row: &[u8]| [&checksum(&key, row).to_be_bytes()[..], row].concat();
        for (row, why) in [
            (&[9][..], RowDamage::UnknownKind(9)),
            (&[], RowDamage::CutOff),
            (&[EXPIRING, 0], RowDamage::CutOff),
            (&[ORDERED], RowDamage::CutOff),
            (&[ORDERED_EXPIRING; 16], RowDamage::CutOff),
        ] {
            assert_eq!(FileRow::parse(&key, &with_sum(row)), Err(why));
        }
        assert_eq!(FileRow::parse(&key, b"sum"), Err(RowDamage::CutOff));
    }

    /// The driver served a flipped bit of a value as data: redb does not verify the checksums of
    /// its pages when it reads.
    #[test]
    fn every_flipped_bit_of_a_key_or_a_row_is_noticed() {
        let keyspace = Keyspace::new(KeyspaceName::new("tests").unwrap());
        let kind = FileRowKind::Ordered { order: 7, expires: Some(Moment(8)) };
        let (key, mut bytes) = (row_key(b"p", b"c"), Vec::new());
        FileRow { kind, value: b"value" }.write(&key, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = keyspace.parse_row(&key, &flipped).unwrap_err();
            assert_eq!(error.kind(), istorage::ErrorKind::Corrupt);
            assert!(error.to_string().contains("the row 0x70/0x63 of the keyspace `tests`"));
        }
        for bit in 0..key.len() * 8 {
            let mut flipped = key.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FileRow::parse(&flipped, &bytes), Err(RowDamage::Checksum));
        }
    }

    #[test]
    fn a_row_is_gone_from_its_moment_on() {
        let expires = Some(Moment(100));
        let row = FileRow { kind: FileRowKind::Conditional { expires }, value: b"v" };
        assert!(row.is_live(Moment(99)) && !row.is_live(Moment(100)));
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
