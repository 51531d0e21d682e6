//! The check of a whole stream before an import.

use std::{collections::BTreeMap, io::BufRead};

use eventlog::{Entry, Epoch};
use ownership::OwnerEpoch;
use sysvvm::AppName;

use crate::{
    ImportError, StreamError,
    reader::{Fact, Header, StreamReader},
};

/// A stream that was read to its end, and is whole.
#[derive(Clone, Debug)]
pub struct CheckedStream {
    pub(crate) header: Header,
    pub(crate) sha256: String,
    /// The highest epoch in the log of each partition that has events.
    pub(crate) epochs: BTreeMap<u16, OwnerEpoch>,
    /// The size of the largest row that the import writes, or that follows from the events.
    pub(crate) largest_row: usize,
    events: u64,
}

impl CheckedStream {
    /// Returns the name of the application.
    pub fn app(&self) -> &AppName {
        &self.header.app
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> u16 {
        self.header.partitions.get()
    }

    /// Returns the trust level.
    pub fn trust_level(&self) -> eventlog::TrustLevel {
        self.header.deployment.level
    }

    /// Returns the number of events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Checks that a storage can hold each row. `limit` is its largest value
    /// ([`RowLimits::value`](istorage::RowLimits::value)). [`import`](crate::import) checks it,
    /// too, but a program may know the limit before it makes the system keyspace.
    ///
    /// # Errors
    /// [`ImportError::RowTooLarge`].
    pub fn check_rows(&self, limit: usize) -> Result<(), ImportError> {
        match self.largest_row {
            row if row > limit => Err(ImportError::RowTooLarge { row, limit }),
            _ => Ok(()),
        }
    }
}

/// Reads a stream from its beginning to its end.
///
/// # Errors
/// The first reason why the stream cannot be imported.
pub fn check_stream(source: impl BufRead) -> Result<CheckedStream, StreamError> {
    let mut reader = StreamReader::begin(source)?;
    let (mut epochs, mut largest_row) = (BTreeMap::new(), reader.header().deployment.row_size());
    while let Some(fact) = reader.next()? {
        match &fact {
            Fact::Entry { partition, entry, bytes } => {
                let epoch = u32::try_from(highest_epoch(entry).0).ok().map(OwnerEpoch);
                let Some(epoch) = epoch.filter(|epoch| epoch.next().is_some()) else {
                    let why = "no epoch is above that of the entry".to_owned();
                    return Err(StreamError::Damaged { line: reader.lines(), why });
                };
                let highest = epochs.entry(*partition).or_insert(epoch);
                *highest = epoch.max(*highest);
                largest_row = largest_row.max(eventlog::largest_row_of(entry, bytes));
            }
            Fact::Copy { bytes, .. } | Fact::Record { bytes, .. } => {
                largest_row = largest_row.max(bytes.len());
            }
            Fact::Series(_, stored) => largest_row = largest_row.max(stored.row_size()),
            Fact::Range(_, entry) => largest_row = largest_row.max(entry.row_size()),
            // These rows have a few numbers.
            Fact::Number(_) | Fact::Counter(..) => {}
        }
    }
    let (header, sha256, events) = (reader.header().clone(), reader.sha256(), reader.events());
    Ok(CheckedStream { header, sha256, epochs, largest_row, events })
}

/// Returns the highest epoch of an entry. A marker has a later one than its event.
fn highest_epoch(entry: &Entry) -> Epoch {
    match entry {
        Entry::Marker(marker) => marker.place.epoch.max(marker.marked),
        Entry::Event(_) | Entry::Fencing(_) => entry.epoch(),
    }
}
