//! How far a run of trials is.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use istorage_tck::{Conclusion, Progress};

use crate::say;

/// A bar for so many trials.
pub(crate) fn progress_bar(trials: usize) -> ProgressBar {
    let bar = ProgressBar::new(trials as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// On a terminal a bar, and only what is worth a line of its own; elsewhere a line for each trial.
pub(crate) fn show(bar: &ProgressBar, progress: Progress<'_>) {
    let terminal = std::io::stderr().is_terminal();
    match progress {
        Progress::Started(name) => bar.set_message(name),
        Progress::Finished(trial) => {
            bar.inc(1);
            let line = match &trial.conclusion {
                Conclusion::Passed => format!("passed  {} ({:.1?})", trial.name, trial.took),
                Conclusion::Ignored(reason) => format!("ignored {}: {reason}", trial.name),
                Conclusion::Failed(why) => format!("FAILED  {}: {why}", trial.name),
            };
            match &trial.conclusion {
                Conclusion::Failed(_) => bar.suspend(|| say(line)),
                _ if !terminal => say(line),
                _ => {}
            }
        }
    }
}
