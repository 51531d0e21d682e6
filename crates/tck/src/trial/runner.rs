//! The run of many trials.

use async_trait::async_trait;
use clock::Clock;
use futures::{StreamExt, stream};

use crate::trial::{Conclusion, Progress, Report, Trial, TrialReport};

/// A suite on one subject. It makes a context for each trial, so trials may run side by side.
#[async_trait]
pub trait TrialRunner: Sync {
    /// The context of a trial.
    type Context: 'static;

    /// The number of trials that [`run_all`] runs at once. One unless the suite can run more.
    fn max_concurrent_trials(&self) -> usize {
        1
    }

    /// Runs one trial. This never panics, even if the subject does.
    ///
    /// # Cancel safety
    /// The trial ends when the future is dropped.
    async fn run(&self, trial: &Trial<Self::Context>) -> Conclusion;
}

/// Runs trials side by side, and reports their progress.
///
/// # Cancel safety
/// The same as for [`TrialRunner::run`].
pub async fn run_all<R: TrialRunner>(
    runner: &R,
    trials: impl IntoIterator<Item = &'static Trial<R::Context>>,
    progress: impl Fn(Progress<'_>),
) -> Report {
    let clock = Clock::system();
    let (start, progress) = (clock.now(), &progress);
    let run = async |(place, trial): (usize, &'static Trial<R::Context>)| {
        progress(Progress::Started(trial.name()));
        let start = clock.now();
        let conclusion = runner.run(trial).await;
        let report = TrialReport { name: trial.name(), conclusion, took: clock.now() - start };
        progress(Progress::Finished(&report));
        (place, report)
    };
    let runs = stream::iter(trials.into_iter().enumerate().map(run));
    let at_once = runner.max_concurrent_trials().max(1);
    let mut trials: Vec<_> = runs.buffer_unordered(at_once).collect().await;
    trials.sort_unstable_by_key(|(place, _)| *place);
    let trials = trials.into_iter().map(|(_, report)| report).collect();
    Report { trials, took: clock.now() - start }
}
