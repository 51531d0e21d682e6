//! The services of an owner while they run: those of a partition, and those of a leadership.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::FutureExt;
use ielections::WorkGuard;
use tokio::{runtime::Handle, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ServiceError;

/// The shortest and the longest pause before a service that ended by itself starts again.
const RESTART_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The services that run for one owner.
#[derive(Debug)]
pub(crate) struct RunningServices {
    stop: CancellationToken,
    runtime: Handle,
    tasks: JoinSet<()>,
    /// Each task holds a clone. So the killer ends the process if a task does not end.
    work: Arc<WorkGuard>,
}

impl RunningServices {
    /// Makes a place for services, which run on a runtime until `stop` is cancelled.
    pub(crate) fn new(
        work: WorkGuard,
        stop: CancellationToken,
        runtime: Handle,
    ) -> RunningServices {
        RunningServices { stop, runtime, tasks: JoinSet::new(), work: Arc::new(work) }
    }

    /// The token that asks the services to end.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a service. It ends soon after the token is cancelled.
    pub(crate) fn start(&mut self, service: impl Future<Output = ()> + Send + 'static) {
        let held = Arc::clone(&self.work);
        let service = async move {
            service.await;
            drop(held);
        };
        self.tasks.spawn_on(service, &self.runtime);
    }

    /// Stops the services. Returns whether all have ended by the deadline; the others are aborted.
    pub(crate) async fn end(mut self, clock: &Clock, deadline: Instant) -> bool {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let has_ended = clock.timeout_at(deadline, ended).await.is_ok();
        if has_ended && let Ok(work) = Arc::try_unwrap(self.work) {
            work.finish();
        }
        has_ended
    }
}

/// Runs a service, again and again if it ends by itself, until `stop` is cancelled. Logs name the
/// service and its owner.
pub(crate) async fn keep_running<R>(
    service: &'static str,
    of: &str,
    clock: &Clock,
    stop: &CancellationToken,
    run: impl Fn() -> R,
) where
    R: Future<Output = Result<(), ServiceError>>,
{
    let [shortest, longest] = RESTART_PAUSES;
    let mut pause = shortest;
    info!(service, of, "owner service started");
    while !stop.is_cancelled() {
        let began = clock.now();
        let ended = AssertUnwindSafe(run()).catch_unwind().await;
        if stop.is_cancelled() {
            return;
        }
        let why = match ended {
            Ok(Ok(())) => "the service returned".to_owned(),
            Ok(Err(why)) => why.to_string(),
            Err(_) => "the service panicked".to_owned(),
        };
        if clock.now() - began >= longest {
            pause = shortest;
        }
        warn!(service, of, why, ?pause, "owner service ended");
        // Either the pause or the stop ends the wait.
        let _ = clock.timeout_at(clock.now() + pause, stop.cancelled()).await;
        pause = (pause * 2).min(longest);
    }
}
