//! The task that renews a lease until the leadership ends.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use crate::{
    LossReason,
    engine::{Action, EngineInput, Notice},
    meters,
    runner::EngineRunner,
    term::Term,
};

/// The result of [`StoppedLeadership::release`](crate::StoppedLeadership::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lease of this leadership is no longer in the store: it was deleted, had expired, or was
    /// replaced. Another node can lead at once.
    LeaseGone,
    /// There was no time to delete the lease, or the store did not confirm that it is gone. Another
    /// node can lead when the lease has expired.
    LeftToExpire,
}

/// The task that renews a lease. The task ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct RenewalTask {
    term: Arc<Term>,
    stopped: mpsc::Sender<oneshot::Sender<()>>,
    task: tokio::task::AbortHandle,
}

impl RenewalTask {
    pub(crate) fn start(runner: EngineRunner, term: Arc<Term>, next: Action) -> RenewalTask {
        let (stopped, release) = mpsc::channel(1);
        // Make it here, because a runtime that is shut down may drop the task before its first
        // step.
        let lost = LossOnDrop(Arc::clone(&term));
        #[expect(clippy::disallowed_methods, reason = "the leadership owns the task and ends it")]
        let task = tokio::spawn(renew(runner, lost, next, release)).abort_handle();
        RenewalTask { term, stopped, task }
    }

    /// Ends the renewals and releases the lease.
    pub(crate) async fn release(&self) -> ReleaseOutcome {
        let (done, released) = oneshot::channel();
        // If the task has ended, or ends before the lease is deleted, `done` is dropped.
        let _ = self.stopped.send(done).await;
        match released.await {
            Ok(()) => ReleaseOutcome::LeaseGone,
            Err(_) => ReleaseOutcome::LeftToExpire,
        }
    }
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        self.term.lose(LossReason::Dropped);
        self.task.abort();
    }
}

async fn renew(
    mut runner: EngineRunner,
    lost: LossOnDrop,
    mut next: Action,
    mut release: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let term = &lost.0;
    let mut done = None;
    while next != Action::End {
        let input = tokio::select! {
            biased;
            Some(sender) = release.recv(), if done.is_none() => {
                done = Some(sender);
                EngineInput::Stopped
            }
            input = runner.perform(next) => input,
        };
        let input = match input {
            EngineInput::Woke => match term.lost() {
                Some(why) => EngineInput::Ends(why),
                None if is_healthy(&runner).await => EngineInput::Woke,
                None => EngineInput::Ends(LossReason::Unhealthy),
            },
            input => input,
        };
        let step = runner.engine.next(runner.clock.now(), input);
        match step.notice {
            Some(Notice::Extended { valid_until }) => {
                let left = term.valid_until().saturating_since(runner.clock.now());
                meters::renewed(term.seat, left);
                term.extend(valid_until, runner.budget.kill_at(valid_until));
            }
            Some(Notice::Lost(why)) => {
                term.lose(why);
            }
            Some(Notice::LeaseGone) => {
                if let Some(done) = done.take() {
                    // The receiver may be gone.
                    let _ = done.send(());
                }
            }
            Some(Notice::Leads { .. } | Notice::GaveUp(_)) | None => {}
        }
        next = step.next;
    }
}

/// How long the host has to show that it was not stuck, but stood still with the process.
const SECOND_LOOK_AFTER: Duration = Duration::from_millis(100);

/// Whether the host can go on. After a process stood still, all its tasks are late. So a host that
/// looks stuck is checked a second time.
async fn is_healthy(runner: &EngineRunner) -> bool {
    if runner.is_healthy() {
        return true;
    }
    runner.clock.sleep(SECOND_LOOK_AFTER).await;
    runner.is_healthy()
}

/// Ends the leadership when the renewing task ends. The task ends early if it panics, or if its
/// runtime drops it.
struct LossOnDrop(Arc<Term>);

impl Drop for LossOnDrop {
    fn drop(&mut self) {
        let is_panic = std::thread::panicking();
        self.0.lose(if is_panic { LossReason::Panicked } else { LossReason::Dropped });
    }
}
