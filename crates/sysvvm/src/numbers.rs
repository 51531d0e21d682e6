//! The stored numbers of an application: the last number of each sequence, and the stored offset of
//! each partition.
//!
//! Invariant: a stored number is never replaced by a lower one, and no offset is stored without its
//! numbers.

mod put;

use std::fmt;

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use istorage::{CorruptRow, Key, Order, Range, RowsAtOnce, SharedStorage};

use crate::{AppNumber, Error, Result, layout};

/// What is wrong with the bytes of a row that are no number.
const NO_NUMBER: &str = "is not a number of 8 bytes below 2^62";

/// The number of bits of a stored offset. A row that was written conditionally has the epoch of its
/// leader in the bits above.
const OFFSET_BITS: u32 = 40;

/// The last number given of a sequence of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastNumber {
    /// The workspace.
    pub ws: u64,
    /// The sequence.
    pub seq: u16,
    /// The number, from 1 to [`Order::MAX`].
    pub number: u64,
}

/// The stored offset of a partition's log, with the epoch of the leader that stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    /// The partition.
    pub partition: u16,
    /// The epoch of the leader: at most 22 bits.
    pub epoch: u64,
    /// The offset of the next event to replay: at most 40 bits.
    pub next: u64,
}

/// The place of a stored number of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberPlace {
    /// The stored offset of the log of the partition.
    Offset,
    /// The last number of a sequence of a workspace.
    Last {
        /// The workspace.
        ws: u64,
        /// The sequence.
        seq: u16,
    },
}

impl NumberPlace {
    /// Returns the name of the row, for a person.
    pub fn name(self, partition: u16) -> String {
        match self {
            NumberPlace::Offset => format!("the stored offset of partition {partition}"),
            NumberPlace::Last { ws, seq } => name_of_number(ws, seq),
        }
    }
}

/// The keys of stored numbers.
///
/// All sequences of a workspace share a storage partition. [`NumberKeys::sequence_of`] must know
/// every row of this storage partition: a row that it does not know is corrupt.
pub trait NumberKeys: fmt::Debug + Send + Sync {
    /// Returns the name of the place of the rows, for errors and for answers to readers.
    fn place(&self) -> &'static str;

    /// Returns the key of the stored offset of a partition's log.
    fn offset(&self, partition: u16) -> Key;

    /// Returns the partition key of the numbers of a workspace.
    fn workspace(&self, ws: u64) -> Bytes;

    /// Returns the clustering columns of a sequence in that storage partition.
    fn sequence(&self, seq: u16) -> Bytes;

    /// Returns the sequence with these clustering columns; `None` if they name no sequence.
    fn sequence_of(&self, ccols: &[u8]) -> Option<u16>;
}

/// The keys of the numbers of an application in the system keyspace.
#[derive(Clone, Copy, Debug)]
struct SystemKeys(AppNumber);

impl NumberKeys for SystemKeys {
    fn place(&self) -> &'static str {
        "the system keyspace"
    }

    fn offset(&self, partition: u16) -> Key {
        layout::plog_offset(self.0, partition)
    }

    fn workspace(&self, ws: u64) -> Bytes {
        layout::numbers(self.0, ws)
    }

    fn sequence(&self, seq: u16) -> Bytes {
        layout::sequence(seq)
    }

    fn sequence_of(&self, ccols: &[u8]) -> Option<u16> {
        ccols.try_into().map(u16::from_be_bytes).ok()
    }
}

/// The stored numbers of an application, on any driver.
///
/// A stored number is never replaced by a lower one. A stored offset is never replaced by the
/// offset of an earlier leader, or by a lower one of the same leader. So writes may arrive late and
/// in any order.
///
/// [`System::numbers`](crate::System::numbers) makes the numbers in the system keyspace.
#[derive(Debug)]
pub struct NumberRows {
    storage: SharedStorage,
    clock: Clock,
    keys: Box<dyn NumberKeys>,
    /// The number of rows that are put and read back together.
    at_once: RowsAtOnce,
}

impl NumberRows {
    pub(crate) fn of_app(storage: SharedStorage, clock: Clock, app: AppNumber) -> NumberRows {
        NumberRows::new(storage, clock, Box::new(SystemKeys(app)))
    }

    /// Makes the numbers that are stored under these keys.
    pub fn new(storage: SharedStorage, clock: Clock, keys: Box<dyn NumberKeys>) -> NumberRows {
        NumberRows { storage, clock, keys, at_once: RowsAtOnce::default() }
    }

