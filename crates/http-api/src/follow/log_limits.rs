//! What one log may take of the limits that the followers of all logs share.
//!
//! Invariant: a follower waits for the limit of its log before it waits for anything that all logs
//! share. So clients of a log that stop receiving, and a storage that does not answer for the log,
//! hold a bounded part of that, and only the other followers of the log wait for them.

use std::sync::Arc;

use clock::{Clock, Instant};
use http_server::{
    READ_BYTES,
    limits::{Asker, Full, Limit, LimitRules, Permit},
};

use super::tail::LARGE_BYTES;
use crate::limits::{Limits, earlier_reads};

/// The most memory of the large events of one log, in bytes. This counts events that are kept for
/// its followers, and events that its clients have not received. At most half of it is kept, so
/// that followers can read earlier events.
const LARGE_BYTES_OF_LOG: usize = 2 * LARGE_BYTES;

/// The most reads of earlier events of one log at the same time.
const READS_OF_LOG: usize = 2;

/// The limits of a log, and those of all logs.
#[derive(Debug)]
pub(super) struct LogLimits {
    reads: Arc<Limit>,
    /// The memory for large events, in bytes.
    large: Arc<Limit>,
    of_all: Arc<Limits>,
    clock: Clock,
}

impl LogLimits {
    pub(super) fn new(of_all: &Arc<Limits>, clock: &Clock) -> LogLimits {
        let large = LimitRules { most: LARGE_BYTES_OF_LOG, ..LimitRules::default() };
        LogLimits {
            reads: Limit::new(earlier_reads(READS_OF_LOG), clock),
            large: Limit::new(large, clock),
            of_all: Arc::clone(of_all),
            clock: clock.clone(),
        }
    }

    /// Waits for a read of earlier events: for a turn, and for memory.
    pub(super) async fn read(
        &self,
        principal: Option<&str>,
        until: Instant,
    ) -> Result<[Permit; 3], Full> {
        let who = Asker::new(principal, until);
        let of_log = self.reads.take(who, 1).await?;
        let of_all = self.of_all.earlier_reads.take(who, 1).await?;
        // The share of these reads bounds the memory of the principal, too. An answer that waits
        // for the share of its memory may be refused, and a follower must not be.
        let nobody = Asker::nobody(until).half(self.clock.now());
        Ok([of_log, of_all, self.of_all.answers.small.take(nobody, READ_BYTES).await?])
    }

    /// Waits for the memory of a large event. The caller holds nothing that others wait for.
    pub(super) async fn large(&self, bytes: usize) -> Result<[Permit; 2], Full> {
        let nobody = Asker::nobody(Instant::FAR_FUTURE);
        let of_log = self.large.take(nobody, bytes).await?;
        Ok([of_log, self.of_all.large_events.take(nobody, bytes).await?])
    }

    /// Takes the memory of a large event, if there is free memory at once.
    pub(super) fn try_large(&self, bytes: usize) -> Option<[Permit; 2]> {
        let of_log = self.large.try_take(None, bytes).ok()?;
        Some([of_log, self.of_all.large_events.try_take(None, bytes).ok()?])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use http_server::problem::ProblemDetails;

    use super::*;
    use crate::settings::HttpApiSettings;

    const MIB: usize = 1 << 20;

    fn limits() -> Arc<Limits> {
        let mut settings = HttpApiSettings::new(([127, 0, 0, 1], 0).into());
        settings.logs = 8;
        Arc::new(Limits::new(&settings, 2, &Clock::system()))
    }

    /// Clients of one log that received nothing held all memory for large events. So the followers
    /// of all other logs waited until these clients were cut.
    #[tokio::test]
    async fn a_log_leaves_memory_for_the_large_events_of_others() {
        let (all, clock) = (limits(), Clock::system());
        let (slow, other) = (LogLimits::new(&all, &clock), LogLimits::new(&all, &clock));
        let mut held: Vec<_> = std::iter::from_fn(|| slow.try_large(MIB)).collect();
        assert_eq!(held.len(), LARGE_BYTES_OF_LOG / MIB);
        let mut waits = std::pin::pin!(slow.large(MIB));
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(other.try_large(MIB).is_some(), "the clients of a log wait for each other only");
        // A client of the log has received an event.
        held.pop();
        waits.now_or_never().unwrap().unwrap();
        // Once all memory is free, an event of any size is sent.
        held.clear();
        assert!(slow.try_large(99 * MIB).is_some());
    }

    /// The followers of one principal held all turns to read earlier events, and all reads of a
    /// log.
    #[tokio::test]
    async fn a_principal_leaves_turns_to_the_followers_of_others() {
        let (all, clock) = (limits(), Clock::system());
        let (one, two) = (LogLimits::new(&all, &clock), LogLimits::new(&all, &clock));
        let soon = || clock.now() + Duration::from_millis(20);
        let refused = async |log: &LogLimits, principal| {
            ProblemDetails::from(log.read(Some(principal), soon()).await.unwrap_err()).code()
        };
        let _slow = one.read(Some("slow"), soon()).await.unwrap();
        for log in [&one, &two] {
            assert_eq!(refused(log, "slow").await, "rate_limited");
        }
        let _other = one.read(Some("other"), soon()).await.unwrap();
        assert_eq!(refused(&two, "third").await, "too_many_followers");
    }
}
