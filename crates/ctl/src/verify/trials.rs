//! The run of the trials of a suite.

use indicatif::ProgressBar;
use tck::trial::{Conclusion, Progress, Report, Trial, TrialRunner, run_all};

use crate::{
    CommandError,
    terminal::{progress_bar, say, step},
};

/// Returns the trials with names that contain the filter.
pub(crate) fn filtered<C>(
    trials: impl Iterator<Item = &'static Trial<C>>,
    filter: &str,
) -> Result<Vec<&'static Trial<C>>, CommandError> {
    let filtered: Vec<_> = trials.filter(|trial| trial.name().contains(filter)).collect();
    match filtered.is_empty() {
        true => Err(CommandError::usage(format!("no trial's name contains `{filter}`"))),
        false => Ok(filtered),
    }
}

/// Runs trials, and shows their progress.
pub(crate) async fn run_trials<R: TrialRunner>(
    runner: &R,
    selected: Vec<&'static Trial<R::Context>>,
) -> Report {
    let bar = progress_bar(selected.len() as u64);
    let report = run_all(runner, selected, |progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    report
}

/// Shows the progress of a trial. A trial that failed has a line of its own, on a terminal too.
fn show(bar: &ProgressBar, progress: Progress<'_>) {
    let trial = match progress {
        Progress::Started(name) => return bar.set_message(name),
        Progress::Finished(trial) => trial,
    };
    match &trial.conclusion {
        Conclusion::Passed => step(bar, format!("passed  {} ({:.1?})", trial.name, trial.took)),
        Conclusion::Ignored(reason) => step(bar, format!("ignored {}: {reason}", trial.name)),
        Conclusion::Failed(why) => {
            bar.inc(1);
            bar.suspend(|| say(format!("FAILED  {}: {why}", trial.name)));
        }
    }
}

/// Returns a number of times, in words.
pub(crate) fn times(n: u16) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}
