//! Threads for reading: reads use at most half of the threads at any moment, so that commands find
//! the other half.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::ready,
};

use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::sync::PollSemaphore;

/// Reads wait for their turn before each step, in order. A step ends where the read waits or
/// [yields](tokio::task::yield_now).
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    /// For half of the threads of this runtime, at least one.
    pub(crate) fn new() -> Turns {
        let threads = Handle::current().metrics().num_workers();
        Turns(Arc::new(Semaphore::new((threads / 2).max(1))))
    }

    /// Does the work, each step of it on a turn. No turn is held while the work waits.
    pub(crate) async fn work<T>(&self, work: impl Future<Output = T>) -> T {
        let mut turns = PollSemaphore::new(Arc::clone(&self.0));
        let mut work = pin!(work);
        poll_fn(|context| {
            let _turn = ready!(turns.poll_acquire(context));
            work.as_mut().poll(context)
        })
        .await
    }
}
