//! The wakes of a connection during its own polls.
//!
//! hyper hands a body to its request through a channel, and each end of the channel wakes the task
//! of the connection, which is just running. Mostly nothing is left to do when the poll ends. But
//! the runtime would put the task into its queue at once, and wake another thread for it. Here such
//! a wake waits until the thread has no other work.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;
use tokio::task::yield_now;

/// The connection waits for a wake.
const WAITING: u8 = 0;
/// The connection is being polled, and nothing has woken it since.
const POLLED: u8 = 1;
/// The connection was woken, and is polled soon.
const WOKEN: u8 = 2;
/// The connection was woken during its poll, and is polled when the thread has no other work, or
/// after another wake.
const DEFERRED: u8 = 3;

/// Defers the wakes of a connection during its own polls.
#[derive(Debug)]
pub(super) struct OwnWakes {
    wakes: Arc<ConnectionWakes>,
    /// The waker that the connection gets.
    waker: Waker,
    /// The waker that ends a deferral.
    later: Waker,
}

#[derive(Debug, Default)]
struct ConnectionWakes {
    state: AtomicU8,
    task: AtomicWaker,
}

impl OwnWakes {
    pub(super) fn new() -> OwnWakes {
        let wakes = Arc::<ConnectionWakes>::default();
        let later = Waker::from(Arc::new(DeferredWake(Arc::clone(&wakes))));
        OwnWakes { waker: Waker::from(Arc::clone(&wakes)), later, wakes }
    }

    /// Runs a connection, which `poll` polls, until it ends.
    pub(super) async fn run<T>(self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|context| self.poll(context, &mut poll)).await
    }

    /// Polls the connection once.
    ///
    /// Invariant: after each wake there is a poll that begins later. A simpler version only notes
    /// that a poll is under way, and a wake that finds this note does not wake the task. The poll
    /// returns `Pending`; another thread finds the note, and leaves its wake to this thread; this
    /// thread removes the note. So the connection waits for ever. Here the wake changes the state,
    /// so this thread finds it.
    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        poll: &mut impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let ConnectionWakes { state, task } = &*self.wakes;
        task.register(context.waker());
        state.swap(POLLED, Ordering::AcqRel);
        let polled = poll(&mut Context::from_waker(&self.waker));
        if polled.is_pending() && !self.wakes.change(POLLED, WAITING) {
            state.store(DEFERRED, Ordering::Release);
            // The runtime keeps the waker of a task that yields until the thread has no other work.
            let _ = pin!(yield_now()).poll(&mut Context::from_waker(&self.later));
        }
        polled
    }
}

impl ConnectionWakes {
    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Wake for ConnectionWakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if matches!(self.state.swap(WOKEN, Ordering::AcqRel), WAITING | DEFERRED) {
            self.task.wake();
        }
    }
}

/// The end of a deferral. If another wake came first, there is nothing left to do.
struct DeferredWake(Arc<ConnectionWakes>);

impl Wake for DeferredWake {
    fn wake(self: Arc<Self>) {
        if self.0.change(DEFERRED, WOKEN) {
            self.0.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct CountedWakes(AtomicUsize);

    impl Wake for CountedWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection whose poll was pending, and the wakes of its task.
    struct Polled {
        wakes: OwnWakes,
        task: Arc<CountedWakes>,
    }

    impl Polled {
        fn new(wakes_itself: bool) -> Polled {
            let (wakes, task) = (OwnWakes::new(), Arc::<CountedWakes>::default());
            let waker = Waker::from(Arc::clone(&task));
            let ended = wakes.poll(&mut Context::from_waker(&waker), &mut |context| {
                if wakes_itself {
                    context.waker().wake_by_ref();
                }
                Poll::<()>::Pending
            });
            assert!(ended.is_pending());
            Polled { wakes, task }
        }

        fn wakes_of_task(&self) -> usize {
            self.task.0.load(Ordering::Relaxed)
        }
    }

    /// Each command with a body woke another thread of the runtime.
    #[tokio::test]
    async fn a_connection_that_wakes_itself_is_polled_when_there_is_no_other_work() {
        let polled = Polled::new(true);
        assert_eq!(polled.wakes_of_task(), 0);
        yield_now().await;
        assert_eq!(polled.wakes_of_task(), 1);
    }

    #[tokio::test]
    async fn each_wake_after_a_poll_reaches_the_task_once() {
        for wakes_itself in [false, true] {
            let polled = Polled::new(wakes_itself);
            for _ in 0..2 {
                polled.wakes.waker.wake_by_ref();
                assert_eq!(polled.wakes_of_task(), 1, "{wakes_itself}");
            }
            yield_now().await;
            assert_eq!(polled.wakes_of_task(), 1, "the deferral is over: {wakes_itself}");
        }
    }

    #[test]
    fn outside_of_a_runtime_nothing_is_deferred() {
        assert_eq!(Polled::new(false).wakes_of_task(), 0);
        assert_eq!(Polled::new(true).wakes_of_task(), 1);
    }
}
