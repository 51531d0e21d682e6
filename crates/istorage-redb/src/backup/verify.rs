//! Reading a backup. Each row, the order of the rows, their number and the checksum of the whole
//! are verified on the way.

use std::io::{self, Read};

use bytes::Bytes;
use istorage::{Error, KeyspaceName, Result};

use super::format::{BACKUP_FORMAT, END, KEYSPACE, MAGIC, ROW, damaged_backup};
use crate::{
    layout::{FORMAT, FileRow, Keyspace, WITHOUT_BANDS, WITHOUT_FILER},
    time::Moment,
};

/// The longest key and the longest row of a file, with room to spare. So a damaged length cannot
/// take more memory.
const LONGEST: usize = 32 << 20;

/// The contents of a whole backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// The number of keyspaces.
    pub keyspaces: u64,
    /// The number of rows.
    pub rows: u64,
    /// The number of bytes of the backup.
    pub bytes: u64,
}

/// Reads a whole backup, and verifies it.
///
/// # Errors
/// `Corrupt` if the backup is damaged, cut off, or of another version. `Unavailable` if it cannot
/// be read.
pub fn verify_backup(backup: impl Read) -> Result<BackupReport> {
    let mut reader = BackupReader::open(backup)?;
    while reader.next()?.is_some() {}
    Ok(reader.report)
}

/// An item of a backup.
pub(super) enum BackupItem<'b> {
    Keyspace(&'b KeyspaceName),
    /// A row of the last keyspace, as it is in the file.
    Row {
        keyspace: &'b KeyspaceName,
        key: Bytes,
        row: Bytes,
    },
}

/// A backup that is being read.
pub(super) struct BackupReader<R> {
    from: R,
    sum: crc32fast::Hasher,
    /// The time of the file.
    pub(super) time: Moment,
    pub(super) report: BackupReport,
    keyspace: Option<Keyspace>,
    /// The last key of the keyspace; empty at its beginning.
    key: Bytes,
}

impl<R: Read> BackupReader<R> {
    /// Reads the head.
    pub(super) fn open(from: R) -> Result<BackupReader<R>> {
        let mut reader = BackupReader {
            from,
            sum: crc32fast::Hasher::new(),
            time: Moment(0),
            report: BackupReport::default(),
            keyspace: None,
            key: Bytes::new(),
        };
        if reader.array()? != *MAGIC {
            return Err(Error::corrupt("the file is not a backup of a redb storage"));
        }
        // The rows of a file without bands are rows of this format, too.
        for (what, known) in [
            ("backup", &[BACKUP_FORMAT][..]),
            ("storage file", &[WITHOUT_BANDS, WITHOUT_FILER, FORMAT]),
        ] {
            let format = u32::from_be_bytes(reader.array()?);
            if !known.contains(&format) {
                let formats = if known.len() == 1 { "format" } else { "formats" };
                let known: Vec<String> = known.iter().map(u32::to_string).collect();
                return Err(Error::corrupt(format!(
                    "the backup has the format {format} of a {what}, and this version reads only the {formats} {}: use the \
                     version that made the backup",
                    known.join(", ")
                )));
            }
        }
        reader.time = Moment(reader.number()?);
        Ok(reader)
    }

    /// Reads the next item; `None` at the end of a whole backup, behind which nothing is read.
    pub(super) fn next(&mut self) -> Result<Option<BackupItem<'_>>> {
        match self.array()? {
            [KEYSPACE] => self.keyspace().map(Some),
            [ROW] => self.row().map(Some),
            [END] => self.end().map(|()| None),
            [unknown] => Err(damaged_backup(format!("an item has the unknown kind {unknown}"))),
        }
    }

    fn keyspace(&mut self) -> Result<BackupItem<'_>> {
        let [length] = self.array()?;
        let name = self.bytes(usize::from(length))?;
        let name = String::from_utf8(name.into()).map_err(damaged_backup)?;
        let name = KeyspaceName::new(name).map_err(damaged_backup)?;
        if self.keyspace.as_ref().is_some_and(|last| last.name >= name) {
            return Err(damaged_backup(format!("the keyspace `{name}` is out of order")));
        }
        self.report.keyspaces += 1;
        self.key = Bytes::new();
        Ok(BackupItem::Keyspace(&self.keyspace.insert(Keyspace::new(name)).name))
    }

    fn row(&mut self) -> Result<BackupItem<'_>> {
        let mut lengths = [0; 2];
        for length in &mut lengths {
            *length = u32::from_be_bytes(self.array()?) as usize;
            if *length > LONGEST {
                return Err(damaged_backup(format!("a row would have {length} bytes")));
            }
        }
        let (key, row) = (self.bytes(lengths[0])?, self.bytes(lengths[1])?);
        let Some(keyspace) = &self.keyspace else {
            return Err(damaged_backup("a row belongs to no keyspace"));
        };
        // The key before the first row of a keyspace is empty.
        if self.key >= key {
            let row = keyspace.row_name(&key);
            return Err(damaged_backup(format!("{row} is out of order")));
        }
        FileRow::parse(&key, &row)
            .map_err(|why| damaged_backup(format!("{}: {why}", keyspace.row_name(&key))))?;
        self.report.rows += 1;
        self.key = key.clone();
        Ok(BackupItem::Row { keyspace: &keyspace.name, key, row })
    }

    fn end(&mut self) -> Result<()> {
        let counts = (self.number()?, self.number()?);
        let sum = self.sum.clone().finalize();
        if u32::from_be_bytes(self.array()?) != sum {
            return Err(damaged_backup("its checksum is wrong"));
        }
        let BackupReport { keyspaces, rows, .. } = self.report;
        if counts != (keyspaces, rows) {
            return Err(damaged_backup(format!(
                "{rows} rows of {keyspaces} keyspaces are there, of {} rows of {} keyspaces",
                counts.1, counts.0
            )));
        }
        match self.from.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(damaged_backup("bytes follow its end")),
            Err(error) => Err(unreadable(error)),
        }
    }

    fn number(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn bytes(&mut self, len: usize) -> Result<Bytes> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes)?;
        Ok(bytes.into())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.from.read_exact(bytes).map_err(unreadable)?;
        self.sum.update(bytes);
        self.report.bytes += bytes.len() as u64;
        Ok(())
    }
}

fn unreadable(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged_backup("it is cut off"),
        _ => Error::unavailable("the backup cannot be read").with_source(error),
    }
}
