//! Ctrl-C, and the other ways in which we are asked to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// From its making on a signal does not end the process by itself.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if whoever started us has it ignored, as `nohup` does.
    hangup: Option<Signal>,
}

/// Whether a signal is ignored from the beginning. Where that cannot be known it is not.
fn is_ignored(signal: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal.as_raw_value() - 1)) != 0)
}

impl Signals {
    /// Listens.
    pub(crate) fn install() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match is_ignored(SignalKind::hangup()) {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    /// The name of the next one.
    pub(crate) async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hangup => "SIGHUP",
        }
    }
}
