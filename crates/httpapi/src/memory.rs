//! The memory that requests share, with one bound for all bodies and one for all answers.
//!
//! A body takes its share as its bytes arrive. The answer of its command takes over the share. An
//! answer that is read from the storage takes its share before the read, and document numbers before
//! they are drawn. All shares are given back when the connection has written the answer.
//!
//! Invariant: a request that waits for memory holds none.

use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, Instant};
use metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::ProblemDetails;

/// The memory for all bodies, or for all answers. It is counted in KiB.
#[derive(Clone, Debug)]
pub(crate) struct MemoryPool {
    free: Arc<Semaphore>,
    kib: usize,
    clock: Clock,
    /// The purpose of the memory, for the text of problems.
    of: &'static str,
    reserved: Gauge,
}

impl MemoryPool {
    pub(crate) fn new(of: &'static str, bytes: usize, clock: Clock) -> MemoryPool {
        let kib = (bytes >> 10).clamp(1, u32::MAX as usize >> 1);
        let reserved = metrics::gauge!("httpapi_memory_reserved_bytes", "of" => of);
        // The gauge exists from the beginning.
        reserved.increment(0);
        MemoryPool { free: Arc::new(Semaphore::new(kib)), kib, clock, of, reserved }
    }

    /// Takes a share for this number of bytes, or the whole pool if that is smaller. Requests get
    /// their shares in the order in which they ask. A request that has a share does not ask for
    /// another one.
    ///
    /// # Errors
    /// `memory_full` if there was no free memory by the deadline.
    pub(crate) async fn reserve(
        &self,
        bytes: usize,
        deadline: Instant,
    ) -> Result<MemoryShare, ProblemDetails> {
        // The number fits into 32 bits, because it is at most the size of the pool.
        let kib = self.kib_of(bytes) as u32;
        let free = Arc::clone(&self.free).acquire_many_owned(kib);
        let Ok(Ok(permit)) = self.clock.timeout_at(deadline, free).await else {
            return Err(self.exhausted());
        };
        self.reserved.increment(bytes_of(&permit));
        Ok(MemoryShare { permit, pool: self.clone() })
    }

    /// Takes a share like [`reserve`](MemoryPool::reserve), but waits for at most half of the time
    /// that is left. The other half belongs to the work for which the share is needed.
    ///
    /// Without this rule an overload never ends: requests wait in order, so each request gets its
    /// share when its deadline is nearly over, and its work is given up. All requests behind it
    /// have the same fate, and no answer is ever finished.
    ///
    /// # Errors
    /// `memory_full` if there was no free memory in that time.
    pub(crate) async fn reserve_in_half(
        &self,
        bytes: usize,
        deadline: Instant,
    ) -> Result<MemoryShare, ProblemDetails> {
        let now = self.clock.now();
        self.reserve(bytes, now + (deadline - now) / 2).await
    }

    /// Takes a share like [`reserve`](MemoryPool::reserve), if there is free memory at once.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Option<MemoryShare> {
        let kib = self.kib_of(bytes) as u32;
        let permit = Arc::clone(&self.free).try_acquire_many_owned(kib).ok()?;
        self.reserved.increment(bytes_of(&permit));
        Some(MemoryShare { permit, pool: self.clone() })
    }

    /// The problem of a request that finds no free memory.
    pub(crate) fn exhausted(&self) -> ProblemDetails {
        let reason = format!("the memory for {} is used up: send the request again later", self.of);
        ProblemDetails::unavailable("memory_full", reason)
    }

    fn kib_of(&self, bytes: usize) -> usize {
        bytes.div_ceil(1 << 10).min(self.kib)
    }
}

/// A part of a pool. Dropping the share gives the part back.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    permit: OwnedSemaphorePermit,
    pool: MemoryPool,
}

impl MemoryShare {
    /// Changes the size of the share. Returns false, and leaves the share as it is, if there is not
    /// enough free memory at once.
    ///
    /// A share does not wait for more memory, because shares that waited would wait for each other.
    /// For example, 64 answers with 2 MiB each fill a pool of 128 MiB, and none of them could
    /// become larger or end.
    #[must_use]
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let (has, needs) = (self.permit.num_permits(), self.pool.kib_of(bytes));
        if needs > has {
            let free = Arc::clone(&self.pool.free);
            let Ok(more) = free.try_acquire_many_owned((needs - has) as u32) else { return false };
            self.pool.reserved.increment(bytes_of(&more));
            self.permit.merge(more);
        } else if let Some(rest) = self.permit.split(has - needs) {
            self.pool.reserved.decrement(bytes_of(&rest));
        }
        true
    }

    /// Turns bytes into `Bytes` that keep the share for as long as they exist.
    pub(crate) fn into_bytes(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(BytesWithShare { bytes, _share: self })
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.pool.reserved.decrement(bytes_of(&self.permit));
    }
}

fn bytes_of(permit: &OwnedSemaphorePermit) -> f64 {
    (permit.num_permits() << 10) as f64
}

struct BytesWithShare<B> {
    bytes: B,
    _share: MemoryShare,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for BytesWithShare<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests;
