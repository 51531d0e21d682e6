//! The rendering of metrics for all requests that wait for it.
//!
//! A rendering computes for many milliseconds, and the threads of the admin endpoint also renew the
//! lease. Invariant: a rendering never runs on a thread of the runtime, and no two renderings run
//! at the same time, however many clients ask or hang up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::Clock;
use hyper::StatusCode;
use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{admin::MetricsRenderer, response::ProblemDetails};

/// The longest wait of a request. Prometheus gives up after 10 s.
const WAIT: Duration = Duration::from_secs(5);

/// Renders metrics, and gives each result to all requests that arrived before its rendering began.
pub(crate) struct SharedRenderer {
    render: MetricsRenderer,
    clock: Clock,
    /// The number of renderings that have begun.
    begun: Arc<AtomicU64>,
    /// The last rendering. Each rendering holds the lock until it ends.
    last: Arc<Mutex<Rendering>>,
}

#[derive(Default)]
struct Rendering {
    /// The number of this rendering. The first one has number 1.
    number: u64,
    text: Bytes,
}

impl SharedRenderer {
    pub(crate) fn new(render: MetricsRenderer, clock: Clock) -> SharedRenderer {
        SharedRenderer { render, clock, begun: Arc::default(), last: Arc::default() }
    }

    /// The metrics at a moment after this call. The problem is `queue_full` if there was no
    /// rendering in time.
    pub(crate) async fn text(&self) -> Result<Bytes, ProblemDetails> {
        let begun = self.begun.load(Ordering::Acquire);
        let deadline = self.clock.now() + WAIT;
        let text = self.clock.timeout_at(deadline, self.text_after(begun)).await;
        text.unwrap_or_else(|_| {
            let reason = format!(
                "the metrics were not rendered within {} s: send the request again later",
                WAIT.as_secs()
            );
            Err(ProblemDetails::unavailable("queue_full", reason))
        })
    }

    /// The text of a rendering with a number above `begun`.
    async fn text_after(&self, begun: u64) -> Result<Bytes, ProblemDetails> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if last.number > begun {
            return Ok(last.text.clone());
        }
        let (render, begun) = (Arc::clone(&self.render), Arc::clone(&self.begun));
        // The rendering owns the lock. If the request owned the lock, a client that hangs up would
        // release it, and the next rendering would begin beside the one that nobody waits for.
        #[expect(clippy::disallowed_methods, reason = "the lock admits one such thread")]
        let rendering = spawn_blocking(move || {
            let number = begun.fetch_add(1, Ordering::AcqRel) + 1;
            let text = Bytes::from(render());
            *last = Rendering { number, text: text.clone() };
            text
        });
        rendering.await.map_err(|error| {
            let reason = format!("the metrics cannot be rendered: {error}");
            ProblemDetails::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::AtomicUsize,
        mpsc::{Receiver, SyncSender, sync_channel},
    };

    use clock::ManualClock;
    use futures::{FutureExt, future::join_all};
    use tokio::task::yield_now;

    use super::*;

    /// A renderer whose renderings wait for the test.
    struct SlowRenderer {
        renderer: SharedRenderer,
        began: Receiver<()>,
        end: SyncSender<()>,
        most_at_once: Arc<AtomicUsize>,
    }

    impl SlowRenderer {
        fn new(clock: Clock) -> SlowRenderer {
            let (begin, began) = sync_channel(100);
            let (end, may_end) = sync_channel(100);
            let may_end = std::sync::Mutex::new(may_end);
            let (now, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let most_at_once = Arc::new(AtomicUsize::new(0));
            let most = Arc::clone(&most_at_once);
            let render = move || {
                most.fetch_max(now.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
                begin.send(()).unwrap();
                may_end.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap();
                now.fetch_sub(1, Ordering::AcqRel);
                (count.fetch_add(1, Ordering::AcqRel) + 1).to_string()
            };
            let renderer = SharedRenderer::new(Arc::new(render), clock);
            SlowRenderer { renderer, began, end, most_at_once }
        }

        async fn has_begun(&self) {
            while self.began.try_recv().is_err() {
                yield_now().await;
            }
        }
    }

    /// The threads that renew the lease rendered the metrics, too. Here the only thread of the
    /// runtime ends the rendering, so a rendering on that thread would never end.
    #[tokio::test]
    async fn the_runtime_goes_on_during_a_rendering() {
        let slow = SlowRenderer::new(Clock::system());
        let probe = async {
            slow.has_begun().await;
            slow.end.send(()).unwrap();
        };
        let (text, ()) = tokio::join!(slow.renderer.text(), probe);
        assert_eq!(text.unwrap(), "1");
    }

    /// 90 clients that repeated the request cost 90 renderings. A rendering that began before a
    /// request arrived is not shared with the request.
    #[tokio::test]
    async fn requests_that_wait_share_the_next_rendering() {
        let slow = SlowRenderer::new(Clock::system());
        let others = async {
            slow.has_begun().await;
            let mut others = Box::pin(join_all((0..20).map(|_| slow.renderer.text())));
            assert!(others.as_mut().now_or_never().is_none());
            slow.end.send(()).unwrap();
            slow.end.send(()).unwrap();
            others.await
        };
        let (first, others) = tokio::join!(slow.renderer.text(), others);
        assert_eq!(first.unwrap(), "1");
        assert!(others.into_iter().all(|text| text.unwrap() == "2"));
        assert_eq!(slow.most_at_once.load(Ordering::Acquire), 1);
    }

    #[tokio::test]
    async fn a_client_that_hangs_up_does_not_start_a_second_rendering() {
        let slow = SlowRenderer::new(Clock::system());
        for _ in 0..10 {
            // The request is dropped after its first step.
            assert!(slow.renderer.text().now_or_never().is_none());
        }
        slow.has_begun().await;
        slow.end.send(()).unwrap();
        slow.end.send(()).unwrap();
        assert_eq!(slow.renderer.text().await.unwrap(), "2");
        assert_eq!(slow.most_at_once.load(Ordering::Acquire), 1);
    }

    #[tokio::test]
    async fn a_request_waits_for_a_limited_time() {
        let manual = ManualClock::new(1);
        let slow = SlowRenderer::new(manual.clock());
        let moves = async {
            slow.has_begun().await;
            manual.advance(WAIT);
        };
        let (first, second, ()) = tokio::join!(slow.renderer.text(), slow.renderer.text(), moves);
        assert_eq!(first.unwrap_err().code(), "queue_full");
        assert_eq!(second.unwrap_err().code(), "queue_full");
        slow.end.send(()).unwrap();
    }
}
