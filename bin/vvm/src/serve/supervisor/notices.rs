//! Decides what the supervisor is told. This module does no I/O.
//!
//! The supervisor is told each change once. A message that was not sent is made again, from the
//! state at that time: there is no queue.

use std::time::Duration;

use clock::Instant;
use vvm::Stage;

/// A node that has waited for leadership for this time is a standby: another node leads.
///
/// A node that leads soon passes the same stage, and is not ready there.
const STANDBY_AFTER: Duration = Duration::from_secs(1);

/// The time that a start has from one proof of life to the next.
const START_EXTENSION: Duration = Duration::from_secs(30);

/// The time that a stop has beyond the limits of the node.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// A node at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) stage: Stage,
    pub(super) seat: Option<u32>,
    pub(super) is_ready: bool,
    pub(super) is_draining: bool,
    pub(super) is_stopping: bool,
    pub(super) reloads: Reloads,
    /// The monotonic clock of the kernel.
    pub(super) uptime: Duration,
}

/// The reloads of a node until now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reloads {
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// The last reload that ended left a port with its former files.
    pub(super) is_refused: bool,
}

impl Seen {
    fn status(&self) -> String {
        let state = self.state();
        match self.reloads.is_refused {
            true => format!("{state}; the last reload was refused: the log has the reason"),
            false => state,
        }
    }

    fn state(&self) -> String {
        let seat =
            self.seat.map_or_else(|| "leading".to_owned(), |seat| format!("leading seat {seat}"));
        match self.stage {
            Stage::Stopping | Stage::Stopped => "stopping".to_owned(),
            _ if self.is_draining => "draining: the partitions move to other nodes".to_owned(),
            _ if self.is_stopping => "stopping".to_owned(),
            Stage::Opening => "opening the storage".to_owned(),
            Stage::Waiting if self.is_ready => "standing by: forwarding requests".to_owned(),
            Stage::Waiting => "standing by: waiting for leadership".to_owned(),
            Stage::Recovering => format!("{seat}: some partitions are not ready"),
            Stage::Leading => seat,
        }
    }
}

/// The state that the supervisor knows.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    is_ready: bool,
    is_stopping: bool,
    reloads_begun: u64,
    reloads_ended: u64,
    status: String,
}

/// The messages to the supervisor.
#[derive(Debug)]
pub(super) struct Notices {
    told: Told,
    wanted: Told,
    waits_since: Option<Instant>,
    stop_time: Duration,
}

impl Notices {
    /// Nothing was told yet. `stop_time` is the longest time that the node takes to stop.
    pub(super) fn new(stop_time: Duration) -> Notices {
        let (told, wanted) = (Told::default(), Told::default());
        Notices { told, wanted, waits_since: None, stop_time }
    }