    /// Returns the name of the place of the rows.
    pub fn place(&self) -> &'static str {
        self.keys.place()
    }

    /// Reads the last numbers of sequences of a workspace, in the order of `seqs`; `None` for a
    /// sequence without a stored number. Makes one call of the storage.
    ///
    /// # Errors
    /// Fails with errors of the storage. If a row is not a number, the error is corrupt and names
    /// [the row](istorage::Error::row).
    pub async fn last(&self, ws: u64, seqs: &[u16], deadline: Instant) -> Result<Vec<Option<u64>>> {
        // A damaged number of another sequence does no harm here.
        let stored = self.stored(ws, deadline, |seq| seqs.contains(&seq)).await?;
        let last = |seq: &u16| stored.iter().find(|last| last.seq == *seq).map(|last| last.number);
        Ok(seqs.iter().map(last).collect())
    }

    /// Reads the last numbers of all sequences of a workspace that have a stored number, in the
    /// order of the sequences. Makes one call of the storage.
    ///
    /// # Errors
    /// As for [`NumberRows::last`].
    pub async fn all(&self, ws: u64, deadline: Instant) -> Result<Vec<LastNumber>> {
        self.stored(ws, deadline, |_| true).await
    }

    async fn stored(
        &self,
        ws: u64,
        deadline: Instant,
        is_wanted: impl Fn(u16) -> bool,
    ) -> Result<Vec<LastNumber>> {
        let timeout = deadline.saturating_since(self.clock.now());
        let pkey = self.keys.workspace(ws);
        let consistency = istorage::Consistency::Plain;
        let mut rows = self.storage.read(pkey.clone(), Range::all(), consistency, timeout);
        let mut all = Vec::new();
        while let Some(row) = rows.try_next().await? {
            let key = Key::new(pkey.clone(), row.ccols);
            let Some(seq) = self.keys.sequence_of(&key.ccols) else {
                let (what, why) = (format!("a number of workspace {ws}"), "names no sequence");
                return Err(corrupt(what, key, row.value, why));
            };
            if !is_wanted(seq) {
                continue;
            }
            let Some(number) = number_in(&row.value) else {
                return Err(corrupt(name_of_number(ws, seq), key, row.value, NO_NUMBER));
            };
            all.push(LastNumber { ws, seq, number });
        }
        all.sort_unstable_by_key(|last| last.seq);
        Ok(all)
    }

    /// Reads the offset of the next event to replay from the log of a partition; `None` if no
    /// offset is stored.
    ///
    /// # Errors
    /// Fails with errors of the storage. If the row is not an offset, the error is corrupt and
    /// names [the row](istorage::Error::row).
    pub async fn next_offset(&self, partition: u16, deadline: Instant) -> Result<Option<u64>> {
        let key = self.keys.offset(partition);
        let row = self.storage.get(&key, istorage::Consistency::Plain, deadline).await?;
        let Some(value) = row else { return Ok(None) };
        match offset_in(&value) {
            Some(next) => Ok(Some(next)),
            None => Err(corrupt(NumberPlace::Offset.name(partition), key, value, NO_NUMBER)),
        }
    }

    /// Returns whether a row still holds the bytes that made no sense.
    ///
    /// # Errors
    /// Fails with errors of the storage.
    pub async fn is_unchanged(&self, row: &CorruptRow, deadline: Instant) -> Result<bool> {
        let now = self.storage.get(&row.key, istorage::Consistency::Plain, deadline).await?;
        Ok(now.as_ref() == Some(&row.found))
    }

    /// Returns the key of a place.
    pub fn key(&self, partition: u16, place: NumberPlace) -> Key {
        match place {
            NumberPlace::Offset => self.keys.offset(partition),
            NumberPlace::Last { ws, seq } => self.sequence_key(ws, seq),
        }
    }

    /// Returns the place that has this key; `None` if the key names none.
    pub fn place_of(&self, partition: u16, key: &Key) -> Option<NumberPlace> {
        if *key == self.keys.offset(partition) {
            return Some(NumberPlace::Offset);
        }
        self.sequence_of(key).map(|(ws, seq)| NumberPlace::Last { ws, seq })
    }

    fn sequence_key(&self, ws: u64, seq: u16) -> Key {
        Key { pkey: self.keys.workspace(ws), ccols: self.keys.sequence(seq) }
    }

    fn sequence_of(&self, key: &Key) -> Option<(u64, u16)> {
        // The workspace is at the end of the partition key.
        let ws = u64::from_be_bytes(*key.pkey.last_chunk()?);
        let seq = self.keys.sequence_of(&key.ccols)?;
        (self.keys.workspace(ws) == key.pkey).then_some((ws, seq))
    }

    /// The name of a row, for errors.
    fn name_of(&self, key: &Key) -> String {
        match self.sequence_of(key) {
            Some((ws, seq)) => name_of_number(ws, seq),
            None => "a stored offset".to_owned(),
        }
    }

    /// Reads the bytes of a row.
    ///
    /// # Errors
    /// Fails with errors of the storage.
    pub async fn row(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        Ok(self.storage.get(key, istorage::Consistency::Linearizable, deadline).await?)
    }
}

/// Returns the offset in the bytes of the row of a stored offset; `None` if they are no offset.
pub fn offset_in(value: &[u8]) -> Option<u64> {
    let without_epoch = |number: u64| number & ((1 << OFFSET_BITS) - 1);
    number_in(value).map(without_epoch).filter(|next| *next > 0)
}

/// Returns the number in the bytes of a row; `None` if they are no number.
pub fn number_in(value: &[u8]) -> Option<u64> {
    value.try_into().map(u64::from_be_bytes).ok().filter(|number| *number <= Order::MAX)
}

fn name_of_number(ws: u64, seq: u16) -> String {
    format!("the number of sequence {seq} of workspace {ws}")
}

fn corrupt(what: String, key: Key, found: Bytes, why: &str) -> Error {
    istorage::Error::corrupt_row(CorruptRow { what, key, found, why: why.to_owned() }).into()
}

#[cfg(test)]
mod tests;
