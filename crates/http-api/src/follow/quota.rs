//! What one log may take of the means that the followers of all logs share.
//!
//! Invariant: a follower waits for the quota of its log before it waits for anything that all logs
//! share. So the clients of a log that take nothing, and a storage that does not answer for the
//! log, hold a bounded part of that, and the other followers of the log wait behind them.

use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, Instant};
use http_server::{
    limits::{MemoryPool, MemoryShare, NoPlace, Place, Places},
    problem::{ProblemDetails, TOO_MANY_FOLLOWERS},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::read::{LogPermits, LogReads};

/// The most memory of the large events of one log, in bytes. It counts those that are kept for its
/// followers, and those that its clients have not received.
pub(super) const LARGE_BYTES_OF_LOG: usize = 8 << 20;

/// The most reads of earlier events of one log at the same time.
const READS_OF_LOG: usize = 2;

/// The quota of a log.
#[derive(Debug)]
pub(super) struct LogQuota {
    reads: Places,
    /// The memory for large events, in KiB.
    large: Arc<Semaphore>,
}

/// A read of earlier events. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct EarlierRead {
    _of_log: Place,
    _of_all: LogPermits,
}

/// The memory of a large event.
#[derive(Debug)]
pub(super) struct LargeShare {
    of_log: OwnedSemaphorePermit,
    of_all: MemoryShare,
}

impl LogQuota {
    pub(super) fn new(clock: Clock) -> LogQuota {
        LogQuota {
            // There is a limit of followers.
            reads: Places::new(READS_OF_LOG, TOO_MANY_FOLLOWERS, clock).most_waiting(usize::MAX),
            large: Arc::new(Semaphore::new(LARGE_BYTES_OF_LOG >> 10)),
        }
    }

    /// Waits for the place and the memory of a read of earlier events.
    ///
    /// # Errors
    /// Those of [`LogReads::of_follower`].
    pub(super) async fn read(
        &self,
        reads: &LogReads,
        principal: Option<&str>,
        deadline: Instant,
    ) -> Result<EarlierRead, ProblemDetails> {
        let of_log = self.reads.take(principal, 1, deadline).await;
        let of_log = of_log.map_err(|why| LogReads::no_place(&self.reads, why))?;
        Ok(EarlierRead { _of_log: of_log, _of_all: reads.of_follower(principal, deadline).await? })
    }

    /// Waits for the memory of a large event. The caller holds nothing that others wait for.
    pub(super) async fn reserve(
        &self,
        all: &MemoryPool,
        bytes: usize,
    ) -> Result<LargeShare, ProblemDetails> {
        let of_log = Arc::clone(&self.large).acquire_many_owned(kib_of(bytes)).await;
        let of_log = of_log.map_err(|_| all.problem(NoPlace::OfAll))?;
        Ok(LargeShare { of_log, of_all: all.reserve(None, bytes, Instant::FAR_FUTURE).await? })
    }

    /// Takes the memory of a large event, if there is free memory at once.
    pub(super) fn try_reserve(&self, all: &MemoryPool, bytes: usize) -> Option<LargeShare> {
        let of_log = Arc::clone(&self.large).try_acquire_many_owned(kib_of(bytes)).ok()?;
        Some(LargeShare { of_log, of_all: all.try_reserve(None, bytes).ok()? })
    }
}

/// An event that is larger than the quota takes the whole quota, and is not refused forever.
fn kib_of(bytes: usize) -> u32 {
    bytes.min(LARGE_BYTES_OF_LOG).div_ceil(1 << 10) as u32
}

impl LargeShare {
    /// Returns the event, which keeps the memory for as long as it exists.
    pub(super) fn into_bytes(self, json: Bytes) -> Bytes {
        self.of_all.into_bytes(OfLog { json, _share: self.of_log })
    }
}

struct OfLog {
    json: Bytes,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for OfLog {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use http_server::limits::ReadThrottle;

    use super::*;

    const MIB: usize = 1 << 20;

    /// The clients of one log that took nothing had all memory for large events. So the followers
    /// of all other logs waited until these clients were cut.
    #[tokio::test]
    async fn a_log_leaves_memory_for_the_large_events_of_others() {
        let all = MemoryPool::new("large events", 64 * MIB, Clock::system());
        let (slow, other) = (LogQuota::new(Clock::system()), LogQuota::new(Clock::system()));
        let take = |quota: &LogQuota| {
            let share = quota.try_reserve(&all, MIB)?;
            Some(share.into_bytes(vec![0; MIB].into()))
        };
        let mut held: Vec<_> = std::iter::from_fn(|| take(&slow)).collect();
        assert_eq!(held.len(), LARGE_BYTES_OF_LOG / MIB);
        let mut waits = std::pin::pin!(slow.reserve(&all, MIB));
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(take(&other).is_some(), "the clients of a log wait for each other only");
        // A client of the log has received an event.
        held.pop();
        waits.now_or_never().unwrap().unwrap();
        // An event of any size is sent at last.
        held.clear();
        assert!(slow.try_reserve(&all, 99 * MIB).is_some());
    }

    /// The followers of one principal had all turns to read earlier events, and all places of a
    /// log.
    #[tokio::test]
    async fn a_principal_leaves_turns_to_the_followers_of_others() {
        let clock = Clock::system();
        let memory = || MemoryPool::new("test", 64 * MIB, clock.clone());
        let reads = LogReads::new(ReadThrottle::of_runtime(), 8, memory(), memory(), clock.clone());
        let (one, two) = (LogQuota::new(clock.clone()), LogQuota::new(clock.clone()));
        let soon = || clock.now() + Duration::from_millis(20);
        let _slow = one.read(&reads, Some("slow"), soon()).await.unwrap();
        for log in [&one, &two] {
            let refused = log.read(&reads, Some("slow"), soon()).await.unwrap_err();
            assert_eq!(refused.code(), "rate_limited");
        }
        let _other = one.read(&reads, Some("other"), soon()).await.unwrap();
        let refused = two.read(&reads, Some("third"), soon()).await.unwrap_err();
        assert_eq!(refused.code(), "too_many_followers");
    }
}
