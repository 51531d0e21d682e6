//! The repeats of an import's calls while the storage does not answer.

use std::time::Duration;

use clock::Clock;
use istorage::{Error, ErrorKind};

use crate::UnfinishedImport;

/// How long a call is repeated.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pause between two calls.
const PAUSE: Duration = Duration::from_millis(200);

/// Repeats a call while the storage is unavailable. `may_be_done_twice` tells whether a call with
/// an unknown outcome is repeated, too.
pub(crate) async fn persistently<T, E, F>(
    clock: &Clock,
    may_be_done_twice: bool,
    call: impl Fn() -> F,
) -> Result<T, UnfinishedImport>
where
    F: Future<Output = Result<T, E>>,
    UnfinishedImport: From<E>,
{
    let until = clock.now() + PATIENCE;
    loop {
        let failed = match clock.timeout_at(until, call()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => UnfinishedImport::from(error),
            Err(_) => Error::unavailable("the storage did not answer for two minutes").into(),
        };
        let is_repeatable = match failed.storage().map(Error::kind) {
            Some(ErrorKind::Unavailable) => true,
            Some(ErrorKind::OutcomeUnknown) => may_be_done_twice,
            _ => false,
        };
        if !is_repeatable || clock.now() + PAUSE >= until {
            return Err(failed);
        }
        clock.sleep(PAUSE).await;
    }
}
