//! The reload of a node: on a signal all ports read their files of TLS at once.

use std::{convert::Infallible, io, time::Duration};

use clock::Clock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::{supervisor::Supervisor, tls::NodeTls};

/// The longest time of a reload. A port that has not started, or whose files are on a file system
/// that does not answer, does not delay the next reload for longer.
const RELOAD_WITHIN: Duration = Duration::from_secs(10);

/// SIGUSR1. From the moment of [`ReloadSignal::install`] on, the signal no longer ends the process.
///
/// SIGHUP is not used for this: the hangup of a terminal stops the process.
pub(super) struct ReloadSignal(Signal);

impl ReloadSignal {
    /// Begins to listen.
    pub(super) fn install() -> io::Result<ReloadSignal> {
        signal(SignalKind::user_defined1()).map(ReloadSignal)
    }

    /// Waits for the next signal. Signals that arrive before they are awaited count as one.
    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// Reloads at each signal, until the caller drops the future.
pub(super) async fn reload_on(
    mut signal: ReloadSignal,
    tls: &NodeTls,
    supervisor: &Supervisor,
    clock: &Clock,
) -> Infallible {
    loop {
        signal.next().await;
        supervisor.note_reload();
        let until = clock.now() + RELOAD_WITHIN;
        let is_done = clock.timeout_at(until, tls.reload()).await.unwrap_or(false);
        if is_done {
            info!("reloaded: the ports use the files of TLS as they are");
        } else {
            warn!("reload refused: a port keeps its former files of TLS; correct them and reload");
        }
        supervisor.note_reloaded(is_done);
    }
}