    /// Returns the message that tells all changes; empty if nothing has changed.
    pub(super) fn lines(&mut self, seen: Seen, now: Instant) -> String {
        let waits = seen.stage == Stage::Waiting;
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        let stands_by =
            self.waits_since.is_some_and(|since| now.saturating_since(since) >= STANDBY_AFTER);
        let is_up = seen.is_ready || seen.is_draining || stands_by;
        let (reloads_begun, reloads_ended) = self.told_reloads(&seen);
        self.wanted = Told {
            is_ready: self.told.is_ready || (is_up && !seen.is_stopping),
            is_stopping: seen.is_stopping,
            status: seen.status(),
            reloads_begun,
            reloads_ended,
        };
        let (told, wanted) = (&self.told, &self.wanted);
        let mut lines = String::new();
        if wanted.is_ready && !told.is_ready {
            lines += "READY=1\n";
        }
        if told.is_ready && wanted.reloads_ended < wanted.reloads_begun {
            if wanted.reloads_begun > told.reloads_begun {
                lines += &format!("RELOADING=1\nMONOTONIC_USEC={}\n", seen.uptime.as_micros());
            }
        } else if told.reloads_ended < told.reloads_begun && !wanted.is_stopping {
            lines += "READY=1\n";
        }
        if wanted.is_stopping && !told.is_stopping {
            let micros = (self.stop_time + STOP_MARGIN).as_micros();
            lines += &format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}\n");
        }
        if wanted.status != told.status {
            lines += &format!("STATUS={}\n", wanted.status);
        }
        lines
    }

    /// Returns how many reloads have begun, and how many have ended, as far as the supervisor is
    /// told now. A reload that ends before the first message has two messages as well: in one
    /// message, `READY=1` would replace `RELOADING=1`. The supervisor of a node that is not ready
    /// yet, or that stops, waits for no reload.
    fn told_reloads(&self, seen: &Seen) -> (u64, u64) {
        let (Reloads { begun, ended, .. }, told) = (seen.reloads, &self.told);
        if !told.is_ready || seen.is_stopping {
            (begun, begun)
        } else if begun > told.reloads_begun {
            (begun, told.reloads_ended)
        } else {
            (told.reloads_begun, ended.max(told.reloads_ended))
        }
    }

    /// Notes that the last message was sent.
    pub(super) fn note_sent(&mut self) {
        self.told = self.wanted.clone();
    }

    /// Returns the message that follows a proof of life. A start lasts as long as the log is, so a
    /// node that is alive gets more time.
    pub(super) fn beat_lines(&self, has_watchdog: bool) -> String {
        let mut lines = String::new();
        if has_watchdog {
            lines += "WATCHDOG=1\n";
        }
        if !self.told.is_ready && !self.told.is_stopping {
            lines += &format!("EXTEND_TIMEOUT_USEC={}\n", START_EXTENSION.as_micros());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    struct Rounds {
        clock: ManualClock,
        notices: Notices,
    }

    impl Rounds {
        fn new() -> Rounds {
            Rounds { clock: ManualClock::new(1), notices: Notices::new(Duration::from_secs(40)) }
        }

        fn unsent(&mut self, seen: Seen) -> String {
            self.clock.advance(Duration::from_millis(200));
            self.notices.lines(seen, self.clock.clock().now())
        }

        fn sent(&mut self, seen: Seen) -> String {
            let lines = self.unsent(seen);
            self.notices.note_sent();
            lines
        }
    }

    fn at(stage: Stage) -> Seen {
        let is_ready = stage == Stage::Leading;
        let (reloads, uptime) = (Reloads::default(), Duration::from_micros(17));
        Seen {
            stage,
            seat: Some(3),
            is_ready,
            is_draining: false,
            is_stopping: false,
            reloads,
            uptime,
        }
    }

    #[test]
    fn a_node_is_ready_when_its_partitions_are() {
        let mut rounds = Rounds::new();
        assert_eq!(rounds.sent(at(Stage::Opening)), "STATUS=opening the storage\n");
        assert_eq!(rounds.sent(at(Stage::Opening)), "");
        let lines = rounds.sent(at(Stage::Waiting));
        assert_eq!(lines, "STATUS=standing by: waiting for leadership\n");
        let lines = rounds.sent(at(Stage::Recovering));
        assert_eq!(lines, "STATUS=leading seat 3: some partitions are not ready\n");
        assert!(rounds.notices.beat_lines(true).contains("EXTEND_TIMEOUT_USEC=30000000\n"));
        assert_eq!(rounds.sent(at(Stage::Leading)), "READY=1\nSTATUS=leading seat 3\n");
        assert_eq!(rounds.notices.beat_lines(true), "WATCHDOG=1\n");
        assert_eq!(rounds.notices.beat_lines(false), "");
        // A partition stalls and goes on. The node is not ready a second time.
        assert!(!rounds.sent(at(Stage::Recovering)).contains("READY"));
        assert!(!rounds.sent(at(Stage::Leading)).contains("READY"));
    }

    #[test]
    fn a_standby_is_ready_after_a_while() {
        let mut rounds = Rounds::new();
        let ready = (1..20).find(|_| rounds.sent(at(Stage::Waiting)).contains("READY=1\n"));
        assert_eq!(ready, Some(6), "0.2 s each, from the first");
        let mut rounds = Rounds::new();
        let seen = Seen { is_ready: true, ..at(Stage::Waiting) };
        assert_eq!(rounds.sent(seen), "READY=1\nSTATUS=standing by: forwarding requests\n");
    }

    #[test]
    fn a_message_that_was_not_sent_is_made_again() {
        let mut rounds = Rounds::new();
        for _ in 0..2 {
            assert_eq!(rounds.unsent(at(Stage::Leading)), "READY=1\nSTATUS=leading seat 3\n");
        }
        // The state has changed meanwhile.
        let stopping = Seen { is_stopping: true, ..at(Stage::Stopping) };
        let lines = rounds.sent(stopping);
        assert_eq!(lines, "STOPPING=1\nEXTEND_TIMEOUT_USEC=45000000\nSTATUS=stopping\n");
    }

    #[test]
    fn a_stop_has_the_time_of_its_drain() {
        let mut rounds = Rounds::new();
        rounds.sent(at(Stage::Leading));
        let draining = Seen { is_draining: true, is_ready: false, ..at(Stage::Leading) };
        let status = "STATUS=draining: the partitions move to other nodes\n";
        assert_eq!(rounds.sent(draining), status, "an operator asked for it");
        let stopping = Seen { is_stopping: true, ..draining };
        let lines = rounds.sent(stopping);
        assert_eq!(lines, "STOPPING=1\nEXTEND_TIMEOUT_USEC=45000000\n");
        assert_eq!(rounds.notices.beat_lines(true), "WATCHDOG=1\n");
        let lines = rounds.sent(Seen { is_stopping: true, ..at(Stage::Stopping) });
        assert_eq!(lines, "STATUS=stopping\n");
    }
    fn reloading(begun: u64, ended: u64, is_refused: bool) -> Seen {
        Seen { reloads: Reloads { begun, ended, is_refused }, ..at(Stage::Leading) }
    }

    #[test]
    fn a_reload_has_a_beginning_and_an_end() {
        const BEGIN: &str = "RELOADING=1\nMONOTONIC_USEC=17\n";
        let mut rounds = Rounds::new();
        rounds.sent(at(Stage::Leading));
        assert_eq!(rounds.unsent(reloading(1, 0, false)), BEGIN);
        assert_eq!(rounds.sent(reloading(1, 0, false)), BEGIN, "it was not sent");
        assert_eq!(rounds.sent(reloading(1, 0, false)), "");
        assert_eq!(rounds.unsent(reloading(1, 1, false)), "READY=1\n");
        assert_eq!(rounds.sent(reloading(1, 1, false)), "READY=1\n", "it was not sent");
        assert_eq!(rounds.sent(reloading(1, 1, false)), "");
        // Two reloads end before the first message.
        assert!(rounds.sent(reloading(3, 3, true)).starts_with(BEGIN));
        assert_eq!(rounds.sent(reloading(3, 3, true)), "READY=1\n");
        let status = rounds.sent(reloading(4, 4, false));
        assert_eq!(status, format!("{BEGIN}STATUS=leading seat 3\n"));
    }

    #[test]
    fn the_reload_of_a_node_that_starts_or_stops_is_not_told() {
        let mut rounds = Rounds::new();
        let early = Seen { is_ready: false, stage: Stage::Opening, ..reloading(1, 0, false) };
        assert_eq!(rounds.sent(early), "STATUS=opening the storage\n");
        assert_eq!(rounds.sent(reloading(1, 0, false)), "READY=1\nSTATUS=leading seat 3\n");
        assert_eq!(rounds.sent(reloading(1, 1, false)), "");
        assert!(rounds.sent(reloading(2, 1, false)).starts_with("RELOADING=1\n"));
        // The stop ends the reload. A node that stops is never ready again.
        let stopping = Seen { is_stopping: true, ..reloading(2, 1, false) };
        assert!(rounds.sent(stopping).starts_with("STOPPING=1\n"));
        let stopping = Seen { is_stopping: true, ..reloading(2, 2, false) };
        assert_eq!(rounds.sent(stopping), "");
    }
}
