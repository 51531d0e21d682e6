//! The port of the sequencer, over the log and the stored numbers of a partition.
//!
//! Invariant: each write asks the fence first, and stores no offset without the numbers of the
//! events before that offset.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use clock::Instant;
use eventlog::{Entry, Epoch, LogWriter};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use isequencer::{LoggedEvent, NumberKey, Offset, SeqId, SeqStorage, StorageError, WsId, standard};
use istorage::CorruptRow;
use sysvvm::{LastNumber, NumberRows, StoredOffset};

use crate::{
    numbers_in_view, sequence_name,
    view::{PLOG_OFFSET_SEQ, sequence_names},
};

/// The lowest record id that is counted.
///
/// Lower ids are from an earlier time, when one id led to several tables. The replay does not count
/// them, because the sequence begins above them.
const FIRST_COUNTED_RECORD_ID: u64 = 322_680_000_000_000;

/// The numbers of a partition and its log, under the leadership that writes the log.
#[derive(Debug)]
pub struct PartitionStorage {
    pub(crate) numbers: NumberRows,
    pub(crate) log: Arc<LogWriter>,
}

/// The last stored number of a sequence: a row of `sys.SequencesView`, or the same row of the
/// system keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSequence {
    /// The workspace; 0 for the offset in the log of the partition.
    pub ws: WsId,
    /// The id of the sequence; 0 for the offset in the log of the partition.
    pub seq: SeqId,
    /// The qualified name of the sequence.
    pub name: Cow<'static, str>,
    /// The number. For the offset in the log of the partition: the last event that the next start
    /// need not read.
    pub last: u64,
}

impl PartitionStorage {
    /// Uses the numbers of the application in the system keyspace. Each call has the timeout of a
    /// call of the log.
    pub fn in_system(numbers: NumberRows, log: Arc<LogWriter>) -> PartitionStorage {
        PartitionStorage { numbers, log }
    }

    /// Uses the view of numbers in the keyspace of the application, beside the log.
    pub fn in_view(log: Arc<LogWriter>) -> PartitionStorage {
        let storage = Arc::clone(log.reader().storage());
        let numbers = numbers_in_view(storage, log.clock().clone(), log.partition());
        PartitionStorage { numbers, log }
    }

    /// Returns the name of the place of the numbers: [`SEQUENCES_VIEW`](crate::SEQUENCES_VIEW), or
    /// the system keyspace.
    pub fn place(&self) -> &'static str {
        self.numbers.place()
    }

    /// Returns whether a row of numbers still has the bytes that were found.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn is_unchanged(&self, row: &CorruptRow) -> eventlog::Result<bool> {
        self.numbers.is_unchanged(row, self.deadline()).await.map_err(not_read)
    }

    /// Reads the stored number of a sequence of a workspace.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn stored_number(&self, ws: WsId, seq: SeqId) -> eventlog::Result<Option<u64>> {
        let stored = self.numbers.last(ws.0, &[seq.0], self.deadline()).await;
        Ok(stored.map_err(not_read)?.first().copied().flatten())
    }

    /// Reads the stored numbers of a workspace: those of the sequences that have one, and the
    /// offset in the log of the partition first. The stored numbers may be lower than the last ones
    /// that were given, by the unflushed numbers.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn sequences(&self, ws: WsId) -> eventlog::Result<Vec<StoredSequence>> {
        let partition = self.log.partition();
        let next = self.numbers.next_offset(partition, self.deadline()).await.map_err(not_read)?;
        let stored = self.numbers.all(ws.0, self.deadline()).await.map_err(not_read)?;
        let plog = next.and_then(|next| next.checked_sub(1)).map(|last| StoredSequence {
            ws: WsId(0),
            seq: PLOG_OFFSET_SEQ,
            name: sequence_names::PLOG_OFFSET.into(),
            last,
        });
        let of_ws = stored.into_iter().filter(|stored| SeqId(stored.seq) != PLOG_OFFSET_SEQ);
        let of_ws = of_ws.map(|LastNumber { seq, number, .. }| {
            let (seq, name) = (SeqId(seq), sequence_name(SeqId(seq)));
            StoredSequence { ws, seq, name, last: number }
        });
        Ok(plog.into_iter().chain(of_ws).collect())
    }

    /// The epoch that the log is written under.
    pub fn epoch(&self) -> Epoch {
        self.log.fence().epoch()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.log.reader().deadline()
    }
}

