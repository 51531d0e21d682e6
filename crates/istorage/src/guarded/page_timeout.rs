//! Bounds how long a stream may make no progress. A stream makes progress when it is woken.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use clock::{Clock, Elapsed};
use futures::{Stream, StreamExt, task::AtomicWaker};

/// Waits for the next item, at most `timeout` after the stream was last woken.
///
/// A stream may fetch several pages for one item, because a page may hold no row that counts. So
/// the time begins again whenever the stream is woken: a wake means that data has come for the
/// stream.
pub(super) async fn next<S: Stream + Unpin>(
    stream: &mut S,
    clock: &Clock,
    timeout: Duration,
) -> Result<Option<S::Item>, Elapsed> {
    let wake = Arc::new(WakeFlag::default());
    let waker = Waker::from(Arc::clone(&wake));
    let idle_time = || clock.sleep(timeout);
    let mut next = NextItem { stream, wake: &wake, waker: &waker, idle: pin!(idle_time()) };
    std::future::poll_fn(|context| next.poll(context, idle_time)).await
}

struct NextItem<'a, S, F> {
    stream: &'a mut S,
    wake: &'a WakeFlag,
    waker: &'a Waker,
    idle: Pin<&'a mut F>,
}

impl<S: Stream + Unpin, F: Future> NextItem<'_, S, F> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        idle_time: impl Fn() -> F,
    ) -> Poll<Result<Option<S::Item>, Elapsed>>
    where
        F: Future<Output = ()>,
    {
        self.wake.task.register(context.waker());
        // A wake after this swap is seen by the next poll.
        let was_woken = self.wake.was_woken.swap(false, Ordering::AcqRel);
        if let Poll::Ready(item) = self.stream.poll_next_unpin(&mut Context::from_waker(self.waker))
        {
            return Poll::Ready(Ok(item));
        }
        // Return pending even if the stream was woken. A stream that yields wakes itself, so
        // polling the stream again at once could loop forever.
        if was_woken {
            self.idle.set(idle_time());
        }
        self.idle.as_mut().poll(context).map(|()| Err(Elapsed))
    }
}

/// Wakes the task, and remembers that the stream caused the wake.
#[derive(Default)]
struct WakeFlag {
    was_woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.was_woken.store(true, Ordering::Release);
        self.task.wake();
    }
}
