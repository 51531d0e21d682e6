//! The row that keeps a partition from working, and the repair of this row.

use bytes::Bytes;
use istorage::CorruptRow;

use crate::{
    AppRow, DamagedRow, DecodeError, Entry, Error, EventPlace, FencingEntry, Marker, StoredAnswer,
    StoredRecord,
    wire::{fencing_in_damaged, place_in_damaged},
};

/// The obstacle that keeps a partition from working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A row of the application.
    Row {
        /// The row.
        row: AppRow,
        /// The bytes that were to be written, if the error is a violation. The event of these bytes
        /// may not be in the log, so they are not a repair.
        expected: Option<Bytes>,
        /// The repair of the row.
        repair: Repair,
    },
    /// A row of the stored numbers makes no sense, or the storage cannot read its own data.
    Storage {
        /// The error of the storage.
        what: String,
        /// The row, if the storage can read it.
        row: Option<CorruptRow>,
    },
}

/// The repair of a row that keeps a partition from working. After the repair the partition goes on
/// by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The row holds an event that cannot be read. Restore the row, or put a
    /// [marker](crate::LogRepair::mark) in its place. A fencing entry is [written
    /// again](crate::LogRepair::restore_fencing).
    Mark,
    /// A row is missing, or holds bytes of another time. Restore the row.
    Restore,
    /// The row holds bytes that no node wrote there. [Remove](crate::LogRepair::remove) the row:
    /// the recovery writes the right one.
    Remove,
    /// The row holds bytes that no node wrote there, in the place of a record that existed before.
    /// Put back the former bytes of the record.
    PutBack,
    /// Another version of the program wrote the row. Run that version.
    OtherVersion,
}

impl Error {
    /// Returns the obstacle that keeps a partition from working, if an operator must remove it.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match self {
            Error::Violation(violation) => Some(Obstacle::Row {
                row: violation.row,
                expected: Some(violation.expected.clone()),
                repair: match violation.replaces_record {
                    true => Repair::PutBack,
                    false => Repair::Remove,
                },
            }),
            Error::DamagedRow(damaged) => {
                let (row, expected) = (damaged.row(), None);
                Some(Obstacle::Row { row, expected, repair: damaged.repair() })
            }
            Error::Storage(error) if self.is_lasting() => {
                let row = error.row().cloned();
                Some(Obstacle::Storage { what: base::with_causes(error), row })
            }
            Error::Storage(_)
            | Error::LeadershipLost(_)
            | Error::Unknown(_)
            | Error::UnexpectedEvent(_) => None,
        }
    }
}

impl DamagedRow {
    fn repair(&self) -> Repair {
        match self {
            DamagedRow::Unreadable { why: DecodeError::OtherVersion(_), .. } => {
                Repair::OtherVersion
            }
            DamagedRow::Unreadable { row: AppRow::Plog(..), .. }
            | DamagedRow::Misplaced { row: AppRow::Plog(..), .. } => Repair::Mark,
            DamagedRow::Unreadable { .. }
            | DamagedRow::Misplaced { .. }
            | DamagedRow::Missing(_)
            | DamagedRow::EventNotInLog { .. }
            | DamagedRow::Outdated { .. }
            | DamagedRow::EpochFell { .. } => Repair::Restore,
        }
    }
}

impl AppRow {
    /// Returns the place that a damaged event of the log of a partition still names in its bytes,
    /// if the bytes name the offset of this row. The bytes are damaged, so the place is only a
    /// hint.
    pub fn hinted_place(&self, bytes: &[u8]) -> Option<EventPlace> {
        let AppRow::Plog(_, offset) = self else { return None };
        place_in_damaged(bytes).filter(|place| place.plog == *offset)
    }

    /// Returns whether the bytes of a damaged entry still name a fencing entry at this row. The
    /// bytes are damaged, so this is only a hint.
    pub fn hints_at_fencing(&self, bytes: &[u8]) -> bool {
        let named = fencing_in_damaged(bytes);
        named.is_some_and(|entry| AppRow::Plog(entry.partition, entry.plog) == *self)
    }

    /// Describes the bytes of this row in a few words, for an operator.
    pub fn describe(&self, bytes: &[u8]) -> String {
        let described = match self {
            AppRow::Plog(..) | AppRow::Wlog(..) => Entry::from_bytes(bytes).map(describe_entry),
            AppRow::Record(..) => StoredRecord::from_bytes(bytes).map(|stored| {
                let StoredRecord { ws, version, record } = stored;
                format!(
                    "record {} of {} in workspace {}, written by event {} of epoch {}",
                    record.id.0, record.table, ws.0, version.plog.0, version.epoch.0
                )
            }),
            AppRow::Answer(..) => {
                StoredAnswer::from_bytes(bytes).map(|StoredAnswer { place, .. }| {
                    format!("the answer of event {} in workspace {}", place.plog.0, place.ws.0)
                })
            }
        };
        described.unwrap_or_else(|why| why.to_string())
    }
}

fn describe_entry(entry: Entry) -> String {
    let of_event = |EventPlace { epoch, plog, ws, wlog }: EventPlace| {
        format!("{} of epoch {}, event {} of workspace {}", plog.0, epoch.0, wlog.0, ws.0)
    };
    match entry {
        Entry::Event(event) => {
            let (place, records) = (of_event(event.place), event.changes.len());
            format!("event {place}: {} with {records} records", event.command)
        }
        Entry::Marker(Marker { place, marked, .. }) => {
            format!("marker {}, marked in epoch {}", of_event(place), marked.0)
        }
        Entry::Fencing(FencingEntry { epoch, partition, plog, .. }) => {
            format!("fencing entry {} of epoch {} of partition {partition}", plog.0, epoch.0)
        }
    }
}
