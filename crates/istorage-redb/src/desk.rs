//! What the writer and the filer hand to each other.
//!
//! The writer hands over one filing, and no other before that one is done. The filer tries until
//! the storage file has it. So a thread that waits for the filer waits for one try, and gets its
//! error: nothing waits for a disk that fails.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base::locks::lock;
use istorage::{ErrorKind, Result};
use tokio::sync::oneshot;

use crate::{
    backup::BackupRun, errors::FileFailure, layout::KeyspaceChange, log::LogState,
    mem_table::MemTable,
};

/// Rows that go into the storage file in one durable commit.
pub(crate) struct Filing {
    pub(crate) rows: Arc<MemTable>,
    /// What the file has afterwards.
    pub(crate) state: LogState,
    pub(crate) also: Also,
}

/// What is done together with a filing. If the filing certainly failed, it is given up.
pub(crate) enum Also {
    Nothing,
    Change(KeyspaceChange),
    /// Takes the snapshot of a backup.
    Backup(oneshot::Sender<Result<BackupRun>>),
}

/// What the filer does next.
pub(crate) enum FilerWork {
    File(Filing),
    /// A read or a write failed: opens the file again if it has failed, and then removes expired
    /// rows.
    Check,
    /// Nothing waits.
    Idle,
}

/// How long the filer rests after a try that failed, and between two looks for expired rows.
const PAUSE: Duration = Duration::from_secs(1);

/// The place where filings wait.
pub(crate) struct Desk {
    state: Mutex<DeskState>,
    changed: Condvar,
    pause: Duration,
}

#[derive(Default)]
struct DeskState {
    /// The filing that the filer has not begun, or that it tries again.
    filing: Option<Filing>,
    /// Whether a filing is not done.
    is_pending: bool,
    /// The number of tries so far, and the end of the last one.
    tries: u64,
    failed: Option<FileFailure>,
    /// The number of tries that somebody waits for. The next one begins at once if it is larger.
    awaited_tries: u64,
    /// Whether what was to be done together with the filing is done, or was given up.
    also: Option<std::result::Result<(), FileFailure>>,
    is_to_check: bool,
    /// The number of checks so far, and the number that somebody waits for.
    checks: u64,
    awaited_checks: u64,
    /// Whether the filer is at work.
    is_at_work: bool,
    /// Whether the filer is to end, or has ended.
    has_ended: bool,
    /// How long the last filing took.
    took: Duration,
}

impl Default for Desk {
    fn default() -> Desk {
        Desk::new(PAUSE)
    }
}

impl DeskState {
    /// Whether the filer has something to do that does not wait for its pause.
    fn has_new(&self) -> bool {
        let is_due = self.failed.is_none() || self.is_try_awaited();
        self.filing.is_some() && is_due || self.is_to_check || self.checks < self.awaited_checks
    }

    /// Whether somebody waits for a try that has not ended.
    fn is_try_awaited(&self) -> bool {
        self.is_pending && self.tries < self.awaited_tries
    }
}

impl Desk {
    /// A desk whose filer rests for `pause` after a try that failed, and between two looks for
    /// expired rows.
    pub(crate) fn new(pause: Duration) -> Desk {
        Desk { state: Mutex::default(), changed: Condvar::new(), pause }
    }

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
        if state.is_pending {
            // A try that is under way counts.
            let until = state.tries + 1;
            state.awaited_tries = until;
            self.changed.notify_all();
            let is_awaited = |state: &DeskState| state.is_pending && state.tries < until;
            state = self.wait_while(state, is_awaited);
        }
        match (&state.failed, state.is_pending) {
            (_, false) => Ok(()),
            (Some(failure), true) => Err(failure.clone()),
            (None, true) => Err(ended()),
        }
    }

    /// Waits until a condition is false, or the filer has ended.
    fn wait_while<'d>(
        &self,
        state: MutexGuard<'d, DeskState>,
        condition: impl Fn(&DeskState) -> bool,
    ) -> MutexGuard<'d, DeskState> {
        let waits = |state: &mut DeskState| !state.has_ended && condition(state);
        self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of what was done together with the filing: done, or given up. It is told once.
    /// `None` while it is not known.
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
        state.awaited_checks = until;
        self.changed.notify_all();
        drop(self.wait_while(state, |state| state.checks < until));
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

    /// Waits for the next work of the filer. `None` if the filer is to end.
    pub(crate) fn next(&self) -> Option<FilerWork> {
        let mut state = lock(&self.state);
        state.is_at_work = false;
        let has_nothing = |state: &mut DeskState| !(state.has_new() || state.has_ended);
        let waited = self.changed.wait_timeout_while(state, self.pause, has_nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.has_ended {
            return None;
        }
        state.is_at_work = true;
        if std::mem::take(&mut state.is_to_check) || state.checks < state.awaited_checks {
            return Some(FilerWork::Check);
        }
        Some(state.filing.take().map_or(FilerWork::Idle, FilerWork::File))
    }

    /// Whether the filer has something else to do than to remove expired rows.
    pub(crate) fn has_work(&self) -> bool {
        let state = lock(&self.state);
        state.filing.is_some() || state.has_new() || state.has_ended
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
                Also::Change(_) => state.also = Some(Err(failure.clone())),
            }
        }
        (state.filing, state.failed) = (Some(filing), Some(failure));
        state.tries += 1;
        self.changed.notify_all();
    }
}

/// What a simulated disk must know of the filer.
#[cfg(test)]
impl Desk {
    /// Whether the filer does nothing until somebody gives it work, or its pause is over.
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.has_ended || !(state.is_at_work || state.has_new())
    }

    /// Whether the writer waits for the filer.
    pub(crate) fn is_awaited(&self) -> bool {
        let state = lock(&self.state);
        state.has_ended || state.is_try_awaited() || state.checks < state.awaited_checks
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
    fn try_once(desk: &Desk, failed: Option<FileFailure>) {
        loop {
            match desk.next() {
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
        // The pause is longer than the test: the writer asks for the second try.
        let desk = &Desk::new(Duration::from_secs(3_600));
        desk.hand_over(filing());
        thread::scope(|scope| {
            scope.spawn(move || {
                for failed in [Some(failure()), Some(failure()), None] {
                    try_once(desk, failed);
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
        let desk = Desk::new(Duration::from_millis(1));
        desk.hand_over(filing());
        try_once(&desk, Some(failure()));
        assert!(desk.is_pending());
        try_once(&desk, None);
        assert!(!desk.is_pending());
        assert!(matches!(desk.next(), Some(FilerWork::Idle)));
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
        assert!(desk.next().is_none());
    }
}
