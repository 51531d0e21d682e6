//! The rows of an application's keyspace, by what they are.

use std::fmt;

use istorage::Key;

use crate::{Offset, RecordId, WsId, layout};

/// A row of an application's keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// An event in the log of a partition.
    Plog(u16, Offset),
    /// An event in the log of a workspace.
    Wlog(WsId, Offset),
    /// A record.
    Record(WsId, RecordId),
    /// What a command was answered, by the hash of its key.
    Answer(WsId, [u8; 32]),
}

impl Row {
    /// Its key.
    pub fn key(&self) -> Key {
        match self {
            Row::Plog(partition, offset) => layout::plog(*partition, *offset),
            Row::Wlog(ws, offset) => layout::wlog(*ws, *offset),
            Row::Record(ws, id) => layout::record(*ws, *id),
            Row::Answer(ws, hash) => layout::answer(*ws, hash),
        }
    }
}

/// With its key, for who looks it up.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Plog(partition, offset) => {
                write!(f, "event {} of the log of partition {partition}", offset.0)?;
            }
            Row::Wlog(ws, offset) => {
                write!(f, "event {} of the log of workspace {}", offset.0, ws.0)?;
            }
            Row::Record(ws, id) => write!(f, "record {} of workspace {}", id.0, ws.0)?,
            Row::Answer(ws, _) => write!(f, "an answer to a command of workspace {}", ws.0)?,
        }
        let Key { pkey, ccols } = self.key();
        f.write_str(" (key ")?;
        for byte in &pkey {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("/")?;
        for byte in &ccols {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}
