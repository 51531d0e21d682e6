//! The progress of a command, on stderr.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use super::stderr::say;

/// Makes a bar with this many steps. Its clock also runs during a long step.
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

/// Shows how many bytes were read or written.
pub(crate) fn byte_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{bytes} {bytes_per_sec} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}
