//! A trial: one case of a suite, by name.

use std::{fmt, panic::AssertUnwindSafe, time::Duration};

use clock::Clock;
use futures::{FutureExt, future::BoxFuture};

use crate::trial::{Conclusion, Verdict, tasks};

/// One case of a suite. It runs in a context of the type `C`.
pub struct Trial<C> {
    name: &'static str,
    is_long: bool,
    call: for<'a> fn(&'a C) -> BoxFuture<'a, Verdict>,
}

impl<C> Trial<C> {
    /// Makes a trial from a function. [`trials!`](crate::trials) makes a list of them.
    pub const fn new(
        name: &'static str,
        call: for<'a> fn(&'a C) -> BoxFuture<'a, Verdict>,
    ) -> Trial<C> {
        Trial { name, is_long: false, call }
    }

    /// Marks the trial as [long](Trial::is_long).
    #[must_use]
    pub const fn long(self) -> Trial<C> {
        Trial { is_long: true, ..self }
    }

    /// The name of the trial, as `module::case`. A module is an operation, or a topic that several
    /// operations have in common.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the trial takes much longer than the others, so that its limit must be higher.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// Runs the trial on the thread of the caller, without a limit of time.
    ///
    /// # Errors
    /// Why the trial ended early. A trial that panics has failed.
    pub async fn call(&self, context: &C) -> Verdict {
        caught((self.call)(context)).await
    }

    /// Runs the trial in a task. This never panics. If the trial panics, or is not over after
    /// `limit`, it has failed.
    ///
    /// # Cancel safety
    /// The trial ends when the future is dropped.
    pub async fn run(&self, context: C, limit: Duration) -> Conclusion
    where
        C: Send + Sync + 'static,
    {
        let call = self.call;
        let task = tasks::spawn(async move { caught(call(&context)).await });
        // The limit is real time, not the time of the subject's clock, because a slow trial costs
        // people their time.
        let clock = Clock::system();
        match clock.timeout_at(clock.now() + limit, task).await {
            Ok(verdict) => verdict.into(),
            Err(_) => Conclusion::Failed(format!("not over after {limit:?}")),
        }
    }
}

async fn caught(call: BoxFuture<'_, Verdict>) -> Verdict {
    let ended = AssertUnwindSafe(call).catch_unwind().await;
    ended.unwrap_or_else(|panic| Err(tasks::panicked(&*panic)))
}

impl<C> fmt::Debug for Trial<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trial").field(&self.name).finish()
    }
}

/// The result of a trial's function: a verdict, or nothing if the function panics when it fails.
pub trait TrialResult {
    /// The verdict.
    ///
    /// # Errors
    /// Why the trial ended early.
    fn verdict(self) -> Verdict;
}

impl TrialResult for Verdict {
    fn verdict(self) -> Verdict {
        self
    }
}

impl TrialResult for () {
    fn verdict(self) -> Verdict {
        Ok(())
    }
}

/// Makes the list of a module's trials, of the type `&[Trial<C>]`.
///
/// A case is an async function `fn(&C)` that has the name of the case, or any name or closure after
/// `=`. The name of the trial is `module::case`, or `case` if the list names no module. The trials
/// of a `long` module are [long](crate::trial::Trial::is_long).
///
/// ```
/// # use tck::trial::{Trial, Verdict, trials};
/// const TRIALS: &[Trial<u32>] = trials!(numbers: are_even, are_large = |n| is_above(n, 100));
/// # async fn are_even(n: &u32) -> Verdict { Ok(()) }
/// # async fn is_above(n: &u32, limit: u32) { assert!(*n > limit) }
/// assert_eq!(TRIALS[1].name(), "numbers::are_large");
/// ```
#[macro_export]
macro_rules! trials {
    (long $module:ident: $($case:ident $(= $call:expr)?),+ $(,)?) => {
        &[$($crate::trials!(@ [stringify!($module), "::",] $case $(= $call)?).long()),+]
    };
    ($module:ident: $($case:ident $(= $call:expr)?),+ $(,)?) => {
        &[$($crate::trials!(@ [stringify!($module), "::",] $case $(= $call)?)),+]
    };
    ($($case:ident $(= $call:expr)?),+ $(,)?) => {
        &[$($crate::trials!(@ [] $case $(= $call)?)),+]
    };
    (@ [$($module:tt)*] $case:ident) => {
        $crate::trials!(@ [$($module)*] $case = $case)
    };
    (@ [$($module:tt)*] $case:ident = $call:expr) => {
        $crate::trial::Trial::new(concat!($($module)* stringify!($case)), |context| {
            Box::pin(async move { $crate::trial::TrialResult::verdict(($call)(context).await) })
        })
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::EarlyEnd;

    const SHORT: Duration = Duration::from_millis(20);
    const TRIALS: &[Trial<u32>] = trials!(long numbers: is_7, is_9 = |found| is(found, 9));
    const ALONE: &[Trial<u32>] = trials!(hangs, panics, is_left_out);

    async fn is_7(found: &u32) -> Verdict {
        crate::ensure_eq!(*found, 7, "the number");
        Ok(())
    }

    async fn is(found: &u32, expected: u32) {
        tasks::yield_now().await;
        assert_eq!(*found, expected);
    }

    async fn hangs(_: &u32) {
        std::future::pending().await
    }

    async fn panics(_: &u32) {
        panic!("on purpose");
    }

    async fn is_left_out(_: &u32) -> Verdict {
        Err(EarlyEnd::Ignored("numbers have no colour"))
    }

    #[tokio::test]
    async fn trials_of_a_list_have_its_names_and_its_functions() {
        assert_eq!([TRIALS[0].name(), TRIALS[1].name()], ["numbers::is_7", "numbers::is_9"]);
        assert_eq!(ALONE[0].name(), "hangs");
        assert!(TRIALS[0].is_long() && !ALONE[0].is_long());
        assert_eq!(TRIALS[0].run(7, SHORT).await, Conclusion::Passed);
        assert_eq!(TRIALS[1].run(9, SHORT).await, Conclusion::Passed);
        assert!(matches!(TRIALS[0].run(9, SHORT).await, Conclusion::Failed(_)));
    }

    #[tokio::test]
    async fn every_end_of_a_trial_has_a_conclusion() {
        let ended = ALONE[0].run(0, SHORT).await;
        assert_eq!(ended, Conclusion::Failed("not over after 20ms".to_owned()));
        let failed = "panicked: on purpose".to_owned();
        assert_eq!(ALONE[1].run(0, SHORT).await, Conclusion::Failed(failed.clone()));
        assert_eq!(ALONE[1].call(&0).await, Err(EarlyEnd::Failed(failed)));
        let ignored = Conclusion::Ignored("numbers have no colour");
        assert_eq!(ALONE[2].run(0, SHORT).await, ignored);
    }
}
