//! The last events of a log that somebody follows. One task reads and renders each event, for all
//! followers of the log.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use causes::with_causes;
use clock::Instant;
use tokio::{
    sync::watch,
    task::{JoinSet, yield_now},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use vvm::{
    OwnedLog,
    eventlog::Offset,
    processor::{LogName, LogWatch},
};

use super::{FollowContext, PIECE_BYTES, format::COPIED_BYTES};
use crate::read::LogEvents;

/// The most bytes of small events that a log keeps for its followers.
pub(crate) const TAIL_BYTES: usize = 32 << 10;

/// The most bytes of large events that a log keeps for its followers. The last event may be larger.
const LARGE_BYTES: usize = 4 << 20;

/// The time for which a log keeps large events. All followers that wait take an event in this time.
const LARGE_TIME: Duration = Duration::from_secs(5);

/// The logs that somebody follows on this node.
#[derive(Debug, Default)]
pub(crate) struct FollowedLogs(Mutex<HashMap<(FollowedPartition, LogName), Weak<FollowedLog>>>);

/// The partition of a log, under one ownership. Each partition counts its own epochs, so an epoch
/// alone names no partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FollowedPartition {
    /// The place of the application on this node.
    pub(crate) app: usize,
    pub(crate) partition: u16,
    pub(crate) epoch: u64,
}

impl FollowedLogs {
    /// Returns a log for one more follower. If nobody follows the log yet, its tail begins with the
    /// event `next`.
    pub(super) fn of(
        &self,
        of: FollowedPartition,
        log: &OwnedLog,
        next: u64,
        context: &Arc<FollowContext>,
    ) -> Arc<FollowedLog> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry((of, log.name())).or_default();
        if let Some(known) = known.upgrade().filter(|known| !known.has_failed()) {
            return known;
        }
        let new = Arc::new(FollowedLog::new(log, next, context));
        *known = Arc::downgrade(&new);
        // A search for each new log costs little beside the read of the log.
        all.retain(|_, log| log.strong_count() > 0);
        new
    }
}

/// A log that somebody follows. Its task ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct FollowedLog {
    tail: watch::Receiver<Tail>,
    ended: CancellationToken,
    _reading: JoinSet<()>,
}

impl FollowedLog {
    fn new(log: &OwnedLog, next: u64, context: &Arc<FollowContext>) -> FollowedLog {
        let (sender, tail) = watch::channel(Tail::new(next));
        let ended = context.stop.child_token();
        let mut reading = JoinSet::new();
        let reader = TailReader {
            context: Arc::clone(context),
            log: log.clone(),
            // The watch begins before the first read, so that no change is missed.
            changes: log.watch(),
            tail: sender,
        };
        reading.spawn(reader.run(ended.clone().drop_guard()));
        FollowedLog { tail, ended, _reading: reading }
    }

    pub(super) fn tail(&self) -> &watch::Receiver<Tail> {
        &self.tail
    }

    /// Cancelled when the node stops or the partition leaves it.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    fn has_failed(&self) -> bool {
        self.tail.borrow().failure.is_some()
    }
}

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
    /// The next event is not kept any more.
    Behind,
    /// The tail does not have the next event yet.
    End,
    /// The next event cannot be read.
    Failed(String),
}

impl Tail {
    fn new(next: u64) -> Tail {
        Tail { first: next, events: VecDeque::new(), small_bytes: 0, large_bytes: 0, failure: None }
    }

    /// Returns the events from an offset on: at least one, and of them at most so many bytes.
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
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Adds the next event. `None`: there is no memory for it, so the tail begins behind it.
    fn add(&mut self, json: Option<Bytes>, now: Instant) {
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

    /// Drops large events that are older than [`LARGE_TIME`], and all before them.
    fn drop_large(&mut self, now: Instant) {
        let is_old =
            |event: &TailEvent| is_large(event.json.len()) && event.added + LARGE_TIME <= now;
        while self.large_bytes > 0 && self.events.iter().any(is_old) {
            self.drop_oldest();
        }
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
fn is_large(bytes: usize) -> bool {
    bytes > COPIED_BYTES
}

/// The task that reads a log for all its followers.
struct TailReader {
    context: Arc<FollowContext>,
    log: OwnedLog,
    changes: LogWatch,
    tail: watch::Sender<Tail>,
}

impl TailReader {
    /// Reads until the partition ends. The guard then ends all followers.
    async fn run(mut self, _ended: DropGuard) {
        let mut partition = self.log.watch();
        let failure = tokio::select! {
            biased;
            () = partition.ended() => return,
            failure = self.read() => failure,
        };
        // Followers still take the events in front of the failure.
        self.tail.send_modify(|tail| tail.failure = Some(failure));
        partition.ended().await;
    }

    /// Reads each event when it is applied. Returns the reason why an event cannot be read.
    async fn read(&mut self) -> String {
        loop {
            let known = self.changes.changes();
            if let Err(reason) = self.read_to_end().await {
                return reason;
            }
            if self.tail.borrow().large_bytes > 0 {
                let until = self.context.clock.now() + LARGE_TIME;
                let changed = self.changes.changed(known);
                if self.context.clock.timeout_at(until, changed).await.is_err() {
                    let now = self.context.clock.now();
                    // Nobody waits for what is dropped.
                    self.tail.send_if_modified(|tail| {
                        tail.drop_large(now);
                        false
                    });
                }
            }
            if self.changes.changed(known).await.is_err() {
                // The partition has ended, and with it this task.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Reads the events behind the tail, up to the last one that is applied.
    async fn read_to_end(&mut self) -> Result<(), String> {
        let FollowContext { reads, clock, large_events, .. } = &*self.context;
        let share = reads.share(Instant::FAR_FUTURE).await;
        let _share = share.map_err(|problem| problem.reason().to_owned())?;
        let next = self.tail.borrow().end();
        let entries = self.log.read(Offset(next)).map_err(|busy| busy.to_string())?;
        let mut events = LogEvents::new(entries, self.log.name(), reads.throttle.clone());
        loop {
            let piece = events.next(PIECE_BYTES).await.map_err(|error| with_causes(&error))?;
            if piece.is_empty() {
                return Ok(());
            }
            let piece: Vec<_> = piece
                .into_iter()
                .map(|json| match is_large(json.len()) {
                    true => {
                        large_events.try_reserve(json.len()).map(|share| share.into_bytes(json))
                    }
                    false => Some(json),
                })
                .collect();
            let now = clock.now();
            self.tail.send_modify(|tail| piece.into_iter().for_each(|json| tail.add(json, now)));
            // The followers take these events before the next ones are read.
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests;
