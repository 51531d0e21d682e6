//! The logs that clients follow on this node, each with what its followers share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use base::locks::lock;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use vvm::{OwnedLog, processor::LogName};

use super::{context::FollowContext, log_limits::LogLimits, tail::Tail, tail_reader::TailReader};

/// The logs that clients follow on this node.
#[derive(Debug, Default)]
pub(crate) struct FollowedLogs(Mutex<HashMap<(FollowedPartition, LogName), Weak<FollowedLog>>>);

/// The partition of a log, under one ownership. Each partition counts its own epochs, so an epoch
/// alone does not identify a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FollowedPartition {
    /// The index of the application on this node.
    pub(crate) app: usize,
    pub(crate) partition: u16,
    pub(crate) epoch: u64,
}

impl FollowedLogs {
    /// Returns a log for one more follower. If nobody follows the log yet, its tail begins with the
    /// event `next`.
    pub(crate) fn of(
        &self,
        of: FollowedPartition,
        log: &OwnedLog,
        next: u64,
        context: &Arc<FollowContext>,
    ) -> Arc<FollowedLog> {
        let mut all = lock(&self.0);
        let known = all.entry((of, log.name())).or_default();
        if let Some(known) = known.upgrade().filter(|known| !known.has_failed()) {
            return known;
        }
        let new = Arc::new(FollowedLog::new(log, next, context));
        *known = Arc::downgrade(&new);
        // This search costs little compared with reading a log.
        all.retain(|_, log| log.strong_count() > 0);
        new
    }
}

/// A log that clients follow. Its task ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct FollowedLog {
    tail: watch::Receiver<Tail>,
    limits: Arc<LogLimits>,
    ended: CancellationToken,
    _reading: JoinSet<()>,
}

impl FollowedLog {
    fn new(log: &OwnedLog, next: u64, context: &Arc<FollowContext>) -> FollowedLog {
        let (sender, tail) = watch::channel(Tail::new(next));
        let limits = Arc::new(LogLimits::new(&context.limits, &context.clock));
        let ended = context.stop.child_token();
        let mut reading = JoinSet::new();
        let reader = TailReader::new(context, log, &limits, sender);
        reading.spawn(reader.run(ended.clone().drop_guard()));
        FollowedLog { tail, limits, ended, _reading: reading }
    }

    pub(super) fn tail(&self) -> &watch::Receiver<Tail> {
        &self.tail
    }

    pub(super) fn limits(&self) -> &Arc<LogLimits> {
        &self.limits
    }

    /// Cancelled when the node stops or the partition leaves it.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    fn has_failed(&self) -> bool {
        self.tail.borrow().has_failed()
    }
}
