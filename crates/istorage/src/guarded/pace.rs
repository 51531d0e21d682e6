//! A bound for the wait between two signs of life of a stream.

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

/// The next item. A stream may fetch several pages for it, as a page may hold nothing that counts; so the time begins anew
/// whenever the stream was woken, which is when something has come for it.
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
        // What wakes the stream from here on is seen by the next poll.
        let is_sign = self.signs.was_woken.swap(false, Ordering::AcqRel);
        if let Poll::Ready(item) = self.stream.poll_next_unpin(&mut Context::from_waker(self.waker))
        {
            return Poll::Ready(Ok(item));
        }
        // Whoever is put off wakes itself: to ask again at once would go on for ever.
        if is_sign {
            self.silence.set(begin());
        }
        self.silence.as_mut().poll(context).map(|()| Err(Elapsed))
    }
}

/// Wakes the task, and remembers that it was the stream that did.
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
