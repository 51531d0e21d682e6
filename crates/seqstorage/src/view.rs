//! The view `sys.SequencesView`: the numbers of a partition's workspaces, in the keyspace of the
//! application.
//!
//! A row has a partition (PID), a workspace (WSID), the name of a sequence (Name) and the last
//! number (Last). The row of the log's offset has no workspace: its WSID is 0. It has the offset of
//! the next event to replay, and readers get the last offset.

use std::borrow::Cow;

use self::sequence_names::{CRECORD_ID, PLOG_OFFSET, RECORD_ID, WLOG_OFFSET};
use bytes::Bytes;
use clock::Clock;
use eventlog::{WsId, layout};
use isequencer::{SeqId, standard};
use istorage::{Key, SharedStorage};
use sysvvm::{NumberKeys, NumberRows};

/// The qualified name of the view.
pub const SEQUENCES_VIEW: &str = "sys.SequencesView";

/// The qualified names of the sequences of the system, as the clustering columns of the view have
/// them.
pub mod sequence_names {
    /// The offsets in the log of a partition.
    pub const PLOG_OFFSET: &str = "sys.PLogOffsetSeq";
    /// The offsets in the log of a workspace.
    pub const WLOG_OFFSET: &str = "sys.WLogOffsetSeq";
    /// The ids of records that do not belong to a collection.
    pub const RECORD_ID: &str = "sys.RecIDSeq";
    /// The ids of records of collections.
    pub const CRECORD_ID: &str = "sys.CRecIDSeq";
}

/// The prefix of the names of sequences of applications. The number of the sequence follows.
const OF_APPLICATION: &str = "app.Seq";

/// The id that stands for the offset in the log of the partition. No workspace has this sequence.
pub(crate) const PLOG_OFFSET_SEQ: SeqId = SeqId(0);

/// Returns the qualified name of a sequence: for the sequence 256 of an application, `app.Seq256`.
pub fn sequence_name(seq: SeqId) -> Cow<'static, str> {
    match seq {
        PLOG_OFFSET_SEQ => PLOG_OFFSET.into(),
        standard::WLOG_OFFSET => WLOG_OFFSET.into(),
        standard::RECORD_ID => RECORD_ID.into(),
        standard::CRECORD_ID => CRECORD_ID.into(),
        SeqId(seq) => format!("{OF_APPLICATION}{seq}").into(),
    }
}

/// Returns the numbers of a partition in the keyspace of its application.
pub fn numbers_in_view(application: SharedStorage, clock: Clock, partition: u16) -> NumberRows {
    NumberRows::new(application, clock, Box::new(ViewKeys { partition }))
}

#[derive(Debug)]
struct ViewKeys {
    partition: u16,
}

impl NumberKeys for ViewKeys {
    fn place(&self) -> &'static str {
        SEQUENCES_VIEW
    }

    fn offset(&self, partition: u16) -> Key {
        Key::new(layout::sequences_view(partition, WsId(0)), PLOG_OFFSET)
    }

    fn workspace(&self, ws: u64) -> Bytes {
        layout::sequences_view(self.partition, WsId(ws))
    }

    fn sequence(&self, seq: u16) -> Bytes {
        sequence_name(SeqId(seq)).into_owned().into()
    }

    fn sequence_of(&self, ccols: &[u8]) -> Option<u16> {
        let SeqId(seq) = match str::from_utf8(ccols).ok()? {
            WLOG_OFFSET => standard::WLOG_OFFSET,
            RECORD_ID => standard::RECORD_ID,
            CRECORD_ID => standard::CRECORD_ID,
            // The row of the log's offset is in the storage partition of workspace 0.
            PLOG_OFFSET => PLOG_OFFSET_SEQ,
            name => SeqId(name.strip_prefix(OF_APPLICATION)?.parse().ok()?),
        };
        Some(seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_has_a_name_of_its_own() {
        let keys = ViewKeys { partition: 7 };
        for seq in [1, 2, 3, 256, u16::MAX] {
            assert_eq!(keys.sequence_of(&keys.sequence(seq)), Some(seq));
        }
        for none in ["", "sys.Other", "app.Seq", "app.Seqx", "app.Seq65536"] {
            assert_eq!(keys.sequence_of(none.as_bytes()), None, "{none}");
        }
        let names = [1, 2, 3, 256].map(|seq| keys.sequence(seq));
        assert_eq!(names, ["sys.WLogOffsetSeq", "sys.RecIDSeq", "sys.CRecIDSeq", "app.Seq256"]);
        let Key { pkey, ccols } = keys.offset(7);
        assert_eq!((pkey, &ccols[..]), (keys.workspace(0), &b"sys.PLogOffsetSeq"[..]));
    }
}
