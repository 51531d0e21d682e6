//! The finding of a trial that must fail, because a part under it is wrong on purpose.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    panic::{self, AssertUnwindSafe},
    pin::pin,
    sync::Once,
};

use futures::FutureExt;

use crate::trial::{TrialResult, tasks};

thread_local! {
    /// Whether this thread runs a trial that must fail.
    static MUST_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a trial on a wrong implementation, and returns its finding: the text of its failure or
/// panic. `None` means that the trial passed, so it did not find what is wrong.
///
/// The panic of the trial is not printed. A panic of a task that the trial starts is printed.
pub async fn finding_of<R: TrialResult>(trial: impl Future<Output = R>) -> Option<String> {
    hide_expected_panics();
    let trial = async { trial.await.verdict() };
    let mut trial = pin!(AssertUnwindSafe(trial).catch_unwind());
    // The trial may go on in another thread after each wait.
    let ended = poll_fn(|context| {
        MUST_FAIL.set(true);
        let polled = trial.as_mut().poll(context);
        MUST_FAIL.set(false);
        polled
    });
    let verdict = ended.await.unwrap_or_else(|panic| Err(tasks::panicked(&*panic)));
    verdict.err().map(|end| end.to_string())
}

fn hide_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !MUST_FAIL.get() {
                usual(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{EarlyEnd, Verdict};

    #[tokio::test]
    async fn the_finding_of_a_trial_is_its_failure_or_its_panic() {
        let failed: Verdict = Err(EarlyEnd::Failed("row 3 is lost".to_owned()));
        let found = finding_of(async { failed }).await;
        assert_eq!(found.as_deref(), Some("row 3 is lost"));
        let panics = async {
            tasks::yield_now().await;
            assert_eq!(1, 2, "row 4 is lost");
        };
        let found = finding_of(panics).await.unwrap();
        assert!(found.contains("row 4 is lost"), "{found}");
        assert_eq!(finding_of(async {}).await, None);
    }
}
