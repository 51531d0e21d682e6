//! A limit on the threads that compute for reads.
//!
//! Invariant: reads use at most half of the threads at any moment, so that commands find the other
//! half.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::ready,
};

use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::sync::PollSemaphore;

/// The turns of all reads. A read waits for its turn before each step, in order. A step ends where
/// the read waits or [yields](tokio::task::yield_now).
#[derive(Clone, Debug)]
pub struct ReadThrottle(Arc<Semaphore>);

impl ReadThrottle {
    /// Creates turns for half of the threads of this runtime, and at least one.
    pub fn of_runtime() -> ReadThrottle {
        let threads = Handle::current().metrics().num_workers();
        ReadThrottle(Arc::new(Semaphore::new((threads / 2).max(1))))
    }

    /// Does work with each of its steps on a turn. The work holds no turn while it waits.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut turns = PollSemaphore::new(Arc::clone(&self.0));
        let mut work = pin!(work);
        poll_fn(|context| {
            let _turn = ready!(turns.poll_acquire(context));
            work.as_mut().poll(context)
        })
        .await
    }
}
