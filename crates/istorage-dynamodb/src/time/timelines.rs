//! Sorts the answers of the service into timelines, and decides which timeline to trust.
//!
//! One wrong date must not make rows expire, but the driver must follow a step of the service's
//! clock. One answer cannot tell a wrong date from a step. So the driver sorts answers into
//! *timelines*: all answers of a timeline can come from one clock. Usually there is one timeline.
//!
//! - The bounds span all timelines. In doubt a row lives too long, never too short.
//! - One timeline is *trusted*. A node that has just started trusts no timeline, and judges no row
//!   to have expired.
//! - A *run* is a series of answers that all agree with one timeline and with no other. The run is
//!   *proved* when its answers came over [`CONNECTIONS`] different connections. An answer that
//!   agrees only with another timeline starts a new run.
//! - A proved run of the trusted timeline ends the doubt: all other timelines are forgotten. A
//!   proved run on a node that trusts no timeline yet has the same effect.
//! - After a proved run of another timeline the node trusts that timeline and forgets all others.
//!   But that timeline must have lasted for [`STEP_LASTS`], and during this time no answer may have
//!   agreed with the trusted timeline alone.
//! - An answer in doubt closes its connection until the run is proved, so the next answer comes
//!   over another connection. Otherwise the node could hear only one connection, to a server with a
//!   wrong clock.
//!
//! One error remains. A node that hears only servers with the same wrong clock judges ordered rows
//! by that clock. A node that has followed a step also judges by the stepped clock. A step ahead
//! makes rows expire earlier by its length.

use std::{net::SocketAddr, time::Duration};

use clock::{Instant, WallTime};

use super::bounds::ServiceTime;

/// How many different connections must bring the answers that prove a run.
pub(super) const CONNECTIONS: usize = 3;

/// How long a step of the service's clock must last before the driver follows it.
pub(super) const STEP_LASTS: Duration = Duration::from_secs(40);

/// The most timelines that are kept. One more replaces the oldest timeline that is not trusted.
pub(super) const TIMELINES_MAX: usize = 8;

/// The connection of an answer, named by the address of its end on this machine. All answers with
/// an unknown connection count as one connection.
pub(super) type LocalAddress = Option<SocketAddr>;

/// The knowledge from all answers.
#[derive(Clone, Debug)]
pub(super) struct KnownTime {
    /// When the last answer came. All timelines are bounds for this moment.
    pub(super) at: Instant,
    /// The timelines, the trusted one first. Empty before the first answer.
    pub(super) timelines: Vec<Timeline>,
    /// Whether a timeline is trusted. If not, the node has just started.
    is_trusted: bool,
    run: AgreementRun,
}

/// Answers that can come from one clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    pub(super) time: ServiceTime,
    /// When the timeline began or, if that was later, when an answer last agreed with the trusted
    /// timeline only.
    since: Instant,
}

/// The last answers that all agreed with one and the same timeline.
#[derive(Clone, Debug)]
struct AgreementRun {
    /// The index of the timeline.
    timeline: usize,
    /// Up to [`CONNECTIONS`] different connections.
    connections: Vec<LocalAddress>,
}

impl AgreementRun {
    fn new(timeline: usize) -> AgreementRun {
        AgreementRun { timeline, connections: Vec::new() }
    }

    fn is_proved(&self) -> bool {
        self.connections.len() >= CONNECTIONS
    }
}

impl KnownTime {
    pub(super) fn new(now: Instant) -> KnownTime {
        KnownTime { at: now, timelines: Vec::new(), is_trusted: false, run: AgreementRun::new(0) }
    }

    /// The bounds over all timelines, at a later moment.
    pub(super) fn time_at(&self, now: Instant) -> Option<ServiceTime> {
        let all = self.timelines.iter().map(|timeline| timeline.time).reduce(ServiceTime::union)?;
        let time = all.after(now.saturating_since(self.at));
        let earliest = if self.is_trusted { time.earliest } else { WallTime::from_millis(0) };
        Some(ServiceTime { earliest, ..time })
    }

    /// Whether answers contradict each other, or no timeline is trusted yet.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.is_trusted || self.timelines.len() > 1
    }

    /// Whether more answers, over other connections, could end the doubt at once.
    pub(super) fn needs_answers(&self) -> bool {
        self.is_in_doubt() && !self.run.is_proved()
    }

    /// Adds the bounds of an answer at the moment the answer comes. Returns whether the next answer
    /// should come over another connection.
    pub(super) fn add_answer(
        &mut self,
        now: Instant,
        bounds: ServiceTime,
        connection: LocalAddress,
    ) -> bool {
        let passed = now.saturating_since(self.at);
        self.at = now;
        let mut agreeing = Vec::new();
        for (place, timeline) in self.timelines.iter_mut().enumerate() {
            timeline.time = timeline.time.after(passed);
            if let Some(both) = timeline.time.intersection(bounds) {
                timeline.time = both;
                agreeing.push(place);
            }
        }
        let place = match agreeing[..] {
            [] => self.begin(Timeline { time: bounds, since: now }),
            [place] => place,
            // The answer agrees with several timelines, so it does not show which of them is right.
            _ => return false,
        };
        if self.run.timeline != place || agreeing.is_empty() {
            self.run = AgreementRun::new(place);
        }
        if !self.run.is_proved() && !self.run.connections.contains(&connection) {
            self.run.connections.push(connection);
        }
        if self.is_trusted && place == 0 {
            self.timelines[1..].iter_mut().for_each(|other| other.since = now);
        }
        let has_lasted = now - self.timelines[place].since >= STEP_LASTS;
        if self.run.is_proved() && (!self.is_trusted || place == 0 || has_lasted) {
            self.timelines.swap(0, place);
            self.timelines.truncate(1);
            self.run.timeline = 0;
            self.is_trusted = true;
        }
        self.needs_answers()
    }

    /// Begins a timeline. Returns its index.
    fn begin(&mut self, timeline: Timeline) -> usize {
        if self.timelines.len() >= TIMELINES_MAX {
            // The trusted timeline is the first, and must stay.
            self.timelines.remove(usize::from(self.is_trusted));
        }
        self.timelines.push(timeline);
        self.timelines.len() - 1
    }
}
