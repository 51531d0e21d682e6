//! What the writer and the filer hand to each other.
//!
//! The writer hands over one filing, and no other before that one is done. The filer tries until
//! the storage file has it. So a thread that waits for the filer waits for one try, and gets its
//! error: nothing waits for a disk that fails.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use base::locks::lock;
use istorage::{ErrorKind, Result};
use tokio::sync::oneshot;

use crate::{
    backup::BackupRun, errors::FileFailure, layout::Keyspace, log::LogState, mem_table::MemTable,
};

/// Rows that go into the storage file in one durable commit.
#[derive(Debug)]
pub(crate) struct Filing {
    pub(crate) rows: Arc<MemTable>,
    /// What the file has afterwards.
    pub(crate) state: LogState,
    pub(crate) also: Also,
}

/// What is done together with a filing. If the filing certainly failed, it is given up.
#[derive(Debug)]
pub(crate) enum Also {
    Nothing,
    Make(Arc<Keyspace>),
    Drop(Arc<Keyspace>),
    /// Takes the snapshot of a backup.
    Backup(oneshot::Sender<Result<BackupRun>>),
}

/// What the filer does next.
#[derive(Debug)]
pub(crate) enum FilerWork {
    File(Filing),
    /// A read or a write failed: opens the file again if it has failed.
    Check,
    /// Nothing waits.
    Idle,
}

/// The place where filings wait.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<DeskState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DeskState {
    /// The filing that the filer has not begun, or that it tries again.
    filing: Option<Filing>,
    /// Whether a filing is not done.
    is_pending: bool,
    /// The number of tries so far, and the end of the last one.
    tries: u64,
    failed: Option<FileFailure>,
    /// Whether what was to be done together with the filing is done, or was given up.
    also: Option<std::result::Result<(), FileFailure>>,
    /// Whether the next try is to begin at once.
    is_urgent: bool,
    is_to_check: bool,
    /// The number of checks so far.
    checks: u64,
    /// Whether the filer is to end, or has ended.
    has_ended: bool,
    /// How long the last filing took.
    took: Duration,
}

impl Desk {
    /// Hands over a filing. The one before is done.
    pub(crate) fn hand_over(&self, filing: Filing) {
        let mut state = lock(&self.state);
        debug_assert!(!state.is_pending, "one filing at a time");
        (state.filing, state.is_pending, state.failed) = (Some(filing), true, None);
        state.also = None;
        self.changed.notify_all();
    }

    /// Whether a filing is not done.
    pub(crate) fn is_pending(&self) -> bool {
        lock(&self.state).is_pending
    }

    /// Waits for one try of the filing. `Ok` if no filing is pending then.
    pub(crate) fn wait_for_try(&self) -> std::result::Result<(), FileFailure> {
        let mut state = lock(&self.state);
        // A try that is under way counts.
        let until = state.tries + 1;
        state.is_urgent = true;
        self.changed.notify_all();
        while state.is_pending && state.tries < until && !state.has_ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match (&state.failed, state.is_pending) {
            (_, false) => Ok(()),
            (Some(failure), true) => Err(failure.clone()),
            (None, true) => Err(ended()),
        }
    }

    /// Waits until what is done together with the filing is done or given up, or one try has ended
    /// without telling. Returns `None` then.
    pub(crate) fn wait_for_also(&self) -> Option<std::result::Result<(), FileFailure>> {
        drop(self.wait_for_try());
        self.take_also()
    }

    /// The end of what was done together with the filing. It is told once.
    pub(crate) fn take_also(&self) -> Option<std::result::Result<(), FileFailure>> {
        lock(&self.state).also.take()
    }

    /// Waits until no filing is pending, but not longer than `most`.
    pub(crate) fn wait_within(&self, most: Duration) {
        let state = lock(&self.state);
        let is_pending = |state: &mut DeskState| state.is_pending && !state.has_ended;
        drop(self.changed.wait_timeout_while(state, most, is_pending));
    }

    /// How long the last filing took.
    pub(crate) fn took(&self) -> Duration {
        lock(&self.state).took
    }

    /// Asks the filer to look whether the file works.
    pub(crate) fn check(&self) {
        lock(&self.state).is_to_check = true;
        self.changed.notify_all();
    }

