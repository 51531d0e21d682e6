//! The last events of a log that somebody follows. All its followers share them: each event is read
//! and rendered once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use vvm::{
    OwnedLog,
    processor::{LogName, LogWatch},
};

/// The most bytes of events that a log keeps for its followers. A follower that needs older events
/// reads them itself.
const TAIL_BYTES: usize = 32 << 10;

/// The logs that somebody follows on this node.
#[derive(Debug, Default)]
pub(crate) struct FollowedLogs(Mutex<HashMap<FollowedKey, Weak<FollowedLog>>>);

/// The key of a log: the number of its application on this node, the epoch of the owner, and the log.
type FollowedKey = ((usize, u64), LogName);

impl FollowedLogs {
    /// Returns a log for one more follower.
    pub(crate) fn of(&self, (app, epoch): (usize, u64), log: &OwnedLog) -> Arc<FollowedLog> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(((app, epoch), log.name())).or_default();
        if let Some(known) = known.upgrade() {
            return known;
        }
        let new = Arc::new(FollowedLog::new(log));
        *known = Arc::downgrade(&new);
        // A search for each new log costs little beside the read of the log.
        all.retain(|_, log| log.strong_count() > 0);
        new
    }
}

/// A log that somebody follows.
#[derive(Debug)]
pub(crate) struct FollowedLog {
    tail: Mutex<Tail>,
    /// Held by the follower that reads the next events for all.
    pub(super) reading: tokio::sync::Mutex<()>,
    /// It keeps the count of changes alive: a count that began anew would hide changes from
    /// [`Tail::read_changes`].
    watch: LogWatch,
}

/// The last events of a log.
#[derive(Debug)]
struct Tail {
    /// The offset of the first event that is kept. `None` before the first read.
    first: Option<u64>,
    events: VecDeque<Bytes>,
    bytes: usize,
    /// The count of changes before the last read that came to the end of the log.
    read_changes: Option<u64>,
}

/// What a follower finds in the tail.
pub(super) enum TailEvents {
    /// The next events.
    Events(Vec<Bytes>),
    /// The next event is not kept any more.
    Behind,
    /// The tail has no more events.
    End,
}

impl FollowedLog {
    fn new(log: &OwnedLog) -> FollowedLog {
        let tail = Tail { first: None, events: VecDeque::new(), bytes: 0, read_changes: None };
        FollowedLog {
            tail: Mutex::new(tail),
            reading: tokio::sync::Mutex::new(()),
            watch: log.watch(),
        }
    }

    /// Returns the events from an offset on: at least one, and of them at most so many bytes.
    pub(super) fn events(&self, next: u64, most: usize) -> TailEvents {
        let tail = self.tail();
        let Some(first) = tail.first else { return TailEvents::End };
        let Some(skip) = next.checked_sub(first) else { return TailEvents::Behind };
        let mut bytes = 0;
        let fits = |event: &&Bytes| {
            let is_first = bytes == 0;
            bytes += event.len();
            is_first || bytes <= most
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let events: Vec<_> = tail.events.iter().skip(skip).take_while(fits).cloned().collect();
        match events.is_empty() {
            true => TailEvents::End,
            false => TailEvents::Events(events),
        }
    }

    /// The count of changes of the log that are in the tail. `None`: all changes may be missing.
    pub(super) fn read_changes(&self) -> Option<u64> {
        self.tail().read_changes
    }

    /// The count of changes of the log.
    pub(super) fn changes(&self) -> u64 {
        self.watch.changes()
    }

    /// Whether events may be missing in the tail.
    pub(super) fn is_outdated(&self) -> bool {
        self.read_changes().is_none_or(|read| read < self.changes())
    }

    /// The offset at which the next read begins, for a follower that has read all events before
    /// `next`. The events before `next` are skipped: this follower does not need them, and the others
    /// read them themselves.
    pub(super) fn begin_read(&self, next: u64) -> u64 {
        let mut tail = self.tail();
        let end = tail.end();
        if end.is_none_or(|end| end < next) {
            (tail.first, tail.bytes) = (Some(next), 0);
            tail.events.clear();
        }
        tail.end().unwrap_or(next)
    }

    /// Adds the next events. `changes` is the count of changes before the read, if the read came to
    /// the end of the log.
    pub(super) fn add(&self, events: Vec<Bytes>, changes: Option<u64>) {
        let mut tail = self.tail();
        tail.bytes += events.iter().map(Bytes::len).sum::<usize>();
        tail.events.extend(events);
        while tail.bytes > TAIL_BYTES
            && let Some(oldest) = tail.events.pop_front()
        {
            tail.bytes -= oldest.len();
            tail.first = tail.first.map(|first| first + 1);
        }
        if changes.is_some() {
            tail.read_changes = changes;
        }
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    /// The offset after the last event.
    fn end(&self) -> Option<u64> {
        self.first.map(|first| first + self.events.len() as u64)
    }
}
