//! How far a command is, told on stderr.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use istorage_tck::{Conclusion, Progress};

use crate::say;

/// A bar for so many steps. It also goes on while a step takes long.
pub(crate) fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// A step is done: on a terminal the bar shows it, elsewhere a line.
pub(crate) fn step(bar: &ProgressBar, line: String) {
    bar.inc(1);
    if !std::io::stderr().is_terminal() {
        say(line);
    }
}

/// How a trial goes. One that failed has a line of its own everywhere.
pub(crate) fn show(bar: &ProgressBar, progress: Progress<'_>) {
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

/// How often, in words.
pub(crate) fn times(n: u16) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}
