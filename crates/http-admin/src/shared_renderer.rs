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
use http_server::problem::ProblemDetails;
use hyper::StatusCode;
use tokio::{sync::Mutex, task::spawn_blocking};

/// A function that renders all metrics in the text format of Prometheus. It runs on a thread for
/// blocking work, and is never called twice at the same time.
pub type MetricsRenderer = Arc<dyn Fn() -> String + Send + Sync>;

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

    /// The metrics as of a moment after this call. The problem is `timed_out` if no rendering ended
    /// in time.
    pub(crate) async fn text(&self) -> Result<Bytes, ProblemDetails> {
        let begun = self.begun.load(Ordering::Acquire);
        let deadline = self.clock.now() + WAIT;
        let text = self.clock.timeout_at(deadline, self.text_after(begun)).await;
        text.unwrap_or_else(|_| {
            let reason = format!(
                "the metrics were not rendered within {} s: send the request again later",
                WAIT.as_secs()
            );
            Err(ProblemDetails::unavailable("timed_out", reason))
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
mod tests;
