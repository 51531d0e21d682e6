//! Services: the parts of a node that run beside the partitions from launch to shutdown, such as
//! listeners.

use std::{fmt, future::poll_fn, task::Poll};

use async_trait::async_trait;
use clock::{Clock, Instant};
use futures::FutureExt;
use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{Node, Problem, ServiceError, problem::FirstProblem};

/// A service of a node. It works from launch to the end of the node, even while the node waits for
/// leadership.
#[async_trait]
pub trait Service: fmt::Debug + Send + Sync + 'static {
    /// The name of the service in logs.
    fn name(&self) -> &'static str;

    /// Takes exclusive resources, such as a port, before anything else runs.
    ///
    /// # Errors
    /// The reason why a resource cannot be taken. The node is not launched then.
    async fn bind(&mut self) -> Result<(), ServiceError>;

    /// Works until `stop` is cancelled, finishes the current requests, and returns. If the service
    /// returns before, the node has a problem.
    ///
    /// # Errors
    /// The reason why the service cannot go on.
    async fn run(self: Box<Self>, node: Node, stop: CancellationToken) -> Result<(), ServiceError>;
}

/// The result of the task of a service.
type TaskResult = Result<Result<(), ServiceError>, JoinError>;

/// A service that runs in a task of its own. Dropping it aborts the task.
#[derive(Debug)]
pub(crate) struct RunningService {
    name: &'static str,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServiceError>>,
}

impl RunningService {
    fn start(service: Box<dyn Service>, node: Node, runtime: &Handle) -> RunningService {
        let (name, stop) = (service.name(), CancellationToken::new());
        #[expect(clippy::disallowed_methods, reason = "the orchestrator owns the task and ends it")]
        let task = runtime.spawn(service.run(node, stop.clone()));
        info!(service = name, "service started");
        RunningService { name, stop, task }
    }

    /// Stops the service in order, and gives it up at the deadline.
    async fn stop(mut self, clock: &Clock, deadline: Instant, problem: &FirstProblem) {
        self.stop.cancel();
        match clock.timeout_at(deadline, &mut self.task).await {
            Ok(Ok(Ok(()))) => info!(service = self.name, "service stopped"),
            Ok(ended) => problem.report(self.ended(ended)),
            Err(_) => {
                warn!(service = self.name, "service not stopped in time");
                problem.report(Problem::NotStopped(self.name.to_owned()));
            }
        }
    }

    fn ended(&self, ended: TaskResult) -> Problem {
        let why = match ended {
            Ok(Ok(())) => "the service returned before the node stopped".into(),
            Ok(Err(why)) => why,
            Err(panicked) => panicked.into(),
        };
        Problem::ServiceEnded { service: self.name, why }
    }
}

impl Drop for RunningService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Services in the order of their start. They stop in the reverse order.
#[derive(Debug, Default)]
pub(crate) struct Services(Vec<RunningService>);

impl Services {
    pub(crate) fn start(
        services: Vec<Box<dyn Service>>,
        node: &Node,
        runtime: &Handle,
    ) -> Services {
        let start = |service| RunningService::start(service, node.clone(), runtime);
        Services(services.into_iter().map(start).collect())
    }

    /// Waits until a service ends by itself. Never returns if no service does.
    pub(crate) async fn ended(&mut self) -> Problem {
        let (at, ended) = poll_fn(|context| {
            for (at, service) in self.0.iter_mut().enumerate() {
                if let Poll::Ready(ended) = service.task.poll_unpin(context) {
                    return Poll::Ready((at, ended));
                }
            }
            Poll::Pending
        })
        .await;
        // A finished task must not be polled again.
        self.0.remove(at).ended(ended)
    }

    /// Stops all services by the deadline, one after another. Each has an equal share of the time
    /// that is left, so a service that hangs leaves the others their time.
    pub(crate) async fn stop(&mut self, clock: &Clock, deadline: Instant, problem: &FirstProblem) {
        while let Some(service) = self.0.pop() {
            let now = clock.now();
            let others = self.0.len() as u32;
            let share = (deadline - now) / (others + 1);
            service.stop(clock, now + share, problem).await;
        }
    }
}
