//! The bytes of a row.

use std::fmt;

use bytes::Bytes;

use crate::time::Moment;

const PLAIN: u8 = 0;
const CONDITIONAL: u8 = 1;
const EXPIRING: u8 = 2;
const ORDERED: u8 = 3;
const ORDERED_EXPIRING: u8 = 4;

/// The kind of the last write of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileRowKind {
    Plain,
    Conditional { expires: Option<Moment> },
    Ordered { rank: i64, expires: Option<Moment> },
}

impl FileRowKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileRowKind::Plain => "plain",
            FileRowKind::Conditional { .. } => "conditional",
            FileRowKind::Ordered { .. } => "ordered",
        }
    }

    /// When the row expires.
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
    pub(crate) fn parse(key: &[u8], bytes: &'a [u8]) -> Result<FileRow<'a>, RowDamage> {
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
                let (rank, value) = parse_rank(rest)?;
                (FileRowKind::Ordered { rank, expires: None }, value)
            }
            ORDERED_EXPIRING => {
                let (rank, rest) = parse_rank(rest)?;
                let (at, value) = parse_u64(rest)?;
                (FileRowKind::Ordered { rank, expires: Some(Moment(at)) }, value)
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
        if let FileRowKind::Ordered { rank, .. } = self.kind {
            bytes.extend_from_slice(&rank.to_be_bytes());
        }
        if let Some(at) = self.kind.expires() {
            bytes.extend_from_slice(&at.0.to_be_bytes());
        }
        bytes.extend_from_slice(self.value);
        let sum = checksum(key, &bytes[SUM..]);
        bytes[..SUM].copy_from_slice(&sum.to_be_bytes());
    }

    /// Whether the row hides every ordered write.
    pub(crate) fn hides_ordered(self) -> bool {
        !matches!(self.kind, FileRowKind::Ordered { .. })
    }

    /// Whether the row has not expired. A row is absent from its exact moment of expiry on.
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

/// The CRC-32 of a key and of the bytes after it.
pub(crate) fn checksum(key: &[u8], row: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key);
    sum.update(row);
    sum.finalize()
}

/// Whether a bit of the key of a row has flipped: the checksum is wrong with this key, and right
/// with a key that differs in one bit.
pub(crate) fn has_flipped_bit(key: &[u8], row: &[u8]) -> bool {
    let Some((sum, row)) = row.split_first_chunk() else { return false };
    let sum = u32::from_be_bytes(*sum);
    if checksum(key, row) == sum {
        return false;
    }
    let mut behind = crc32fast::Hasher::new();
    behind.update(row);
    let mut other = key.to_vec();
    (0..key.len() * 8).any(|bit| {
        other[bit / 8] ^= 1 << (bit % 8);
        let mut with_other = crc32fast::Hasher::new();
        with_other.update(&other);
        with_other.combine(&behind);
        other[bit / 8] ^= 1 << (bit % 8);
        with_other.finalize() == sum
    })
}

fn parse_u64(bytes: &[u8]) -> Result<(u64, &[u8]), RowDamage> {
    let (number, rest) = bytes.split_first_chunk().ok_or(RowDamage::CutOff)?;
    Ok((u64::from_be_bytes(*number), rest))
}

fn parse_rank(bytes: &[u8]) -> Result<(i64, &[u8]), RowDamage> {
    parse_u64(bytes).map(|(bits, rest)| (bits.cast_signed(), rest))
}

#[cfg(test)]
mod tests {
    use istorage::KeyspaceName;

    use super::*;
    use crate::layout::{Keyspace, row_key};

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let expires = Some(Moment(u64::MAX - 1));
        let kinds = [
            FileRowKind::Plain,
            FileRowKind::Conditional { expires: None },
            FileRowKind::Conditional { expires },
            FileRowKind::Ordered { rank: 7, expires: None },
            FileRowKind::Ordered { rank: -7, expires: None },
            FileRowKind::Ordered { rank: 7, expires },
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
        let kind = FileRowKind::Ordered { rank: 7, expires: Some(Moment(8)) };
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
    fn a_row_is_absent_from_its_moment_of_expiry_on() {
        let expires = Some(Moment(100));
        let row = FileRow { kind: FileRowKind::Conditional { expires }, value: b"v" };
        assert!(row.is_live(Moment(99)) && !row.is_live(Moment(100)));
    }
}
