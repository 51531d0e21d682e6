//! Opening a storage that is not available yet.

use std::time::Duration;

use clock::{Clock, Instant};
use tracing::{info, warn};

use crate::Problem;

/// The pause before the next attempt to open a storage.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How often the log reports that a storage is not available. The error text may differ each time.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Opens something. While the storage is not available, the function tries again until a deadline.
pub(crate) async fn retry_until<T, F: Future<Output = Result<T, Problem>>>(
    clock: &Clock,
    deadline: Instant,
    open: impl Fn() -> F,
) -> Result<T, Problem> {
    let mut timer = WarningTimer::default();
    loop {
        match open().await {
            Err(Problem::Storage(error)) if clock.now() + RETRY_DELAY < deadline => {
                if timer.is_due(clock.now()) {
                    warn!(error, retry_every = ?RETRY_DELAY, "waiting for the storage");
                }
                clock.sleep(RETRY_DELAY).await;
            }
            opened => {
                if opened.is_ok() && timer.0.is_some() {
                    info!("storage opened");
                }
                return opened;
            }
        }
    }
}

/// The time of the last line in the log.
#[derive(Debug, Default)]
struct WarningTimer(Option<Instant>);

impl WarningTimer {
    /// Whether a line is due now. If it is, the line counts as written.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|last| now >= last + WARN_INTERVAL);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    /// The log had a line each second, because each error named another server or another duration.
    #[test]
    fn a_storage_that_is_unavailable_is_logged_once_a_minute() {
        let start = ManualClock::new(0).clock().now();
        let mut timer = WarningTimer::default();
        let due = (0..180).filter(|second| timer.is_due(start + Duration::from_secs(*second)));
        assert_eq!(due.collect::<Vec<_>>(), [0, 60, 120]);
    }
}
