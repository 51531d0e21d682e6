//! The calls of the engine to the storage.

use std::time::Duration;

use causes::with_causes;
use clock::Instant;
use sysvvm::{
    OwnerRows,
    ownership::{OwnershipAnswer, OwnershipCall},
};
use tracing::{error, warn};

use super::OwnedPartitions;
use crate::Problem;

/// The interval at which a failure of the same call is logged again.
const LOG_EVERY: Duration = Duration::from_secs(10);

impl OwnedPartitions<'_> {
    /// Makes a call. Meanwhile partitions that stop are noted.
    pub(super) async fn call(&mut self, call: &OwnershipCall) -> Result<OwnershipAnswer, Problem> {
        let clock = self.deployer.node.clock().clone();
        let sent = clock.now();
        let deadline = sent + self.deployer.settings.lease.call_timeout;
        let rows = self.rows.clone();
        let mut answer = std::pin::pin!(clock.timeout_at(deadline, rows.answer(call, deadline)));
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                stop = self.stops.next() => self.note_stop(stop)?,
                (checked, waiting) = self.checks.next() => self.note_check(checked, waiting)?,
            }
        };
        let now = clock.now();
        // A write without an answer may have been sent.
        match answered.unwrap_or(Ok(OwnershipAnswer::Unknown)) {
            Ok(answer) => {
                if matches!(answer, OwnershipAnswer::Rows(_)) {
                    self.looked = Some(sent);
                }
                let failed = [OwnershipAnswer::Unavailable, OwnershipAnswer::Unknown];
                if failed.contains(&answer) && now >= self.log_at {
                    self.log_at = now + LOG_EVERY;
                    warn!("storage does not answer: owners of partitions not known");
                }
                Ok(answer)
            }
            Err(error) => {
                self.note(&error, now);
                Ok(OwnershipAnswer::Unavailable)
            }
        }
    }

    /// Notes an error of a call that changed nothing. A partition whose row makes no sense is
    /// not taken any more.
    fn note(&mut self, error: &sysvvm::Error, now: Instant) {
        let blocked = OwnerRows::partition_of(error);
        if let Some(partition) = blocked {
            self.engine.set_aside(now, partition);
        }
        let is_new = blocked.is_some_and(|partition| self.blocked.insert(partition));
        if is_new || now >= self.log_at {
            self.log_at = now + LOG_EVERY;
            error!(error = %with_causes(error), "owners of partitions not known");
        }
    }
}
