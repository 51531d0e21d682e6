//! Memory that requests share: a bound for all bodies together, and one for all answers together.
//!
//! A body takes its share as its bytes arrive. The answer of its command keeps the share. An answer
//! that is read from the storage takes its share before it is read. Both give it back when the
//! connection has written the answer.

use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, Instant};
use metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::reply::Trouble;

/// Memory for all bodies, or for all answers. It is counted in KiB.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    kib: usize,
    clock: Clock,
    /// For people: the memory for what is used up.
    of: &'static str,
    taken: Gauge,
}

impl Room {
    pub(crate) fn new(of: &'static str, bytes: usize, clock: Clock) -> Room {
        let kib = (bytes >> 10).clamp(1, u32::MAX as usize >> 1);
        let taken = metrics::gauge!("httpapi_room_taken_bytes", "of" => of);
        // It is there from the beginning.
        taken.increment(0);
        Room { free: Arc::new(Semaphore::new(kib)), kib, clock, of, taken }
    }

    /// A share for so many bytes, or all the room if that is less. Requests get their shares in the
    /// order in which they ask.
    ///
    /// # Errors
    /// `queue_full` if there was no room by the deadline.
    pub(crate) async fn share(&self, bytes: usize, deadline: Instant) -> Result<Share, Trouble> {
        let permit = self.acquire(self.kib_of(bytes), deadline).await?;
        self.taken.increment(bytes_of(&permit));
        Ok(Share { permit, room: self.clone() })
    }

    fn kib_of(&self, bytes: usize) -> usize {
        bytes.div_ceil(1 << 10).min(self.kib)
    }

    async fn acquire(
        &self,
        kib: usize,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, Trouble> {
        // It fits: `kib` is at most that of the room.
        let free = Arc::clone(&self.free).acquire_many_owned(kib as u32);
        match self.clock.timeout_at(deadline, free).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let reason = format!("the memory for all {} together is used up", self.of);
                Err(Trouble::unavailable("queue_full", reason))
            }
        }
    }
}

/// A part of a room. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    permit: OwnedSemaphorePermit,
    room: Room,
}

impl Share {
    /// From now on it is for so many bytes.
    ///
    /// # Errors
    /// As [`Room::share`]; it is as large as before then.
    pub(crate) async fn resize(&mut self, bytes: usize, deadline: Instant) -> Result<(), Trouble> {
        let (has, needs) = (self.permit.num_permits(), self.room.kib_of(bytes));
        if needs > has {
            let more = self.room.acquire(needs - has, deadline).await?;
            self.room.taken.increment(bytes_of(&more));
            self.permit.merge(more);
        } else if let Some(rest) = self.permit.split(has - needs) {
            self.room.taken.decrement(bytes_of(&rest));
        }
        Ok(())
    }

    /// Is for so many bytes from now on, as far as there is room at once; it never gets smaller.
    pub(crate) fn grow_at_once(&mut self, bytes: usize) {
        let more = self.room.kib_of(bytes).saturating_sub(self.permit.num_permits());
        if more > 0
            && let Ok(more) = Arc::clone(&self.room.free).try_acquire_many_owned(more as u32)
        {
            self.room.taken.increment(bytes_of(&more));
            self.permit.merge(more);
        }
    }

    /// Bytes that keep the share for as long as they are there.
    pub(crate) fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.taken.decrement(bytes_of(&self.permit));
    }
}

fn bytes_of(permit: &OwnedSemaphorePermit) -> f64 {
    (permit.num_permits() << 10) as f64
}

struct Held {
    bytes: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: usize = 1 << 20;

    /// All answers together had no bound: 2,000 documents of 1 MB that were read at the same time
    /// took 1.8 GB.
    #[tokio::test]
    async fn shares_are_never_more_than_the_room() {
        let clock = Clock::system();
        let room = Room::new("answers", 4 * MIB, clock.clone());
        let soon = || clock.now() + Duration::from_millis(20);
        let mut first = room.share(2 * MIB, soon()).await.unwrap();
        let second = room.share(2 * MIB, soon()).await.unwrap();
        assert_eq!(room.share(1, soon()).await.unwrap_err().code(), "queue_full");

        // A share that is made smaller leaves room for others, also when its bytes are held.
        first.resize(MIB, soon()).await.unwrap();
        let held = first.hold(vec![0; MIB]);
        let third = room.share(MIB, soon()).await.unwrap();
        assert!(room.share(1, soon()).await.is_err());
        drop((second, third));
        let mut fourth = room.share(2 * MIB, soon()).await.unwrap();
        assert!(fourth.resize(4 * MIB, soon()).await.is_err(), "1 MiB is held");
        drop(held);
        fourth.resize(4 * MIB, soon()).await.unwrap();
        drop(fourth);

        // An answer that is larger than the room takes all of it, and is not refused for ever.
        let all = room.share(99 * MIB, soon()).await.unwrap();
        assert!(room.share(1, soon()).await.is_err());
        drop(all);
        assert_eq!(room.free.available_permits(), room.kib);
    }
}
