//! The life of a node: one task starts everything, watches it, and stops it in order.

use std::{mem, sync::Arc, time::Duration};

use clock::Instant;
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    Node, Problem, Stage,
    leading::{HeldLease, is_lost, until_lost},
    node::STAGE_CHECK_INTERVAL,
    parts::NodeParts,
    problem::FirstProblem,
    series,
    service::Services,
};

/// The times of a stop, in sixteenths of [`stop_within`](crate::NodeSettings::stop_within).
///
/// `AdminRequests` and `Requests` are durations. The others are moments, counted from the beginning
/// of the stop. A part of the node that has not ended by its time is given up. A late service or
/// storage is reported as a problem. After a late partition the lease is left to expire. Numbers
/// that are late are not given back.
#[derive(Clone, Copy, Debug)]
pub enum StopShare {
    /// The longest time that an admin service has for its current requests.
    AdminRequests = 1,
    /// The longest time that another service has for its current requests.
    Requests = 6,
    /// The end of the services.
    Services = 8,
    /// The end of the partitions, and of giving back document numbers.
    Partitions = 12,
    /// The end of the release of the lease.
    LeaseRelease = 13,
    /// The end of the storage.
    Storage = 14,
    /// The end of the admin services, which stop last.
    Admin = 16,
}

impl StopShare {
    /// Returns the time, for a node that stops within `stop_within`.
    pub fn of(self, stop_within: Duration) -> Duration {
        stop_within * self as u32 / StopShare::Admin as u32
    }
}

/// A node that was launched. [`shutdown`](Launched::shutdown) stops the node in order. Dropping
/// this value asks the node to stop, and waits for nothing.
#[derive(Debug)]
pub struct Launched {
    node: Node,
    problem: FirstProblem,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Launched {
    pub(crate) fn start(parts: NodeParts) -> Launched {
        let (node, problem) = (parts.node.clone(), parts.problem.clone());
        let shutdown = CancellationToken::new();
        #[expect(
            clippy::disallowed_methods,
            reason = "the caller of `launch` owns the task, and awaits it in `shutdown`"
        )]
        let task = tokio::spawn(parts.run(shutdown.clone()));
        Launched { node, problem, shutdown, task }
    }

    /// The node as its services see it.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Waits until the node leads and its partitions have recovered. Partitions that are
    /// blocked by violations do not count: the others work.
    ///
    /// # Errors
    /// The problem of the node, or the stage of a node that was not ready in time.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ready(&self, deadline: Instant) -> Result<(), NotReady> {
        let clock = self.node.clock();
        loop {
            if let Some(problem) = self.problem.get() {
                return Err(NotReady::Problem(problem));
            }
            match self.node.stage() {
                Stage::Leading => return Ok(()),
                stage if clock.now() >= deadline => return Err(NotReady::Late(stage)),
                _ => clock.sleep(STAGE_CHECK_INTERVAL).await,
            }
        }
    }

    /// Waits until the node cannot go on. Never returns if all is well.
    ///
    /// # Cancel safety
    /// Safe: the next call returns the same problem.
    pub async fn problem(&self) -> Arc<Problem> {
        self.problem.wait().await
    }

    /// Stops everything: first the services, then the partitions. Then the lease is released, if it
    /// is proved that nothing is written any more. If the leadership is lost, before or during the
    /// shutdown, the partitions do not wait for the services. The storage and the admin services
    /// stop last. The method may be called right after the launch.
    ///
    /// # Errors
    /// The first problem of the node.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node still stops, but nothing waits for its end.
    pub async fn shutdown(mut self) -> Result<(), Arc<Problem>> {
        self.shutdown.cancel();
        // If the task panicked, it has reported the panic as a problem.
        let _ = (&mut self.task).await;
        self.problem.get().map_or(Ok(()), Err)
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The reason why a node is not ready.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotReady {
    /// The node cannot go on.
    #[error("the node cannot get ready: {0}")]
    Problem(Arc<Problem>),
    /// The node takes longer than the deadline.
    #[error("the node was not ready in time: its stage is {0:?}")]
    Late(Stage),
}

/// Reports a panic of the orchestrator, for example in the `bind` of a service. Without this report
/// the host would wait forever for a problem.
struct PanicReport(FirstProblem);

impl Drop for PanicReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (service, why) = ("the orchestrator", "the task panicked".into());
            self.0.report(Problem::ServiceEnded { service, why });
        }
    }
}

