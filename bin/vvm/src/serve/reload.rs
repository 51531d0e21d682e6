//! The reload of a node: on a signal all ports read their files of TLS at once.

use std::{convert::Infallible, time::Duration};

use clock::Clock;
use tracing::{info, warn};

use super::{supervisor::Supervisor, tls::NodeTls};
use crate::signals::ReloadSignal;

/// The longest time of a reload. A port that has not started, or whose files are on a file system
/// that does not answer, does not delay the next reload for longer.
const RELOAD_WITHIN: Duration = Duration::from_secs(10);

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
