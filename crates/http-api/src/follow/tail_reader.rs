//! The task that reads the new events of a log once, for all its followers.

use std::sync::Arc;

use base::with_causes;
use bytes::Bytes;
use clock::Instant;
use http_server::{
    READ_BYTES,
    limits::{Asker, held_bytes},
    problem::ProblemDetails,
};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;
use vvm::{OwnedLog, eventlog::Offset, processor::LogWatch};

use super::{
    context::{FollowContext, PIECE_BYTES},
    log_limits::LogLimits,
    tail::{LARGE_TIME, Tail, is_large},
};
use crate::read::LogEvents;

/// The task that reads a log for all its followers.
pub(super) struct TailReader {
    context: Arc<FollowContext>,
    log: OwnedLog,
    limits: Arc<LogLimits>,
    changes: LogWatch,
    tail: watch::Sender<Tail>,
}

impl TailReader {
    pub(super) fn new(
        context: &Arc<FollowContext>,
        log: &OwnedLog,
        limits: &Arc<LogLimits>,
        tail: watch::Sender<Tail>,
    ) -> TailReader {
        TailReader {
            context: Arc::clone(context),
            log: log.clone(),
            limits: Arc::clone(limits),
            // The watch begins before the first read, so that no change is missed.
            changes: log.watch(),
            tail,
        }
    }

    /// Reads until the partition ends. The guard then ends all followers.
    pub(super) async fn run(mut self, _ended: DropGuard) {
        let mut partition = self.log.watch();
        let failure = tokio::select! {
            biased;
            () = partition.ended() => return,
            failure = self.read() => failure,
        };
        // Followers still get the events before the failure.
        self.tail.send_modify(|tail| tail.fail(failure));
        partition.ended().await;
    }

    /// Reads each event when it is applied. Returns the reason why an event cannot be read.
    async fn read(&mut self) -> String {
        loop {
            let known = self.changes.changes();
            if let Err(reason) = self.read_to_end().await {
                return reason;
            }
            if self.tail.borrow().has_large() {
                let until = self.context.clock.now() + LARGE_TIME;
                let changed = self.changes.changed(known);
                if self.context.clock.timeout_at(until, changed).await.is_err() {
                    let now = self.context.clock.now();
                    // This wakes no follower: none waits for a dropped event.
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

    /// Reads the events after the tail, up to the last applied one.
    async fn read_to_end(&mut self) -> Result<(), String> {
        let FollowContext { limits, clock, .. } = &*self.context;
        let nobody = Asker::nobody(Instant::FAR_FUTURE);
        let memory = limits.new_events.take(nobody, READ_BYTES).await;
        let _memory = memory.map_err(|full| ProblemDetails::from(full).reason().to_owned())?;
        let next = self.tail.borrow().end();
        let entries = self.log.read(Offset(next)).map_err(|busy| busy.to_string())?;
        let mut events = LogEvents::new(entries, self.log.name(), Arc::clone(&limits.turns));
        let with_memory = |json: Bytes| match is_large(json.len()) {
            true => {
                let permits = self.limits.try_large(json.len())?;
                Some(held_bytes(json, permits))
            }
            false => Some(json),
        };
        loop {
            let piece = events.next(PIECE_BYTES).await.map_err(|error| with_causes(&error))?;
            if piece.is_empty() {
                return Ok(());
            }
            let piece: Vec<_> = piece.into_iter().map(with_memory).collect();
            let now = clock.now();
            // The followers take these events while the next step pauses.
            self.tail.send_modify(|tail| piece.into_iter().for_each(|json| tail.add(json, now)));
        }
    }
}
