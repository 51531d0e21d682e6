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
    assert_eq!(first.unwrap_err().code(), "timed_out");
    assert_eq!(second.unwrap_err().code(), "timed_out");
    slow.end.send(()).unwrap();
}
