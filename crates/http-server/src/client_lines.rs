//! The lines of the log that any client can cause: this is the only place that decides which of
//! them are written.
//!
//! Anybody who reaches a port can cause such lines, and a token without any right is enough for
//! those that name a principal. Without a bound they would fill the disk, and hide other lines. So
//! each kind of line has a limit for all clients of a port together, and lines that name a refused
//! operator have one for each principal. A line says how many of its kind were left out before it.
//! A line has only the [beginning] of a client's text.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use access::Principal;
use clock::Clock;
use metrics::Counter;

use crate::limits::PrincipalRate;

/// The most lines of a kind in a second: of all clients together, and of each principal for refused
/// operators.
const LINES_PER_SECOND: u32 = 20;

/// The most bytes of a client's text in a line.
const MOST_BYTES: usize = 256;

/// A kind of line.
#[derive(Clone, Copy, Debug)]
pub enum ClientLine {
    /// A connection that could not be accepted.
    NotAccepted,
    /// A client whose TLS handshake failed.
    TlsRefused,
    /// A request that hyper cannot read.
    Malformed,
    /// A request that the port refuses before it knows the sender.
    Refused,
    /// An answer that its client does not take.
    NotTaken,
    /// A refused request for an action of an operator, or for what the storage holds.
    OperatorRefused,
}

impl ClientLine {
    const ALL: [ClientLine; 6] = [
        ClientLine::NotAccepted,
        ClientLine::TlsRefused,
        ClientLine::Malformed,
        ClientLine::Refused,
        ClientLine::NotTaken,
        ClientLine::OperatorRefused,
    ];

    /// The name of the kind in the metric.
    fn name(self) -> &'static str {
        match self {
            ClientLine::NotAccepted => "not_accepted",
            ClientLine::TlsRefused => "tls_refused",
            ClientLine::Malformed => "malformed",
            ClientLine::Refused => "refused",
            ClientLine::NotTaken => "not_taken",
            ClientLine::OperatorRefused => "operator_refused",
        }
    }
}

/// The lines about the clients of a port.
#[derive(Clone, Debug)]
pub struct ClientLines(Arc<Lines>);

#[derive(Debug)]
struct Lines {
    rate: PrincipalRate,
    left_out: [AtomicU64; ClientLine::ALL.len()],
    counters: [Counter; ClientLine::ALL.len()],
    clock: Clock,
}

impl ClientLines {
    /// The lines of the clients of one port.
    pub fn new(service: &'static str, clock: Clock) -> ClientLines {
        let counter = |line: ClientLine| {
            let of = "httpapi_log_lines_left_out_total";
            let counter = metrics::counter!(of, "service" => service, "line" => line.name());
            counter.increment(0);
            counter
        };
        ClientLines(Arc::new(Lines {
            rate: PrincipalRate::new(LINES_PER_SECOND).expect("it is not zero"),
            left_out: Default::default(),
            counters: ClientLine::ALL.map(counter),
            clock,
        }))
    }

    /// Asks for a line. Returns the number of lines of the kind that were left out before this one,
    /// or `None` if this one is left out, too.
    pub fn next(&self, line: ClientLine, principal: Option<&Principal>) -> Option<u64> {
        let Lines { rate, left_out, counters, clock } = &*self.0;
        let of_kind = &left_out[line as usize];
        // No principal has an empty name.
        let principal = principal.map(Principal::as_str).unwrap_or_default();
        match rate.take(&format!("{} {principal}", line.name()), 1, clock.now()) {
            Ok(()) => Some(of_kind.swap(0, Ordering::Relaxed)),
            Err(_) => {
                of_kind.fetch_add(1, Ordering::Relaxed);
                counters[line as usize].increment(1);
                None
            }
        }
    }
}

/// The beginning of a text that a client may have sent, for a line.
pub fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_BYTES)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;

    use super::*;

    #[test]
    fn lines_that_anybody_can_cause_have_a_limit() {
        let manual = ManualClock::new(1);
        let lines = ClientLines::new("api", manual.clock());
        let nobody = |line| lines.next(line, None);
        let refused = || nobody(ClientLine::OperatorRefused);
        assert!((0..20).all(|_| refused() == Some(0)));
        assert_eq!([refused(), refused()], [None, None]);
        assert_eq!(nobody(ClientLine::Malformed), Some(0), "another kind");
        let principal = Principal::new("issuer", "a").unwrap();
        let of_principal = lines.next(ClientLine::OperatorRefused, Some(&principal));
        assert_eq!(of_principal, Some(2), "a principal has lines of its own");
        manual.advance(Duration::from_millis(50));
        assert_eq!([refused(), refused()], [Some(0), None]);
        manual.advance(Duration::from_millis(50));
        assert_eq!(refused(), Some(1));
    }

    #[test]
    fn each_kind_has_its_own_count() {
        for (at, line) in ClientLine::ALL.into_iter().enumerate() {
            assert_eq!(line as usize, at, "{line:?}");
        }
    }
}
