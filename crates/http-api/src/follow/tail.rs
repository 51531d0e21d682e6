//! The last events of a followed log, which its followers share. Nothing is read here.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use clock::Instant;
use http_server::event_stream::COPIED_BYTES;

/// The most bytes of small events that a log keeps for its followers.
pub(crate) const TAIL_BYTES: usize = 32 << 10;

/// The most bytes of large events that a log keeps for its followers. The last event may be larger.
pub(super) const LARGE_BYTES: usize = 4 << 20;

/// How long a log keeps large events. All waiting followers take an event within this time.
pub(super) const LARGE_TIME: Duration = Duration::from_secs(5);

/// The last events of a log.
#[derive(Debug)]
pub(super) struct Tail {
    /// The offset of the first event that is kept, or of the next one.
    first: u64,
    events: VecDeque<TailEvent>,
    small_bytes: usize,
    large_bytes: usize,
    /// The reason why no event follows.
    failure: Option<String>,
}

#[derive(Debug)]
struct TailEvent {
    json: Bytes,
    added: Instant,
}

/// What a follower finds in the tail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TailEvents {
    /// The next events.
    Events(Vec<Bytes>),
    /// The next event is no longer kept.
    Behind,
    /// The tail does not have the next event yet.
    End,
    /// The next event cannot be read.
    Failed(String),
}

impl Tail {
    pub(super) fn new(next: u64) -> Tail {
        Tail { first: next, events: VecDeque::new(), small_bytes: 0, large_bytes: 0, failure: None }
    }

    /// Returns the events from an offset on: the first one always, more only while they have at
    /// most `most` bytes together.
    pub(super) fn events(&self, next: u64, most: usize) -> TailEvents {
        let Some(skip) = next.checked_sub(self.first) else { return TailEvents::Behind };
        let mut bytes = 0;
        let fits = |event: &&TailEvent| {
            let is_first = bytes == 0;
            bytes += event.json.len();
            is_first || bytes <= most
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let events = self.events.iter().skip(skip).take_while(fits);
        let events: Vec<_> = events.map(|event| event.json.clone()).collect();
        match (events.is_empty(), &self.failure) {
            (false, _) => TailEvents::Events(events),
            (true, None) => TailEvents::End,
            (true, Some(reason)) => TailEvents::Failed(reason.clone()),
        }
    }

    /// The offset after the last event.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Adds the next event. `None` means that there is no memory for it: the tail begins after it.
    pub(super) fn add(&mut self, json: Option<Bytes>, now: Instant) {
        let Some(json) = json else {
            *self = Tail::new(self.end() + 1);
            return;
        };
        *self.bytes_of(json.len()) += json.len();
        self.events.push_back(TailEvent { json, added: now });
        while self.small_bytes > TAIL_BYTES
            || (self.large_bytes > LARGE_BYTES && self.events.len() > 1)
        {
            self.drop_oldest();
        }
        self.drop_large(now);
    }

    /// Drops large events that are older than [`LARGE_TIME`], and all events before them.
    pub(super) fn drop_large(&mut self, now: Instant) {
        let is_old =
            |event: &TailEvent| is_large(event.json.len()) && event.added + LARGE_TIME <= now;
        while self.large_bytes > 0 && self.events.iter().any(is_old) {
            self.drop_oldest();
        }
    }

    pub(super) fn has_large(&self) -> bool {
        self.large_bytes > 0
    }

    /// Ends the tail: no event follows.
    pub(super) fn fail(&mut self, reason: String) {
        self.failure = Some(reason);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.events.pop_front() {
            *self.bytes_of(oldest.json.len()) -= oldest.json.len();
            self.first += 1;
        }
    }

    fn bytes_of(&mut self, len: usize) -> &mut usize {
        if is_large(len) { &mut self.large_bytes } else { &mut self.small_bytes }
    }
}

/// Whether an event has a share of the memory for large events, and is not copied.
pub(super) fn is_large(bytes: usize) -> bool {
    bytes > COPIED_BYTES
}

#[cfg(test)]
mod tests;
