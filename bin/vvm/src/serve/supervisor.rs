//! The connection to the supervisor that started the node, such as systemd: the node says when
//! it is ready, how it is, that it stops, and that it is alive.
//!
//! A message is a datagram that is sent or not sent at once. So a supervisor that reads nothing
//! never delays the node.

mod notices;
mod socket;

use std::{convert::Infallible, ffi::OsString, future::pending, time::Duration};

use clock::{Clock, Instant};
use ctl::CommandError;
use rustix::time::{ClockId, clock_gettime};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use vvm::Node;

use self::{
    notices::{Notices, Reloads, Seen},
    socket::NotifySocket,
};

/// How often the state of the node is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The longest time from one proof of life to the next.
const LONGEST_BEAT: Duration = Duration::from_secs(5);

/// The supervisor of this process, if there is one.
pub(super) struct Supervisor {
    socket: Option<NotifySocket>,
    /// The supervisor expects a proof of life within this time.
    watchdog: Option<Duration>,
    /// The longest time that the node takes to stop.
    stop_time: Duration,
    /// The runtime that must be alive.
    requests: Handle,
    stopping: CancellationToken,
    reloads: watch::Sender<Reloads>,
}

impl Supervisor {
    /// Finds the supervisor by its variables.
    pub(super) fn from_environment(requests: Handle, stop_time: Duration) -> Supervisor {
        #[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let socket = variable("NOTIFY_SOCKET").and_then(|address| {
            let socket = NotifySocket::open(&address);
            socket.map_err(|error| warn!(?address, %error, "supervisor not reached")).ok()
        });
        let is_ours = variable("WATCHDOG_PID")
            .is_none_or(|id| number(Some(id)) == Some(std::process::id().into()));
        let watchdog = number(variable("WATCHDOG_USEC")).filter(|_| is_ours);
        Supervisor {
            socket,
            watchdog: watchdog.filter(|micros| *micros > 0).map(Duration::from_micros),
            stop_time,
            requests,
            stopping: CancellationToken::new(),
            reloads: watch::Sender::default(),
        }
    }

    /// No supervisor.
    #[cfg(test)]
    pub(super) fn none(requests: Handle) -> Supervisor {
        Supervisor {
            socket: None,
            watchdog: None,
            stop_time: Duration::ZERO,
            requests,
            stopping: CancellationToken::new(),
            reloads: watch::Sender::default(),
        }
    }

    /// Notes that the node begins to stop.
    pub(super) fn note_stopping(&self) {
        self.stopping.cancel();
    }

    /// Notes that a reload begins.
    pub(super) fn note_reload(&self) {
        self.reloads.send_modify(|reloads| reloads.begun += 1);
    }

    /// Notes that the reload has ended, and whether all files are used.
    pub(super) fn note_reloaded(&self, is_done: bool) {
        self.reloads.send_modify(|reloads| {
            reloads.ended = reloads.begun;
            reloads.is_refused = !is_done;
        });
    }

    /// Tells the error that ends the process.
    pub(super) fn note_failure(&self, error: &CommandError) {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        self.send(&format!("STATUS=failed: {line}\n"));
    }

    /// Tells the supervisor of the node, until the caller drops the future.
    pub(super) async fn watch(&self, node: &Node) -> Infallible {
        if self.socket.is_none() {
            return pending().await;
        }
        let clock = node.clock();
        let mut notices = Notices::new(self.stop_time);
        let mut pulse = Pulse::new(&self.requests, self.beat_interval(), clock.now());
        let mut reloads = self.reloads.subscribe();
        loop {
            let now = clock.now();
            let seen = Seen {
                stage: node.stage(),
                seat: node.seat(),
                is_ready: node.is_ready(),
                is_draining: node.is_draining(),
                is_stopping: self.stopping.is_cancelled(),
                reloads: *reloads.borrow_and_update(),
                uptime: uptime(),
            };
            let lines = notices.lines(seen, now);
            // If the message is not sent, the next round makes it again.
            if lines.is_empty() || self.send(&lines) {
                notices.note_sent();
            }
            pulse.warn_if_late(now);
            let stops = async {
                match seen.is_stopping {
                    true => pending().await,
                    false => self.stopping.cancelled().await,
                }
            };
            tokio::select! {
                () = stops => {}
                _ = reloads.changed() => {}
                () = pulse.beat(clock) => {
                    let lines = notices.beat_lines(self.watchdog.is_some());
                    if !lines.is_empty() {
                        self.send(&lines);
                    }
                }
                () = clock.sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// Half of the time within which a proof of life is expected.
    fn beat_interval(&self) -> Duration {
        self.watchdog.map_or(LONGEST_BEAT, |watchdog| LONGEST_BEAT.min(watchdog / 2))
    }

    /// Sends a message, and returns whether it was sent.
    fn send(&self, lines: &str) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.send(lines))
    }
}

