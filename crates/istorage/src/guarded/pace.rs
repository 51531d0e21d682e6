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
    loop {
        let silence = pin!(clock.sleep(timeout));
        let mut wait = Wait { stream, signs: &signs, waker: &waker, silence };
        let step = std::future::poll_fn(|context| wait.poll(context)).await;
        match step {
            Step::Item(item) => return Ok(item),
            Step::Sign => {}
            Step::Silence => return Err(Elapsed),
        }
    }
}

enum Step<T> {
    Item(Option<T>),
    Sign,
    Silence,
}

struct Wait<'a, S, F> {
    stream: &'a mut S,
    signs: &'a Signs,
    waker: &'a Waker,
    silence: Pin<&'a mut F>,
}

impl<S: Stream + Unpin, F: Future> Wait<'_, S, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Step<S::Item>> {
        self.signs.task.register(context.waker());
        // What wakes the stream from here on is seen by the next poll.
        let is_sign = self.signs.was_woken.swap(false, Ordering::AcqRel);
        if let Poll::Ready(item) = self.stream.poll_next_unpin(&mut Context::from_waker(self.waker))
        {
            return Poll::Ready(Step::Item(item));
        }
        if is_sign {
            return Poll::Ready(Step::Sign);
        }
        self.silence.as_mut().poll(context).map(|_| Step::Silence)
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
