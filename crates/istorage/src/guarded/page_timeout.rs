//! A bound for the time in which a stream makes no progress. A stream makes progress when it is
//! woken.

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
/// A stream may fetch several pages for one item, as a page may hold no row that counts. So the
/// time begins anew whenever the stream was woken: a wake means that data has come for the stream.
pub(super) async fn next<S: Stream + Unpin>(
    stream: &mut S,
    clock: &Clock,
    timeout: Duration,
) -> Result<Option<S::Item>, Elapsed> {
    let signs = Arc::new(Signs::default());
    let waker = Waker::from(Arc::clone(&signs));
    let begin = || clock.sleep(timeout);
    let mut wait = Wait { stream, signs: &signs, waker: &waker, silence: pin!(begin()) };
    std::future::poll_fn(|context| wait.poll(context, begin)).await
}

struct Wait<'a, S, F> {
    stream: &'a mut S,
    signs: &'a Signs,
    waker: &'a Waker,
    silence: Pin<&'a mut F>,
}

impl<S: Stream + Unpin, F: Future> Wait<'_, S, F> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        begin: impl Fn() -> F,
    ) -> Poll<Result<Option<S::Item>, Elapsed>>
    where
        F: Future<Output = ()>,
    {
        self.signs.task.register(context.waker());
        // A wake after this swap is seen by the next poll.
        let is_sign = self.signs.was_woken.swap(false, Ordering::AcqRel);
        if let Poll::Ready(item) = self.stream.poll_next_unpin(&mut Context::from_waker(self.waker))
        {
            return Poll::Ready(Ok(item));
        }
        // Return pending even if the stream was woken. A stream that yields wakes itself, so
        // polling the stream again at once could loop for ever.
        if is_sign {
            self.silence.set(begin());
        }
        self.silence.as_mut().poll(context).map(|()| Err(Elapsed))
    }
}

/// Wakes the task, and remembers that the stream caused the wake.
#[derive(Default)]
struct Signs {
    was_woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Signs {
    fn wake(self: Arc<Self>) {
        self.was_woken.store(true, Ordering::Release);
        self.task.wake();
    }
}
