//! The pause between two attempts of a call on a keyspace, and the failure of the last attempt.

use std::time::Duration;

use clock::Clock;
use istorage::{Error, ErrorKind, Result};

/// The pause before a server is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Why the last attempt of a call could not go on. A call that misses its deadline reports this
/// reason as the cause.
pub(crate) type LastFailure = Option<Error>;

/// Waits before the next step. A step that failed as `Unavailable` is tried again until the caller
/// gives up.
pub(super) async fn pause(
    clock: &Clock,
    step: Result<()>,
    last_failure: &mut LastFailure,
) -> Result<()> {
    match step {
        Err(error) if error.kind() == ErrorKind::Unavailable => *last_failure = Some(error),
        step => step?,
    }
    clock.sleep(PAUSE).await;
    Ok(())
}
