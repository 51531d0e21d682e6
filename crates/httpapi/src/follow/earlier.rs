//! The events from before the tail of a log, which a follower reads itself.
//!
//! A task reads them, so that a timer gives the place and the memory of the read back also while the
//! client takes nothing. A simpler version reads while the answer is polled: eight clients that stop
//! to receive keep all places until they are cut, and all other followers wait for them.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Instant;
use tokio::{sync::mpsc, task::JoinSet};
use vvm::{OwnedLog, eventlog::Offset};

use super::{FollowContext, PIECE_BYTES, format::COPIED_BYTES};
use crate::read::{LogEvents, LogPermits};

/// The time after which a read gives its place to the next follower that waits for one.
const READ_TIME: Duration = Duration::from_secs(5);

/// A read of events for one follower. It ends when this value is dropped.
pub(super) struct EarlierEvents {
    pieces: mpsc::Receiver<io::Result<Vec<Bytes>>>,
    _reading: JoinSet<()>,
}

impl EarlierEvents {
    /// Waits for a place and for memory, and then reads from an event on.
    pub(super) fn begin(context: &Arc<FollowContext>, log: &OwnedLog, next: u64) -> EarlierEvents {
        let (context, log) = (Arc::clone(context), log.clone());
        EarlierEvents::spawn(|pieces| async move {
            // The wait is bounded: each follower before this one reads for `READ_TIME` at most.
            let permits = context.reads.of_follower(Instant::FAR_FUTURE).await;
            let permits = permits.map_err(|problem| io::Error::other(problem.reason().to_owned()));
            let entries = log.read(Offset(next)).map_err(io::Error::other);
            match permits.and_then(|permits| Ok((permits, entries?))) {
                Ok((permits, entries)) => {
                    let throttle = context.reads.throttle.clone();
                    let events = LogEvents::new(entries, log.name(), throttle);
                    send(&context, events, permits, &pieces).await;
                }
                // Without its follower nobody needs the error.
                Err(error) => drop(pieces.send(Err(error)).await),
            }
        })
    }

    /// Reads events with permits that were granted already.
    pub(super) fn read(
        context: &Arc<FollowContext>,
        events: LogEvents,
        permits: LogPermits,
    ) -> EarlierEvents {
        let context = Arc::clone(context);
        EarlierEvents::spawn(|pieces| async move {
            send(&context, events, permits, &pieces).await;
        })
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        reading: impl FnOnce(mpsc::Sender<io::Result<Vec<Bytes>>>) -> F,
    ) -> EarlierEvents {
        let (sender, pieces) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(reading(sender));
        EarlierEvents { pieces, _reading: tasks }
    }

    /// Waits for the next events. `None` if there are no more, or if the place went to others.
    pub(super) async fn next(&mut self) -> Option<io::Result<Vec<Bytes>>> {
        self.pieces.recv().await
    }
}

/// Sends events until there are no more, or the time of the read is over. The permits end with this
/// call.
async fn send(
    context: &FollowContext,
    mut events: LogEvents,
    _permits: LogPermits,
    pieces: &mpsc::Sender<io::Result<Vec<Bytes>>>,
) {
    let until = context.clock.now() + READ_TIME;
    while context.clock.now() < until {
        let piece = match events.next(PIECE_BYTES).await {
            Ok(events) if events.is_empty() => return,
            Ok(events) => match with_memory(context, events, until).await {
                Some(events) => Ok(events),
                None => return,
            },
            Err(error) => Err(io::Error::other(error)),
        };
        let is_last = piece.is_err();
        // A piece that the client does not take in time is read again later.
        let sent = context.clock.timeout_at(until, pieces.send(piece)).await;
        if is_last || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// Gives each large event a share of memory. `None` if there is none in time.
async fn with_memory(
    context: &FollowContext,
    mut events: Vec<Bytes>,
    until: Instant,
) -> Option<Vec<Bytes>> {
    for event in events.iter_mut().filter(|event| event.len() > COPIED_BYTES) {
        let share = context.large_events.reserve(event.len(), until).await.ok()?;
        *event = share.into_bytes(event.clone());
    }
    Some(events)
}
