//! Ctrl-C and SIGTERM. Whatever waits looks here, returns [`Error::Interrupted`], and what was started is stopped on the
//! way out by the same code that stops it after a success.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::error::{Error, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on a signal to stop is noted instead of ending the process. SIGHUP, when the terminal is closed, counts too.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if !REQUESTED.swap(true, Ordering::SeqCst) {
            eprintln!("\nstopping ...");
        }
    })
    .map_err(|error| Error::Failed(format!("cannot listen for Ctrl-C: {error}")))
}

/// Makes whatever waits in other threads end, because the command has failed and goes home.
pub(crate) fn give_up() {
    REQUESTED.store(true, Ordering::SeqCst);
}

/// An error once this process was asked to stop.
pub(crate) fn check() -> Result<()> {
    if REQUESTED.load(Ordering::SeqCst) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Waits a moment between two looks at something, unless asked to stop.
pub(crate) fn pause() -> Result<()> {
    thread::sleep(Duration::from_millis(50));
    check()
}
