//! The events from before the tail of a log, which a follower reads itself.
//!
//! A task reads them, so that the read gives back its place and its memory even if the client stops
//! receiving. A simpler version reads while the answer is polled: eight clients that stop receiving
//! keep all places until they are cut, and all other followers wait for them.
//!
//! Invariant: the task holds a place only while it reads. It holds none while it waits for the
//! memory of a large event, or for longer than [`MOMENT`] for its client.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Instant;
use http_server::{
    limits::{Permit, held_bytes},
    problem::ProblemDetails,
};
use tokio::{sync::mpsc, task::JoinSet};
use vvm::{OwnedLog, eventlog::Offset};

use super::{
    context::{FollowContext, PIECE_BYTES},
    log_limits::LogLimits,
    logs::FollowedLog,
    tail::is_large,
};
use crate::{read::LogEvents, refusal::problem_of_busy};

/// After this time a read gives its place to the next follower that waits for one.
const READ_TIME: Duration = Duration::from_secs(5);

/// How long a read waits for its client before it gives its place back.
const MOMENT: Duration = Duration::from_millis(100);

/// The events of a log for one follower, from before the tail. The read ends when this value is
/// dropped.
pub(super) struct EarlierEvents {
    pieces: mpsc::Receiver<io::Result<Vec<Bytes>>>,
    _reading: JoinSet<()>,
}

/// A read that has its turn.
pub(super) struct BegunRead {
    pub(super) events: LogEvents,
    _permits: [Permit; 3],
}

/// The reader of the events of one follower.
pub(super) struct EarlierReader {
    context: Arc<FollowContext>,
    log: OwnedLog,
    limits: Arc<LogLimits>,
    principal: Option<Arc<str>>,
    /// The offset of the next event.
    next: u64,
}

/// Why a read ended.
enum ReadEnd {
    /// There are no more events, or the follower has left.
    Done,
    /// The time of the read is over, or its client does not take its events.
    Paused,
    /// The next event needs this many bytes of memory.
    NeedsMemory(usize),
}

impl EarlierEvents {
    /// Starts a task that reads events. The task begins with `begun`, if there is such a read.
    pub(super) fn begin(reader: EarlierReader, begun: Option<BegunRead>) -> EarlierEvents {
        let (sender, pieces) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(reader.run(begun, sender));
        EarlierEvents { pieces, _reading: tasks }
    }

    /// Waits for the next events. `None` if there are no more.
    pub(super) async fn next(&mut self) -> Option<io::Result<Vec<Bytes>>> {
        self.pieces.recv().await
    }
}

impl EarlierReader {
    pub(super) fn new(
        context: &Arc<FollowContext>,
        log: &OwnedLog,
        followed: &FollowedLog,
        principal: Option<&Arc<str>>,
        next: u64,
    ) -> EarlierReader {
        let (context, limits) = (Arc::clone(context), Arc::clone(followed.limits()));
        EarlierReader { context, log: log.clone(), limits, principal: principal.cloned(), next }
    }

    /// Waits for a turn, and begins to read.
    pub(super) async fn read(&self, deadline: Instant) -> Result<BegunRead, ProblemDetails> {
        let permits = self.limits.read(self.principal.as_deref(), deadline).await?;
        let entries = self.log.read(Offset(self.next));
        let entries = entries.map_err(problem_of_busy)?;
        let turns = Arc::clone(&self.context.limits.turns);
        Ok(BegunRead { events: LogEvents::new(entries, self.log.name(), turns), _permits: permits })
    }

    async fn run(
        mut self,
        mut begun: Option<BegunRead>,
        pieces: mpsc::Sender<io::Result<Vec<Bytes>>>,
    ) {
        let mut memory = None;
        loop {
            let read = match begun.take() {
                Some(read) => Ok(read),
                None => self.read(Instant::FAR_FUTURE).await,
            };
            let ended = match read {
                Ok(read) => self.send(read, memory.take(), &pieces).await,
                Err(problem) => Err(io::Error::other(problem.reason().to_owned())),
            };
            let needed = match ended {
                Ok(ReadEnd::Done) => return,
                Ok(ReadEnd::Paused) => continue,
                Ok(ReadEnd::NeedsMemory(bytes)) => self.limits.large(bytes).await,
                // If the follower has left, nobody needs the error.
                Err(error) => return drop(pieces.send(Err(error)).await),
            };
            memory = needed.ok();
        }
    }

    /// Sends events until the read ends. `memory` is for the first large event.
    async fn send(
        &mut self,
        read: BegunRead,
        mut memory: Option<[Permit; 2]>,
        pieces: &mpsc::Sender<io::Result<Vec<Bytes>>>,
    ) -> io::Result<ReadEnd> {
        let clock = &self.context.clock;
        let (until, mut read) = (clock.now() + READ_TIME, Some(read));
        while let Some(begun) = read.as_mut().filter(|_| clock.now() < until) {
            let events = begun.events.next(PIECE_BYTES).await.map_err(io::Error::other)?;
            if events.is_empty() {
                return Ok(ReadEnd::Done);
            }
            let (events, needed) = self.with_memory(events, &mut memory);
            let count = events.len() as u64;
            if count > 0 {
                let place = clock.timeout_at(clock.now() + MOMENT, pieces.reserve()).await;
                let place = match place {
                    Ok(place) => place,
                    Err(_) => {
                        // Others read while the client does not receive.
                        read = None;
                        pieces.reserve().await
                    }
                };
                let Ok(place) = place else { return Ok(ReadEnd::Done) };
                place.send(Ok(events));
                self.next += count;
            }
            if let Some(bytes) = needed {
                return Ok(ReadEnd::NeedsMemory(bytes));
            }
        }
        Ok(ReadEnd::Paused)
    }

    /// Gives each large event its memory. Stops at the first event that cannot get its memory at
    /// once. Returns the events before it, and its size.
    fn with_memory(
        &self,
        events: Vec<Bytes>,
        memory: &mut Option<[Permit; 2]>,
    ) -> (Vec<Bytes>, Option<usize>) {
        let mut ready = Vec::with_capacity(events.len());
        for event in events {
            if !is_large(event.len()) {
                ready.push(event);
                continue;
            }
            match memory.take().or_else(|| self.limits.try_large(event.len())) {
                Some(memory) => ready.push(held_bytes(event, memory)),
                None => return (ready, Some(event.len())),
            }
        }
        (ready, None)
    }
}