/// The monotonic clock of the kernel, which a supervisor compares with its own.
fn uptime() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

fn number(variable: Option<OsString>) -> Option<u64> {
    variable?.to_str()?.parse().ok()
}

/// The proof that a runtime is alive: it has run a task that was given to it after the last proof.
/// A timer of another thread would beat on while no thread of the runtime does its work.
struct Pulse<'a> {
    runtime: &'a Handle,
    interval: Duration,
    /// When the next task is given to the runtime, or was given to it.
    next: Instant,
    task: Option<JoinHandle<()>>,
    is_late: bool,
}

impl<'a> Pulse<'a> {
    fn new(runtime: &'a Handle, interval: Duration, first: Instant) -> Pulse<'a> {
        Pulse { runtime, interval, next: first, task: None, is_late: false }
    }

    /// Waits until the runtime has run the next task.
    ///
    /// # Cancel safety
    /// Safe: the next call waits for the same task.
    async fn beat(&mut self, clock: &Clock) {
        loop {
            if self.task.is_none() {
                clock.sleep_until(self.next).await;
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the task does nothing, and is awaited here"
                )]
                let task = self.runtime.spawn(async {});
                self.task = Some(task);
            }
            let ran = match &mut self.task {
                Some(task) => task.await.is_ok(),
                None => false,
            };
            self.task = None;
            self.next = clock.now() + self.interval;
            if ran {
                self.is_late = false;
                return;
            }
        }
    }

    /// Logs once that the runtime does not run its task.
    fn warn_if_late(&mut self, now: Instant) {
        let late_for = now.saturating_since(self.next);
        if self.task.is_some() && !self.is_late && late_for > self.interval {
            self.is_late = true;
            warn!(?late_for, "the threads for requests do not run: the watchdog is not told");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// A watchdog that is fed by a timer never bites.
    #[test]
    fn a_runtime_whose_only_thread_is_blocked_has_no_pulse() {
        let mut one = tokio::runtime::Builder::new_multi_thread();
        let requests = one.worker_threads(1).build().unwrap();
        let control = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Clock::system();
        let mut pulse = Pulse::new(requests.handle(), Duration::from_millis(10), clock.now());
        control.block_on(async {
            let mut beats = async |within: u64| {
                let until = clock.now() + Duration::from_millis(within);
                let beat = clock.timeout_at(until, pulse.beat(&clock)).await.is_ok();
                pulse.warn_if_late(clock.now());
                (beat, pulse.is_late)
            };
            assert_eq!(beats(5_000).await, (true, false));
            let (release, blocked) = sync_channel::<()>(0);
            #[allow(clippy::disallowed_methods)]
            requests.handle().spawn(async move {
                let _ = blocked.recv();
            });
            assert_eq!(beats(300).await, (false, true));
            release.send(()).unwrap();
            assert_eq!(beats(5_000).await, (true, false));
        });
    }
}
