//! The rows in the way of partitions, as an operator sees them.

use eventlog::{AppRow, Obstacle, Repair};
use processor::bytes::Bytes;
use serde::Serialize;

use super::hex;
use crate::app::ServedApp;

/// The number of bytes of a row that are shown.
pub(super) const SHOWN: usize = 1_024;

/// A partition that runs no commands.
#[derive(Clone, Debug, Serialize)]
pub struct StuckPartition {
    /// The owner and the name of the application.
    pub app: String,
    /// The number of the partition.
    pub partition: u16,
    /// The status of the partition.
    pub status: String,
    /// The row in the way; `None` if the partition does not wait for a repair of a row.
    pub row: Option<RowInTheWay>,
}

/// A row that keeps a partition from working.
#[derive(Clone, Debug, Serialize)]
pub struct RowInTheWay {
    /// The name of the row, with its key.
    pub name: String,
    /// The offset of the event in the PLog, if the row is one.
    pub event: Option<u64>,
    /// The content of the row now; `None` if there is no such row.
    pub found: Option<RowContent>,
    /// The bytes that the node was about to write, if it met the row in a write. They are not always
    /// the right content.
    pub expected: Option<RowContent>,
    /// The repair of the row: `mark`, `restore`, `remove` or `other_version`.
    pub repair: &'static str,
    /// The repair of the row, for a person.
    pub advice: &'static str,
    /// The place that a damaged event still names in its bytes.
    pub hint: Option<PlaceHint>,
}

/// The place that the bytes of a damaged event name. It may be wrong, because the bytes are damaged.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlaceHint {
    /// The workspace of the event.
    pub ws: u64,
    /// The offset of the event in the WLog.
    pub offset: u64,
}

/// The content of a row, for an operator.
#[derive(Clone, Debug, Serialize)]
pub struct RowContent {
    /// The number of bytes.
    pub bytes: usize,
    /// The first 1,024 bytes, in hexadecimal.
    pub hex: String,
    /// The meaning of the bytes, or the reason why they cannot be read.
    pub meaning: String,
}

impl ServedApp {
    pub(super) async fn row_in_the_way(&self, obstacle: Obstacle) -> RowInTheWay {
        let Obstacle { row, expected, repair } = obstacle;
        let mut hint = None;
        let found = match self.reader.row(row).await {
            Ok(found) => found.map(|bytes| {
                hint = row.hinted_place(&bytes);
                RowContent::of(row, &bytes)
            }),
            Err(error) => Some(RowContent {
                bytes: 0,
                hex: String::new(),
                meaning: format!("the row cannot be read now: {error}"),
            }),
        };
        let event = if let AppRow::Plog(_, offset) = row { Some(offset.0) } else { None };
        RowInTheWay {
            name: row.to_string(),
            event,
            found,
            expected: expected.map(|bytes| RowContent::of(row, &bytes)),
            hint: hint.map(|place| PlaceHint { ws: place.ws.0, offset: place.wlog.0 }),
            repair: match repair {
                Repair::Mark => "mark",
                Repair::Restore => "restore",
                Repair::Remove => "remove",
                Repair::OtherVersion => "other_version",
            },
            advice: match repair {
                Repair::Mark => "restore the row, or mark the event",
                Repair::Restore => "restore the row",
                Repair::Remove => {
                    "the row contradicts the log: find its writer; put back the former bytes of a record, or remove any other row"
                }
                Repair::OtherVersion => "run the version of the program that wrote the row",
            },
        }
    }
}

impl RowContent {
    pub(super) fn of(row: AppRow, bytes: &Bytes) -> RowContent {
        RowContent {
            bytes: bytes.len(),
            hex: hex(&bytes[..bytes.len().min(SHOWN)]),
            meaning: row.describe(bytes),
        }
    }
}
