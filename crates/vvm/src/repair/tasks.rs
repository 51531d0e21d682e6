//! The tasks of repairs: a repair that has begun goes on to its end, although its caller is gone.

use std::sync::{Arc, Mutex};

use base::locks::lock;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::{AbortHandle, JoinSet},
};

/// The repairs of an application that are under way.
///
/// A repair writes several rows. A simpler version writes them in the task of the HTTP connection.
/// The client disconnects after the first row; the connection drops the repair; so half of the
/// repair is done, and no task of the node waits for the write under way.
#[derive(Debug)]
pub(crate) struct RepairTasks {
    /// Held during a repair. Two repairs of one event with different places would leave a marker at
    /// the wrong one.
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
    /// The runtime of requests. Only this runtime uses the client of requests.
    runtime: Handle,
    tasks: Mutex<JoinSet<()>>,
}

/// The error if a task ended without a result: it panicked, or the runtime ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the repair ended without a result")]
pub struct NoResult;

/// A task that ends when its caller is gone.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RepairTasks {
    pub(crate) fn new(runtime: Handle) -> RepairTasks {
        let (one_at_a_time, tasks) = (Arc::default(), Mutex::default());
        RepairTasks { one_at_a_time, runtime, tasks }
    }

    /// Runs a repair on the runtime of requests, when no other repair of the application is under
    /// way. If the call is dropped, the repair goes on.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoResult> {
        let one_at_a_time = Arc::clone(&self.one_at_a_time);
        let (_, result) = self.spawn(async move {
            let _one_at_a_time = one_at_a_time.lock().await;
            work.await
        });
        result.await.map_err(|_| NoResult)
    }

    /// Runs work that only reads on the runtime of requests. If the call is dropped, the work ends:
    /// the reads of clients that are gone would pile up while the storage is slow.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoResult> {
        let (task, result) = self.spawn(work);
        let _ends_with_its_caller = AbortOnDrop(task);
        result.await.map_err(|_| NoResult)
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> (AbortHandle, oneshot::Receiver<T>) {
        let (sender, result) = oneshot::channel();
        let task = {
            let mut tasks = lock(&self.tasks);
            while tasks.try_join_next().is_some() {}
            let task = async move {
                let result = work.await;
                // The caller may be gone.
                let _ = sender.send(result);
            };
            tasks.spawn_on(task, &self.runtime)
        };
        (task, result)
    }
}
