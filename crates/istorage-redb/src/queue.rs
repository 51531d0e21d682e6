//! The places of the jobs that wait for the writer.
//!
//! A job takes its place before it is sent, and keeps it until it is answered. So the places bound
//! the queue, in jobs and in bytes. There are three kinds of places, and a job waits only for jobs
//! of its own kind:
//!
//! - *urgent*: one small row under a condition. Leases are such rows. The writer takes urgent jobs
//!   first.
//! - *usual*: up to [`LARGE`] bytes.
//! - *large*: more bytes. A frame with such a job takes the disk long, and all its jobs wait for
//!   that. So only a few bytes of this kind are in the queue at a time.

use std::sync::Arc;

use istorage::{AtomicBatch, BatchLimits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{gaps::GAPS_BYTES, mem_table::ROW_OVERHEAD};

/// The largest batch.
pub(crate) const BATCH: BatchLimits = BatchLimits { rows: 65_536, bytes: 64 << 20 };

/// The size of a segment of the log and of its table.
pub(crate) const SEGMENT: usize = 16 << 20;

/// The largest urgent job.
const URGENT: usize = 4 << 10;
/// The number of urgent jobs.
const URGENT_JOBS: usize = 64;
/// The largest usual job.
pub(crate) const LARGE: usize = 1 << 20;
/// The number of usual jobs, if none of them has more than [`STEP`] bytes.
const USUAL_JOBS: usize = 1_024;
/// A job takes a place for each `STEP` bytes, and at least one.
const STEP: usize = 64 << 10;
/// The bytes of all large jobs. A job with more bytes waits until it is the only one.
const LARGE_BYTES: usize = 16 << 20;

/// The most bytes of the tables in memory, of the frame that is being written, and of the known
/// gaps of the file. Each of the first three has one batch at most, or less.
pub const TABLES_BYTES: usize = 3 * (BATCH.bytes + BATCH.rows * ROW_OVERHEAD) + GAPS_BYTES;

/// The most bytes of all writes that wait.
pub const WAITING_BYTES: usize = URGENT_JOBS * URGENT + USUAL_JOBS * STEP + BATCH.bytes;

/// The number of jobs that have places at the same time.
pub(crate) const MOST_JOBS: usize = URGENT_JOBS + USUAL_JOBS + LARGE_BYTES / LARGE;

/// The approximate number of bytes that a write adds to a frame of the log.
pub(crate) fn bytes_of(batch: &AtomicBatch) -> usize {
    let conditionals = batch.conditionals.iter().map(|(pkey, op)| {
        pkey.len() + op.ccols().len() + op.written().map_or(0, |value| value.len())
    });
    let ordered = batch.ordered.iter().map(|put| (&put.key, &put.value));
    let puts = batch.puts.iter().map(|put| (&put.key, &put.value));
    let others =
        ordered.chain(puts).map(|(key, value)| key.pkey.len() + key.ccols.len() + value.len());
    conditionals.chain(others).sum()
}

/// The approximate weight of the rows of a write in a table.
pub(crate) fn weight_of(batch: &AtomicBatch) -> usize {
    let rows = batch.conditionals.len() + batch.ordered.len() + batch.puts.len();
    bytes_of(batch) + rows * ROW_OVERHEAD
}

/// The free places of a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueuePlaces {
    urgent: Arc<Semaphore>,
    usual: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// The place of one job. It becomes free when the job is dropped.
pub(crate) struct QueuePlace {
    pub(crate) is_urgent: bool,
    _permit: OwnedSemaphorePermit,
}

impl QueuePlaces {
    pub(crate) fn new() -> QueuePlaces {
        QueuePlaces {
            urgent: Arc::new(Semaphore::new(URGENT_JOBS)),
            usual: Arc::new(Semaphore::new(USUAL_JOBS)),
            large: Arc::new(Semaphore::new(LARGE_BYTES / STEP)),
        }
    }

    /// Waits for the place of a write. Returns `None` if the queue has ended.
    pub(crate) async fn of_write(&self, batch: &AtomicBatch) -> Option<QueuePlace> {
        let bytes = bytes_of(batch);
        let is_one_row =
            batch.conditionals.len() == 1 && batch.ordered.is_empty() && batch.puts.is_empty();
        match bytes {
            ..=URGENT if is_one_row => take(&self.urgent, 1, true).await,
            ..=LARGE => take(&self.usual, bytes.div_ceil(STEP).max(1), false).await,
            _ => take(&self.large, (bytes / STEP).min(LARGE_BYTES / STEP), false).await,
        }
    }

    /// Waits for the place of any other job. Returns `None` if the queue has ended.
    pub(crate) async fn of_other(&self) -> Option<QueuePlace> {
        take(&self.usual, 1, false).await
    }

    /// Ends the queue for all jobs that wait for a place.
    pub(crate) fn close(&self) {
        for places in [&self.urgent, &self.usual, &self.large] {
            places.close();
        }
    }
}

async fn take(places: &Arc<Semaphore>, count: usize, is_urgent: bool) -> Option<QueuePlace> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let permit = Arc::clone(places).acquire_many_owned(count).await.ok()?;
    Some(QueuePlace { is_urgent, _permit: permit })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt;
    use istorage::{Conditional, Key, Put};

    use super::*;

    fn lease() -> AtomicBatch {
        let row = Conditional::Insert {
            ccols: Bytes::from("seat"),
            value: Bytes::from("node"),
            ttl: None,
        };
        AtomicBatch { conditionals: vec![(Bytes::from("leases"), row)], ..AtomicBatch::default() }
    }

    fn puts(bytes: usize) -> AtomicBatch {
        let key = Key { pkey: Bytes::from("p"), ccols: Bytes::from("c") };
        let puts = vec![Put { key, value: vec![0; bytes].into() }];
        AtomicBatch { puts, ..AtomicBatch::default() }
    }

    /// Takes places for writes of this many bytes, until none is free.
    fn fill(places: &QueuePlaces, bytes: usize) -> Vec<QueuePlace> {
        let batch = puts(bytes);
        std::iter::from_fn(|| places.of_write(&batch).now_or_never().flatten()).collect()
    }

    /// Commands with large rows filled the queue, which was bounded by jobs only: its 1,024 jobs
    /// were gigabytes, and the renewal of a lease waited for them until the lease had ended.
    #[test]
    fn each_kind_of_job_is_bounded_and_waits_for_its_own_kind_only() {
        let places = QueuePlaces::new();
        let large = fill(&places, 4 << 20);
        assert_eq!(large.len(), 4, "16 MiB");
        let usual = fill(&places, (1 << 20) - 10);
        assert_eq!(usual.len(), 64, "64 MiB");
        assert_eq!(fill(&places, 10).len(), 0);
        let urgent = places.of_write(&lease()).now_or_never().flatten();
        assert!(urgent.is_some_and(|place| place.is_urgent));
        drop(usual);
        assert_eq!(fill(&places, 10).len(), USUAL_JOBS);
        assert_eq!(fill(&places, 40 << 20).len(), 0, "another large job waits");
        drop(large);
        assert_eq!(fill(&places, 40 << 20).len(), 1, "a larger job than the bound is alone");
    }

    #[test]
    fn a_large_row_under_a_condition_is_not_urgent() {
        let places = QueuePlaces::new();
        let mut batch = lease();
        let (_, row) = &mut batch.conditionals[0];
        *row = Conditional::Insert {
            ccols: Bytes::from("seat"),
            value: vec![0; URGENT].into(),
            ttl: None,
        };
        assert!(!places.of_write(&batch).now_or_never().flatten().unwrap().is_urgent);
        let two = AtomicBatch { puts: puts(1).puts, ..lease() };
        assert!(!places.of_write(&two).now_or_never().flatten().unwrap().is_urgent);
    }

    #[test]
    fn a_job_that_waits_for_a_place_learns_that_the_queue_ended() {
        let places = QueuePlaces::new();
        let held = fill(&places, 10);
        let other = places.of_other();
        let mut other = std::pin::pin!(other);
        assert!(other.as_mut().now_or_never().is_none(), "it waits");
        places.close();
        assert!(other.now_or_never().unwrap().is_none());
        drop(held);
    }
}
