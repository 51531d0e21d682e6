//! Ctrl-C and SIGTERM.
//!
//! Code that waits looks here and returns [`Error::Interrupted`]. Then the same code that stops
//! servers and children after a success stops them on the way out.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::error::{Error, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on a signal to stop is noted and does not end the process. SIGHUP counts too, which
/// comes when the terminal is closed.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if !REQUESTED.swap(true, Ordering::SeqCst) {
            eprintln!("\nstopping ...");
        }
    })
    .map_err(|error| Error::Failed(format!("cannot listen for Ctrl-C: {error}")))
}

/// Ends the waiting in all other threads, because the command has failed and must end.
pub(crate) fn give_up() {
    REQUESTED.store(true, Ordering::SeqCst);
}

/// Returns an error once this process was asked to stop.
pub(crate) fn check() -> Result<()> {
    if REQUESTED.load(Ordering::SeqCst) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Waits a moment between two looks at something, unless this process was asked to stop.
pub(crate) fn pause() -> Result<()> {
    thread::sleep(Duration::from_millis(50));
    check()
}
