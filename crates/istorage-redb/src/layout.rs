//! The bytes in the file: its tables, its keys and its rows. Changing anything here needs a new [`FORMAT`].
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | a name | what the file is, and the highest time seen |
//! | `rows/<keyspace>` | `[u16 length of pkey][pkey][ccols]` | a kind, `[u64 order]` and `[u64 moment of expiry]` if it has them, the value |
//! | `expiry/<keyspace>` | `[u64 moment of expiry][key of the row]` | - |
//!
//! Numbers are big endian. The length in front of the partition key keeps a partition together: no two partitions'
//! keys share a prefix. A row that can expire, and no other, has its entry in `expiry`.

use std::ops::Bound;

use bytes::Bytes;
use istorage::{Error, KeyspaceName, Range, Result};
use redb::TableDefinition;

use crate::time::Moment;

/// What the file is.
pub(crate) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
/// The key in `meta` of [`MAGIC`].
pub(crate) const META_MAGIC: &str = "magic";
/// The key in `meta` of [`FORMAT`].
pub(crate) const META_FORMAT: &str = "format";
/// The key in `meta` of the highest time seen.
pub(crate) const META_TIME: &str = "time";

/// Tells our files from other redb files.
pub(crate) const MAGIC: &[u8] = b"vvm istorage";
/// The version of everything in this module.
pub(crate) const FORMAT: u32 = 1;

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

    /// The keyspace whose rows are in `table`; `None` for a table of another purpose.
    pub(crate) fn of_table(table: &str) -> Option<Result<Keyspace>> {
        let name = table.strip_prefix(ROWS)?;
        Some(KeyspaceName::new(name).map(Keyspace::new).map_err(|error| {
            Error::corrupt(format!("the table `{table}` belongs to no keyspace")).because(error)
        }))
    }

    pub(crate) fn rows(&self) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
        TableDefinition::new(&self.rows)
    }

    pub(crate) fn expiry(&self) -> TableDefinition<'_, &'static [u8], ()> {
        TableDefinition::new(&self.expiry)
    }
}

/// The key of a row.
pub(crate) fn row_key(pkey: &[u8], ccols: &[u8]) -> Vec<u8> {
    // The length was checked against the capabilities; a longer one would share a prefix with others.
    let length = u16::try_from(pkey.len()).unwrap_or(u16::MAX);
    let mut key = Vec::with_capacity(2 + pkey.len() + ccols.len());
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(pkey);
    key.extend_from_slice(ccols);
    key
}

/// The clustering columns in the key of a row of the partition `pkey`.
pub(crate) fn ccols<'a>(pkey: &[u8], key: &'a [u8]) -> &'a [u8] {
    key.get(2 + pkey.len()..).unwrap_or_default()
}

/// The keys of a range of a partition.
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

/// The moment and the row's key in a key of `expiry`.
pub(crate) fn parse_expiry_key(key: &[u8]) -> Result<(Moment, &[u8])> {
    let (at, row_key) = key
        .split_first_chunk()
        .ok_or_else(|| Error::corrupt("an entry of the expiry index is too short"))?;
    Ok((Moment(u64::from_be_bytes(*at)), row_key))
}

/// How a row is written; a row is of one kind for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Conditional { expires: Option<Moment> },
    Ordered { order: u64, expires: Option<Moment> },
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Conditional { .. } => "conditional",
            Kind::Ordered { .. } => "ordered",
        }
    }

    /// When the row is gone.
    pub(crate) fn expires(self) -> Option<Moment> {
        match self {
            Kind::Conditional { expires } | Kind::Ordered { expires, .. } => expires,
            Kind::Plain => None,
        }
    }
}

/// A row as it is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored<'a> {
    pub(crate) kind: Kind,
    pub(crate) value: &'a [u8],
}

impl<'a> Stored<'a> {
    /// The row in `bytes`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Stored<'a>> {
        let (kind, rest) =
            bytes.split_first().ok_or_else(|| Error::corrupt("a row has no header"))?;
        let (kind, value) = match *kind {
            PLAIN => (Kind::Plain, rest),
            CONDITIONAL => (Kind::Conditional { expires: None }, rest),
            EXPIRING => {
                let (at, value) = number(rest)?;
                (Kind::Conditional { expires: Some(Moment(at)) }, value)
            }
            ORDERED => {
                let (order, value) = number(rest)?;
                (Kind::Ordered { order, expires: None }, value)
            }
            ORDERED_EXPIRING => {
                let (order, rest) = number(rest)?;
                let (at, value) = number(rest)?;
                (Kind::Ordered { order, expires: Some(Moment(at)) }, value)
            }
            unknown => {
                return Err(Error::corrupt(format!("a row has the unknown kind {unknown}")));
            }
        };
        Ok(Stored { kind, value })
    }

    /// Writes the row into `bytes`, which it clears.
    pub(crate) fn write(self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.push(match self.kind {
            Kind::Plain => PLAIN,
            Kind::Conditional { expires: None } => CONDITIONAL,
            Kind::Conditional { expires: Some(_) } => EXPIRING,
            Kind::Ordered { expires: None, .. } => ORDERED,
            Kind::Ordered { expires: Some(_), .. } => ORDERED_EXPIRING,
        });
        if let Kind::Ordered { order, .. } = self.kind {
            bytes.extend_from_slice(&order.to_be_bytes());
        }
        if let Some(at) = self.kind.expires() {
            bytes.extend_from_slice(&at.0.to_be_bytes());
        }
        bytes.extend_from_slice(self.value);
    }

    /// A row is absent from exactly the moment on at which it expires.
    pub(crate) fn is_there(self, now: Moment) -> bool {
        self.kind.expires().is_none_or(|at| now < at)
    }

    /// The value, if the row is there.
    pub(crate) fn value_at(self, now: Moment) -> Option<Bytes> {
        self.is_there(now).then(|| Bytes::copy_from_slice(self.value))
    }
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8])> {
    let (number, rest) = bytes
        .split_first_chunk()
        .ok_or_else(|| Error::corrupt("the header of a row is cut off"))?;
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
            Kind::Plain,
            Kind::Conditional { expires: None },
            Kind::Conditional { expires },
            Kind::Ordered { order: 7, expires: None },
            Kind::Ordered { order: 7, expires },
        ];
        let mut bytes = vec![1, 2, 3];
        for kind in kinds {
            for value in [&b""[..], b"\0value"] {
                let row = Stored { kind, value };
                row.write(&mut bytes);
                assert_eq!(Stored::parse(&bytes).unwrap(), row);
            }
        }
        for broken in [&b""[..], &[9], &[EXPIRING, 0], &[ORDERED], &[ORDERED_EXPIRING; 16]] {
            let error = Stored::parse(broken).unwrap_err();
            assert_eq!(error.kind(), istorage::ErrorKind::Corrupt);
        }
    }

    #[test]
    fn a_row_is_gone_from_its_moment_on() {
        let expires = Some(Moment(100));
        let row = Stored { kind: Kind::Conditional { expires }, value: b"v" };
        assert!(row.is_there(Moment(99)) && !row.is_there(Moment(100)));
    }

    #[test]
    fn expiry_entries_sort_by_moment() {
        let early = expiry_key(Moment(255), b"z");
        let late = expiry_key(Moment(256), b"a");
        assert!(early < late);
        assert_eq!(parse_expiry_key(&late).unwrap(), (Moment(256), &b"a"[..]));
    }
}
