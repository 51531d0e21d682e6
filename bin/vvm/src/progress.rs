//! The progress of a command, on stderr.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use tck::trial::{Conclusion, Progress, Report, Trial, TrialRunner, run_all};

use crate::say;

/// Makes a bar with so many steps. Its clock also runs during a long step.
pub(crate) fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// Counts a step as done. On a terminal the bar shows the step, elsewhere a line does.
pub(crate) fn step(bar: &ProgressBar, line: String) {
    bar.inc(1);
    if !std::io::stderr().is_terminal() {
        say(line);
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