impl NodeParts {
    async fn run(self, shutdown: CancellationToken) {
        let _panic_report = PanicReport(self.problem.clone());
        let node = self.node.clone();
        tokio::select! {
            () = self.work_until(shutdown) => {}
            never = node.view().watch(&node) => match never {},
            never = node.view().announce(&node) => match never {},
        }
    }

    async fn work_until(mut self, shutdown: CancellationToken) {
        let (mut admin, mut services) = (Services::default(), Services::default());
        let mut held = None;
        let is_bound = tokio::select! {
            biased;
            () = shutdown.cancelled() => false,
            is_bound = self.bind() => is_bound,
        };
        if is_bound {
            let (control, requests) = (Handle::current(), &self.clients.runtime);
            admin = Services::start(mem::take(&mut self.admin), &self.node, &control);
            services = Services::start(mem::take(&mut self.services), &self.node, requests);
            let lock = self.lock.take();
            tokio::select! {
                biased;
                () = self.drained(&shutdown) => {}
                _ = self.problem.wait() => {}
                problem = self.work(lock, &mut held) => self.problem.report(problem),
                problem = admin.ended() => self.problem.report(problem),
                problem = services.ended() => self.problem.report(problem),
            }
        }
        // The stop begins only when the host calls `shutdown`. Until then the fence already refuses
        // writes, if the leadership is lost.
        shutdown.cancelled().await;
        self.stop(admin, services, held).await;
    }

    /// Waits until the node is shut down or asked to step down, and then until it has given its
    /// partitions to other nodes. Meanwhile the node works, and forwards the requests for
    /// partitions that it has given away.
    async fn drained(&self, shutdown: &CancellationToken) {
        let drain = self.node.drain();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = drain.step_down_requested() => {}
        }
        let is_alone = self.node.seats().get() == 1;
        if !is_alone && self.node.owns_partitions() {
            self.node.view().ask_now();
            drain.run(&self.clock, self.settings.drain_within).await;
        }
        if drain.stage().steps_down {
            self.problem.report(Problem::SteppedDown);
        }
    }

    /// Takes the exclusive resources of all services.
    async fn bind(&mut self) -> bool {
        for service in self.admin.iter_mut().chain(&mut self.services) {
            if let Err(why) = service.bind().await {
                self.problem.report(Problem::NotBound { service: service.name(), why });
                return false;
            }
        }
        true
    }

    /// Stops the parts of the node in the reverse order of their start. Each part ends by its time
    /// ([`StopShare`]).
    async fn stop(self, mut admin: Services, mut services: Services, held: Option<HeldLease>) {
        let start = self.clock.now();
        let until = |share: StopShare| start + share.of(self.settings.stop_within);
        self.node.set_stage(Stage::Stopping);
        let (have_stopped, are_given_back) = (CancellationToken::new(), CancellationToken::new());
        let services = async {
            services.stop(&self.clock, until(StopShare::Services), &self.problem).await;
            have_stopped.cancel();
        };
        // The services draw numbers, so they end first. A node that has lost its leadership must
        // stop soon, and has no lease whose release could wait.
        let was_lost = is_lost(held.as_ref().map(HeldLease::leadership));
        let numbers = async {
            let deadline = if was_lost {
                let calls = start + self.settings.request_call_timeout * 2;
                calls.min(until(StopShare::Partitions))
            } else {
                have_stopped.cancelled().await;
                until(StopShare::Partitions)
            };
            series::close(&self.node, &self.clients, deadline).await;
            are_given_back.cancel();
        };
        let leadership = async {
            // After the leadership is lost, the killer ends the process if work goes on. So
            // services that wait for slow clients must not delay the end of that work.
            tokio::select! {
                biased;
                () = until_lost(held.as_ref().map(HeldLease::leadership)) => {}
                () = have_stopped.cancelled() => {}
            }
            if let Some(held) = held {
                let deadlines = [StopShare::Partitions, StopShare::LeaseRelease].map(until);
                self.end_leadership(held, &are_given_back, deadlines).await;
            }
        };
        tokio::join!(services, numbers, leadership);
        let closed = self.clients.close();
        if self.clock.timeout_at(until(StopShare::Storage), closed).await.is_err() {
            warn!("storage not closed in time");
            self.problem.report(Problem::NotStopped("the storage".to_owned()));
        }
        self.node.set_stage(Stage::Stopped);
        admin.stop(&self.clock, until(StopShare::Admin), &self.problem).await;
        info!(took = ?(self.clock.now() - start), "node stopped");
    }
}
