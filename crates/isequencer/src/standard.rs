//! The sequences that every workspace has.

use crate::{SeqId, Sequence, sequences::END};

/// The offsets in the log of a workspace, from 1.
pub const WLOG_OFFSET: SeqId = SeqId(1);

/// The ids of the records of documents that belong to a workspace or to an operation, from
/// [`FIRST_RECORD_ID`].
pub const RECORD_ID: SeqId = SeqId(2);

/// The ids of the records of collections, from [`FIRST_CRECORD_ID`].
pub const CRECORD_ID: SeqId = SeqId(3);

/// The lowest id of a sequence of an application.
pub const FIRST_OF_APPLICATIONS: SeqId = SeqId(256);

/// The first number of [`RECORD_ID`]. The sequence ends before [`FIRST_CRECORD_ID`].
pub const FIRST_RECORD_ID: u64 = 322_680_000_131_072;

/// The first number of [`CRECORD_ID`].
pub const FIRST_CRECORD_ID: u64 = 322_685_000_131_072;

/// Returns the sequences that every workspace has.
///
/// ```
/// use isequencer::{SeqId, Sequence, Sequences, WsKind, standard};
///
/// let mut sequences = standard::sequences();
/// sequences.push(Sequence::counting_from(SeqId(256), 1)?); // and one of the application's own
/// let all = Sequences::new().with(WsKind(1), sequences)?;
/// # Ok::<(), isequencer::BadSequences>(())
/// ```
pub fn sequences() -> Vec<Sequence> {
    vec![
        Sequence::known(WLOG_OFFSET, 1..END),
        Sequence::known(RECORD_ID, FIRST_RECORD_ID..FIRST_CRECORD_ID),
        Sequence::known(CRECORD_ID, FIRST_CRECORD_ID..END),
    ]
}