/// Wraps an error of the log. The receiver can tell from the `eventlog::Error` whether the error
/// [lasts](eventlog::Error::is_lasting).
fn failed(error: eventlog::Error) -> StorageError {
    StorageError(Box::new(error))
}

fn not_numbered(error: sysvvm::Error) -> StorageError {
    failed(not_read(error))
}

fn not_read(error: sysvvm::Error) -> eventlog::Error {
    match error {
        sysvvm::Error::Storage(error) => error.into(),
        error => istorage::Error::corrupt(error.to_string()).into(),
    }
}

#[async_trait]
impl SeqStorage for PartitionStorage {
    async fn read_numbers(&self, ws: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError> {
        let seqs: Vec<u16> = seqs.iter().map(|seq| seq.0).collect();
        let last = self.numbers.last(ws.0, &seqs, self.deadline()).await.map_err(not_numbered)?;
        // A number that was never stored is absent, on every driver.
        Ok(last.into_iter().map(Option::unwrap_or_default).collect())
    }

    async fn next_offset(&self) -> Result<Offset, StorageError> {
        let partition = self.log.partition();
        let next = self.numbers.next_offset(partition, self.deadline()).await;
        let next = next.map_err(not_numbered)?;
        let Some(next) = next else { return Ok(Offset::FIRST) };
        Offset::new(next).ok_or_else(|| {
            StorageError(
                format!("the stored offset {next} of partition {partition} is not an offset")
                    .into(),
            )
        })
    }

    async fn write(&self, numbers: &[(NumberKey, u64)], next: Offset) -> Result<(), StorageError> {
        let last = |(key, number): &(NumberKey, u64)| LastNumber {
            ws: key.ws.0,
            seq: key.seq.0,
            number: *number,
        };
        let numbers: Vec<LastNumber> = numbers.iter().map(last).collect();
        let (partition, epoch) = (self.log.partition(), self.log.fence().epoch().0);
        // The fence permits one write of at most one timeout, so each call asks the fence.
        let deadline = || async {
            match self.log.fence().wait_to_send().await {
                Ok(()) => Ok(self.deadline()),
                Err(lost) => Err(istorage::Error::closed().with_source(lost).into()),
            }
        };
        let offset = StoredOffset { partition, epoch, next: next.0 };
        let stored = self.numbers.store(&numbers, offset, deadline).await;
        stored.map_err(|error| match self.log.fence().lost() {
            Some(lost) => failed(lost.into()),
            None => not_numbered(error),
        })
    }

    fn events(&self, from: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>> {
        let replay = self.log.replay(from);
        replay.map_err(failed).and_then(async |entry| logged(&entry)).boxed()
    }
}

/// Returns the numbers that an entry of the log drew.
fn logged(entry: &Entry) -> Result<LoggedEvent, StorageError> {
    let ws = entry.place().map(|place| place.ws);
    let number = |drawn: &eventlog::DrawnNumber| {
        ws.map(|ws| (NumberKey { ws, seq: SeqId(drawn.seq) }, drawn.last))
    };
    let is_counted = |(key, last): &(NumberKey, u64)| {
        let is_record_id = [standard::RECORD_ID, standard::CRECORD_ID].contains(&key.seq);
        !is_record_id || *last >= FIRST_COUNTED_RECORD_ID
    };
    let numbers = entry.drawn().iter().filter_map(number).filter(is_counted).collect();
    let offset = Offset::new(entry.plog().0).ok_or_else(|| {
        StorageError(
            format!("the offset {} of an event is not an offset of a log", entry.plog()).into(),
        )
    })?;
    Ok(LoggedEvent { offset, numbers })
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZeroU16,
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use clock::Clock;
    use eventlog::{
        DrawnNumber, Epoch, EventPlace, Fence, FencingEntry, LeadershipLost, LogSettings, Marker,
    };
    use istorage::{KeyspaceName, StorageDriver, mem::MemDriver};

    use super::*;

    fn drew(drawn: &[(u16, u64)]) -> Vec<(u16, u64)> {
        let place = EventPlace { epoch: Epoch(1), plog: Offset(9), ws: WsId(7), wlog: Offset(4) };
        let drawn =
            drawn.iter().map(|(seq, last)| DrawnNumber { seq: *seq, last: *last }).collect();
        let marked = Epoch(1);
        let entry = Entry::Marker(Marker { place, marked, drawn, bytes: "".into() });
        let LoggedEvent { offset, numbers } = logged(&entry).unwrap();
        assert_eq!(offset.0, 9);
        assert!(numbers.iter().all(|(key, _)| key.ws == WsId(7)));
        numbers.into_iter().map(|(key, last)| (key.seq.0, last)).collect()
    }

    #[test]
    fn a_fencing_entry_takes_an_offset_and_no_number() {
        let (epoch, plog) = (Epoch(2), Offset(9));
        let time = clock::WallTime::from_nanos(0);
        let entry = Entry::Fencing(FencingEntry { epoch, partition: 1, plog, time });
        let LoggedEvent { offset, numbers } = logged(&entry).unwrap();
        assert_eq!((offset.0, numbers.len()), (9, 0));
    }

    /// In an earlier time, record ids below the bound led to several tables (i688). The bound does
    /// not apply to offsets and to numbers of applications.
    #[test]
    fn record_ids_below_the_bound_are_not_counted_and_other_numbers_are() {
        let (before, first) = (322_679_999_999_999, 322_680_000_000_000);
        assert_eq!(drew(&[(1, 5), (2, before), (3, before), (256, 7)]), [(1, 5), (256, 7)]);
        assert_eq!(drew(&[(2, first), (3, first)]), [(2, first), (3, first)]);
    }

    /// A fence that permits some writes, and is lost then.
    #[derive(Debug)]
    struct ShortLeadership(AtomicUsize);

    impl Fence for ShortLeadership {
        fn epoch(&self) -> Epoch {
            Epoch(1)
        }

        fn may_send(&self, _: Duration) -> bool {
            let left = |left: usize| left.checked_sub(1);
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok()
        }

        fn lost(&self) -> Option<LeadershipLost> {
            let is_lost = self.0.load(Ordering::SeqCst) == 0;
            is_lost.then(|| LeadershipLost("the time is over".into()))
        }
    }

    /// Numbers and their offset take four calls of the storage.
    #[tokio::test]
    async fn each_call_asks_the_fence_and_its_loss_is_reported() {
        let clock = Clock::system();
        let keyspace = KeyspaceName::new("numbers").unwrap();
        for calls in 0..5 {
            let driver = MemDriver::new(clock.clone());
            driver.create(&keyspace, Instant::FAR_FUTURE).await.unwrap();
            let storage = driver.open(&keyspace, Instant::FAR_FUTURE).await.unwrap().unwrap();
            let fence = Arc::new(ShortLeadership(AtomicUsize::new(calls)));
            let settings = LogSettings::new(NonZeroU16::MIN);
            let log = LogWriter::new(storage, clock.clone(), fence, 0, settings);
            let storage = PartitionStorage::in_view(Arc::new(log));
            let numbers = [(NumberKey { ws: WsId(7), seq: SeqId(256) }, 5)];
            let written = storage.write(&numbers, Offset::new(9).unwrap()).await;
            let lost = written.err().map(|StorageError(error)| {
                matches!(error.downcast_ref(), Some(eventlog::Error::LeadershipLost(_)))
            });
            assert_eq!(lost, (calls < 4).then_some(true), "{calls} calls");
            let is_stored = storage.next_offset().await.unwrap() != Offset::FIRST;
            assert_eq!(is_stored, calls > 2, "{calls} calls");
        }
    }
}
