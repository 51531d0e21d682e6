//! The memory that requests share, with one bound for all bodies and one for all answers.
//!
//! A body takes its share as its bytes arrive. The answer of its command takes over the share. An
//! answer that is read from the storage takes its share before the read, and document numbers
//! before they are drawn. All shares are given back when the connection has written the answer. Of
//! each of the two memories one principal holds [at most half](super::places). If only the memory
//! for answers had this rule, a principal that receives the results of its commands slowly would
//! hold all memory for bodies, and nobody else could write.
//!
//! Invariant: a request waits for the memory of its body before that of its answer, and a share
//! never waits to grow. So no two requests of one node wait for each other. Those of two nodes may;
//! the deadlines end that.

use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, Instant};
use metrics::Gauge;

use super::places::{NoPlace, Place, PlaceTaker, Places};
use crate::problem::ProblemDetails;

/// The share of memory that an answer takes before it is read: for a page of the storage, and for
/// the JSON of that page. Only records and events of more than about 1 MiB need more.
pub const READ_BYTES: usize = 2 << 20;

/// The code of a refusal.
const MEMORY_FULL: &str = "memory_full";

/// The memory for all bodies, or for all answers. It is counted in KiB.
#[derive(Clone, Debug)]
pub struct MemoryPool {
    kib: Arc<Places>,
    clock: Clock,
    /// The purpose of the memory, for the text of problems.
    of: &'static str,
    reserved: Gauge,
}

impl MemoryPool {
    /// Memory of so many bytes, for requests without principals.
    pub fn new(of: &'static str, bytes: usize, clock: Clock) -> MemoryPool {
        MemoryPool::of(of, Places::new(kib_in(bytes), MEMORY_FULL, clock.clone()), clock)
    }

    /// Memory for answers. A principal can always read two answers, so it reads documents while it
    /// takes a log. At most `waiting` requests of a principal wait for its share: each holds a
    /// connection.
    fn for_answers(of: &'static str, bytes: usize, waiting: usize, clock: Clock) -> MemoryPool {
        MemoryPool::with_shares(of, bytes, 2 * READ_BYTES, waiting, clock)
    }

    /// Memory of which each principal has a share, of at least `least` bytes. At most `waiting`
    /// requests of a principal wait for its share.
    pub fn with_shares(
        of: &'static str,
        bytes: usize,
        least: usize,
        waiting: usize,
        clock: Clock,
    ) -> MemoryPool {
        let kib = Places::new(kib_in(bytes), MEMORY_FULL, clock.clone());
        let kib = kib.least_of_one(kib_of(least)).most_waiting(waiting);
        MemoryPool::of(of, kib, clock)
    }

    fn of(of: &'static str, kib: Places, clock: Clock) -> MemoryPool {
        let reserved = metrics::gauge!("httpapi_memory_reserved_bytes", "of" => of);
        // The gauge exists from the beginning.
        reserved.increment(0);
        MemoryPool { kib: Arc::new(kib), clock, of, reserved }
    }

    /// Takes a share for this number of bytes, or the whole pool if that is smaller. Requests get
    /// their shares in the order in which they ask. A request that has a share does not ask for
    /// another one.
    ///
    /// # Errors
    /// `memory_full` if there was no free memory by the deadline. `rate_limited` if the principal
    /// had its part of the memory for as long, or too many of its requests wait already.
    pub async fn reserve<'p>(
        &self,
        taker: impl Into<PlaceTaker<'p>>,
        bytes: usize,
        deadline: Instant,
    ) -> Result<MemoryShare, ProblemDetails> {
        let place = self.kib.take(taker, kib_of(bytes), deadline).await;
        place.map(|place| self.share(place)).map_err(|why| self.problem(why))
    }

    /// Takes a share of the memory for answers, like [`reserve`](MemoryPool::reserve), but waits
    /// for at most half of the time that is left. The other half belongs to the work for which the
    /// share is needed.
    ///
    /// Without this rule an overload never ends: requests wait in order, so each request gets its
    /// share when its deadline is nearly over, and its work is given up. All requests behind it
    /// have the same fate, and no answer is ever finished.
    ///
    /// # Errors
    /// `memory_full` if there was no free memory in that time. `rate_limited` if the principal had
    /// its part of the memory for as long, or too many of its requests wait already.
    pub async fn reserve_in_half<'p>(
        &self,
        taker: impl Into<PlaceTaker<'p>>,
        bytes: usize,
        deadline: Instant,
    ) -> Result<MemoryShare, ProblemDetails> {
        let now = self.clock.now();
        self.reserve(taker, bytes, now + (deadline - now) / 2).await
    }

    /// Takes a share like [`reserve`](MemoryPool::reserve), if there is free memory at once.
    pub fn try_reserve(
        &self,
        principal: Option<&str>,
        bytes: usize,
    ) -> Result<MemoryShare, NoPlace> {
        self.kib.try_take(principal, kib_of(bytes)).map(|place| self.share(place))
    }

    fn share(&self, place: Place) -> MemoryShare {
        self.reserved.increment(bytes_of(&place));
        MemoryShare { place, pool: self.clone() }
    }

    /// The problem of a request that finds no free memory.
    pub fn problem(&self, why: NoPlace) -> ProblemDetails {
        self.kib.problem(why, |kib, of_one| {
            let (of, mib) = (self.of, kib as f64 / 1024.0);
            format!(
                "the memory for {of}{of_one} is used up, {mib} MiB: send the request again later"
            )
        })
    }
}

