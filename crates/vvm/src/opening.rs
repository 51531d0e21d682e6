//! Opening a storage that cannot be used yet.

use std::time::Duration;

use clock::{Clock, Instant};
use tracing::{info, warn};

use crate::Problem;

/// How long a storage that cannot be used is left alone before it is tried again.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// How often the log says that a storage cannot be used. The text may be another one each time.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Opens something, and tries again while the storage cannot be used, until a deadline.
pub(crate) async fn until<T, F: Future<Output = Result<T, Problem>>>(
    clock: &Clock,
    deadline: Instant,
    open: impl Fn() -> F,
) -> Result<T, Problem> {
    let mut told = Told::default();
    loop {
        match open().await {
            Err(Problem::Storage(why)) if clock.now() + OPEN_AGAIN < deadline => {
                if told.is_due(clock.now()) {
                    warn!(why, retry_every = ?OPEN_AGAIN, "waiting for the storage");
                }
                clock.sleep(OPEN_AGAIN).await;
            }
            opened => {
                if opened.is_ok() && told.0.is_some() {
                    info!("storage opened");
                }
                return opened;
            }
        }
    }
}

/// When the log was told last.
#[derive(Debug, Default)]
struct Told(Option<Instant>);

impl Told {
    /// Whether the log is to be told now. Then it counts as told.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|told| now >= told + TELL_AGAIN);
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

    /// The log had a line each second, as the error named another server or another duration each time.
    #[test]
    fn a_storage_that_cannot_be_used_is_told_once_a_minute() {
        let start = ManualClock::new(0).clock().now();
        let mut told = Told::default();
        let due = (0..180).filter(|second| told.is_due(start + Duration::from_secs(*second)));
        assert_eq!(due.collect::<Vec<_>>(), [0, 60, 120]);
    }
}