    /// Waits until the filer has looked whether the file works.
    pub(crate) fn wait_for_check(&self) {
        let mut state = lock(&self.state);
        let until = state.checks + 1;
        state.is_to_check = true;
        self.changed.notify_all();
        while state.checks < until && !state.has_ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes the end of a check.
    pub(crate) fn checked(&self) {
        lock(&self.state).checks += 1;
        self.changed.notify_all();
    }

    /// Ends the filer, or tells that it has ended.
    pub(crate) fn end(&self) {
        lock(&self.state).has_ended = true;
        self.changed.notify_all();
    }

    /// Waits for the next work of the filer. It waits `pause` before it tries a filing again, or is
    /// idle. `None` if the filer is to end.
    pub(crate) fn next(&self, pause: Duration) -> Option<FilerWork> {
        let has_nothing = |state: &mut DeskState| {
            let is_new = state.filing.is_some() && (state.failed.is_none() || state.is_urgent);
            !(is_new || state.is_to_check || state.has_ended)
        };
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, pause, has_nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.has_ended {
            return None;
        }
        if std::mem::take(&mut state.is_to_check) {
            return Some(FilerWork::Check);
        }
        state.is_urgent = false;
        Some(state.filing.take().map_or(FilerWork::Idle, FilerWork::File))
    }

    /// Whether the filer has something else to do than to remove expired rows.
    pub(crate) fn has_work(&self) -> bool {
        let state = lock(&self.state);
        state.filing.is_some() || state.is_to_check || state.has_ended
    }

    /// Notes that the filing is done.
    pub(crate) fn done(&self, took: Duration) {
        let mut state = lock(&self.state);
        // It may have been given up before.
        state.also.get_or_insert(Ok(()));
        (state.is_pending, state.failed, state.took) = (false, None, took);
        state.tries += 1;
        self.changed.notify_all();
    }

    /// Notes that a try has failed. The filing is tried again. What was to be done together with it
    /// is given up if it certainly was not done.
    pub(crate) fn failed(&self, mut filing: Filing, failure: FileFailure) {
        let mut state = lock(&self.state);
        if !failure.is_unknown() {
            match std::mem::replace(&mut filing.also, Also::Nothing) {
                Also::Nothing => {}
                Also::Backup(reply) => drop(reply.send(Err(failure.clone().into()))),
                Also::Make(_) | Also::Drop(_) => state.also = Some(Err(failure.clone())),
            }
        }
        (state.filing, state.failed) = (Some(filing), Some(failure));
        state.tries += 1;
        self.changed.notify_all();
    }
}

fn ended() -> FileFailure {
    let why = "the thread that writes the storage file has ended".to_owned();
    FileFailure::new(ErrorKind::Unavailable, why)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::log::{LogNeed, LogPosition};

    fn filing() -> Filing {
        let state = LogState { position: LogPosition::new(1), need: LogNeed::Needed };
        Filing { rows: Arc::default(), state, also: Also::Nothing }
    }

    fn failure() -> FileFailure {
        FileFailure::new(ErrorKind::Unavailable, "the disk is full".to_owned())
    }

    /// Takes the next filing, and ends one try of it.
    fn try_once(desk: &Desk, pause: Duration, failed: Option<FileFailure>) {
        loop {
            match desk.next(pause) {
                Some(FilerWork::File(filing)) => {
                    return match failed {
                        Some(failure) => desk.failed(filing, failure),
                        None => desk.done(Duration::ZERO),
                    };
                }
                Some(_) => {}
                None => panic!("the desk has ended"),
            }
        }
    }

    /// A writer that waited for a filing to succeed waited for as long as the disk was full.
    #[test]
    fn a_waiting_writer_gets_the_error_of_one_try() {
        let desk = &Desk::default();
        desk.hand_over(filing());
        thread::scope(|scope| {
            // The pause is longer than the test: the writer asks for the second try.
            let pause = Duration::from_secs(3_600);
            scope.spawn(move || {
                for failed in [Some(failure()), Some(failure()), None] {
                    try_once(desk, pause, failed);
                }
            });
            let failed = |tried: std::result::Result<(), FileFailure>| tried.is_err();
            assert!(failed(desk.wait_for_try()));
            // The first of these two waits may see a try that was under way.
            while failed(desk.wait_for_try()) {}
        });
        assert!(!desk.is_pending());
        assert!(desk.wait_for_try().is_ok(), "nothing is pending");
    }

    #[test]
    fn a_filing_that_failed_is_tried_again_after_a_pause() {
        let desk = Desk::default();
        desk.hand_over(filing());
        try_once(&desk, Duration::ZERO, Some(failure()));
        assert!(desk.is_pending());
        try_once(&desk, Duration::from_millis(1), None);
        assert!(!desk.is_pending());
        assert!(matches!(desk.next(Duration::ZERO), Some(FilerWork::Idle)));
    }

    /// A filer that panicked left the writer waiting.
    #[test]
    fn nobody_waits_for_a_filer_that_has_ended() {
        let desk = Desk::default();
        desk.hand_over(filing());
        thread::scope(|scope| {
            scope.spawn(|| desk.end());
            assert!(desk.wait_for_try().is_err());
        });
        assert!(desk.next(Duration::from_secs(3_600)).is_none());
    }
}