/// The memory for all answers.
#[derive(Clone, Debug)]
pub struct AnswerMemory {
    /// For answers that need at most [`READ_BYTES`].
    pub small: MemoryPool,
    /// For all others. Small answers do not wait behind them.
    pub large: MemoryPool,
    /// The most bytes of one answer.
    pub most: usize,
}

impl AnswerMemory {
    /// Memory of so many bytes, a quarter of them for large answers. At most `waiting` requests of
    /// a principal wait for its share of each part.
    pub fn new(bytes: usize, waiting: usize, clock: &Clock) -> AnswerMemory {
        let large = bytes / 4;
        let pool = |of, bytes| MemoryPool::for_answers(of, bytes, waiting, clock.clone());
        AnswerMemory {
            small: pool("answers", bytes - large),
            large: pool("large answers", large),
            most: bytes,
        }
    }

    /// The memory for an answer of so many bytes.
    pub fn of(&self, bytes: usize) -> &MemoryPool {
        if bytes > READ_BYTES { &self.large } else { &self.small }
    }
}

/// A part of a pool. Dropping the share gives the part back.
#[derive(Debug)]
pub struct MemoryShare {
    place: Place,
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
    pub fn resize(&mut self, bytes: usize) -> bool {
        self.try_resize(bytes).is_ok()
    }

    /// Changes the size of the share like [`resize`](MemoryShare::resize).
    ///
    /// # Errors
    /// `memory_full` if there is not enough free memory, and `rate_limited` if the principal has
    /// its part.
    pub(crate) fn resize_or_refuse(&mut self, bytes: usize) -> Result<(), ProblemDetails> {
        self.try_resize(bytes).map_err(|why| self.pool.problem(why))
    }

    fn try_resize(&mut self, bytes: usize) -> Result<(), NoPlace> {
        let before = bytes_of(&self.place);
        let resized = self.pool.kib.resize(&mut self.place, kib_of(bytes));
        self.pool.reserved.increment(bytes_of(&self.place) - before);
        resized
    }

    /// Changes the size of the share, for bytes that are there in any case. If there is not enough
    /// free memory, the share takes what is free. So no other request takes this rest, and makes
    /// further bytes that have no memory.
    pub(crate) fn resize_as_possible(&mut self, bytes: usize) {
        let before = bytes_of(&self.place);
        self.pool.kib.resize_as_possible(&mut self.place, kib_of(bytes));
        self.pool.reserved.increment(bytes_of(&self.place) - before);
    }

    /// Turns the bytes of a request that is done into `Bytes` that keep its share, if it has one.
    /// The share becomes as large as the memory allows.
    pub fn around(
        share: Option<MemoryShare>,
        bytes: impl AsRef<[u8]> + Into<Bytes> + Send + 'static,
    ) -> Bytes {
        let Some(mut share) = share else { return bytes.into() };
        share.resize_as_possible(bytes.as_ref().len());
        share.into_bytes(bytes)
    }

    /// Turns bytes into `Bytes` that keep the share for as long as they exist.
    pub fn into_bytes(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(BytesWithShare { bytes, _share: self })
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.pool.reserved.decrement(bytes_of(&self.place));
    }
}

/// The size of a pool.
fn kib_in(bytes: usize) -> usize {
    (bytes >> 10).clamp(1, u32::MAX as usize >> 1)
}

fn kib_of(bytes: usize) -> usize {
    bytes.div_ceil(1 << 10)
}

fn bytes_of(place: &Place) -> f64 {
    (place.count() << 10) as f64
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
