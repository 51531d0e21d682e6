//! The service's time, learned from its answers.
//!
//! Ordered rows with a TTL, such as the stored answer of an idempotency key, expire by this time.
//! Leases do not: see [`lease`](crate::lease).
//!
//! Conditions of DynamoDB cannot read a clock, so the node decides whether a row has expired. Each
//! answer of the service carries in its `Date` header the time at which the answer was made, cut
//! off to a second. The node notes on its monotonic clock when it sent the request and when the
//! answer came. The date and the two notes give a lower and an upper bound of the service's time.
//! Each answer narrows the bounds. The bounds are about a round trip apart when answers came from
//! each side of a full second.
//!
//! Expiry is written by [`ServiceTime::latest`] and judged by [`ServiceTime::earliest`]. So no row
//! expires early while the service's time lies between the bounds, and the wall clocks of the nodes
//! do not matter.
//!
//! # Answers that contradict each other
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

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        interceptors::{
            BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
        },
    },
    error::BoxError,
    primitives::{DateTime, DateTimeFormat},
};
use aws_smithy_runtime_api::client::{
    connection::{CaptureSmithyConnection, ConnectionMetadata},
    orchestrator::HttpResponse,
};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use clock::{Clock, Instant, WallTime};

/// The resolution of dates.
const DATE_UNIT: Duration = Duration::from_secs(1);

/// The drift of two clocks against each other, at most, in millionths: five times the rate at which
/// a time server may slew one clock.
const DRIFT_PER_MILLION: u64 = 2_500;

/// The bounds of the service's time at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceTime {
    /// The service's time is not before this time.
    pub(crate) earliest: WallTime,
    /// The service's time is not after this time.
    pub(crate) latest: WallTime,
}

impl ServiceTime {
    /// The distance of the bounds.
    pub(crate) fn width(self) -> Duration {
        Duration::from_nanos(self.latest.as_nanos().saturating_sub(self.earliest.as_nanos()))
    }

    /// The bounds some time later: both bounds move on, and apart by the drift.
    fn after(self, passed: Duration) -> ServiceTime {
        let drift = passed.mul_f64(DRIFT_PER_MILLION as f64 / 1e6);
        ServiceTime {
            earliest: self.earliest + passed.saturating_sub(drift),
            latest: self.latest + passed + drift,
        }
    }

    /// The bounds that an answer gives at the moment it comes. The answer was made at `date` or
    /// less than a second later, and the request took `took`.
    fn told_by(date: WallTime, took: Duration) -> ServiceTime {
        ServiceTime { earliest: date, latest: date + DATE_UNIT + took }
    }

    /// The bounds if both are true; `None` if the two contradict each other.
    fn and(self, other: ServiceTime) -> Option<ServiceTime> {
        let (earliest, latest) = (self.earliest.max(other.earliest), self.latest.min(other.latest));
        (earliest <= latest).then_some(ServiceTime { earliest, latest })
    }

    /// The bounds if at least one of the two is true.
    fn or(self, other: ServiceTime) -> ServiceTime {
        let (earliest, latest) = (self.earliest.min(other.earliest), self.latest.max(other.latest));
        ServiceTime { earliest, latest }
    }
}

/// The number of different connections over which answers must come to prove a run.
const CONNECTIONS: usize = 3;

/// The time that a step of the service's clock must last before the driver follows it.
const STEP_LASTS: Duration = Duration::from_secs(40);

/// The most timelines that are kept. One more replaces the oldest timeline that is not trusted.
const TIMELINES_MAX: usize = 8;

/// The connection of an answer, named by the address of its end on this machine. All answers with
/// an unknown connection count as one connection.
type Connection = Option<SocketAddr>;

/// The knowledge from all answers.
#[derive(Clone, Debug)]
struct Known {
    /// The time at which the last answer came. All timelines are bounds for this moment.
    at: Instant,
    /// The timelines, the trusted one first. Empty before the first answer.
    timelines: Vec<Timeline>,
    /// Whether a timeline is trusted. If not, the node has just started.
    is_trusted: bool,
    run: Run,
}

/// Answers that can come from one clock.
#[derive(Clone, Copy, Debug)]
struct Timeline {
    time: ServiceTime,
    /// The time at which the timeline began or, if that was later, at which an answer last agreed
    /// with the trusted timeline only.
    since: Instant,
}

/// The last answers, all of which agreed with one and the same timeline.
#[derive(Clone, Debug)]
struct Run {
    /// The index of the timeline.
    timeline: usize,
    /// Up to [`CONNECTIONS`] different connections.
    connections: Vec<Connection>,
}

impl Run {
    fn new(timeline: usize) -> Run {
        Run { timeline, connections: Vec::new() }
    }

    fn is_proved(&self) -> bool {
        self.connections.len() >= CONNECTIONS
    }
}

impl Known {
    fn new(now: Instant) -> Known {
        Known { at: now, timelines: Vec::new(), is_trusted: false, run: Run::new(0) }
    }

    /// The bounds over all timelines, at a later moment.
    fn time_at(&self, now: Instant) -> Option<ServiceTime> {
        let all = self.timelines.iter().map(|timeline| timeline.time).reduce(ServiceTime::or)?;
        let time = all.after(now.saturating_since(self.at));
        let earliest = if self.is_trusted { time.earliest } else { WallTime::from_millis(0) };
        Some(ServiceTime { earliest, ..time })
    }

    /// Whether answers contradict each other, or no timeline is trusted yet.
    fn is_in_doubt(&self) -> bool {
        !self.is_trusted || self.timelines.len() > 1
    }

    /// Whether more answers, over other connections, could end the doubt at once.
    fn needs_answers(&self) -> bool {
        self.is_in_doubt() && !self.run.is_proved()
    }

    /// Adds the bounds of an answer at the moment the answer comes. Returns whether the next answer
    /// should come over another connection.
    fn hear(&mut self, now: Instant, told: ServiceTime, connection: Connection) -> bool {
        let passed = now.saturating_since(self.at);
        self.at = now;
        let mut agreeing = Vec::new();
        for (place, timeline) in self.timelines.iter_mut().enumerate() {
            timeline.time = timeline.time.after(passed);
            if let Some(both) = timeline.time.and(told) {
                timeline.time = both;
                agreeing.push(place);
            }
        }
        let place = match agreeing[..] {
            [] => self.begin(Timeline { time: told, since: now }),
            [place] => place,
            // The answer agrees with several timelines, so it does not show which of them is right.
            _ => return false,
        };
        if self.run.timeline != place || agreeing.is_empty() {
            self.run = Run::new(place);
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

/// Follows the service's time by all answers of a client.
#[derive(Clone, Debug)]
pub(crate) struct ServiceClock {
    clock: Clock,
    known: Arc<Mutex<Known>>,
}

impl ServiceClock {
    pub(crate) fn new(clock: Clock) -> ServiceClock {
        let known = Arc::new(Mutex::new(Known::new(clock.now())));
        ServiceClock { clock, known }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bounds now; `None` before the first answer with a date.
    pub(crate) fn now(&self) -> Option<ServiceTime> {
        let now = self.clock.now();
        self.known().time_at(now)
    }

    /// Whether answers contradict each other, or the node has just started.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.known().is_in_doubt()
    }

    /// Whether more answers could end a doubt about the time. Each of these answers should come
    /// over its own connection. For that purpose [`learn`](ServiceClock::learn) asks its caller to
    /// close connections in doubt.
    pub(crate) fn needs_answers(&self) -> bool {
        self.known().needs_answers()
    }

    /// Notes the date of an answer to a request that the node sent at `sent`. Returns whether the
    /// connection of the answer must be closed.
    pub(crate) fn learn(&self, sent: Instant, date: WallTime, connection: Connection) -> bool {
        let mut known = self.known();
        // The clock is read under the lock, so this time is not before the time of the known
        // bounds.
        let now = self.clock.now();
        known.hear(now, ServiceTime::told_by(date, now - sent), connection)
    }
}

/// The time at which a request was sent.
#[derive(Debug)]
struct SentAt(Instant);

impl Storable for SentAt {
    type Storer = StoreReplace<SentAt>;
}

impl Intercept for ServiceClock {
    fn name(&self) -> &'static str {
        "service clock"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        request: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        request.interceptor_state().store_put(SentAt(self.clock.now()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        request: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let (Some(&SentAt(sent)), Some(date)) =
            (request.load::<SentAt>(), date_of(context.response()))
        {
            let connection =
                request.load::<CaptureSmithyConnection>().and_then(CaptureSmithyConnection::get);
            let address = connection.as_ref().and_then(ConnectionMetadata::local_addr);
            let closes = self.learn(sent, date, address);
            if let Some(connection) = connection.filter(|_| closes) {
                connection.poison();
            }
        }
        Ok(())
    }
}

/// The time at which the service says that it made this answer. A gateway or a proxy may answer
/// instead of the service. Such an answer has no request id of DynamoDB, and its date is ignored.
fn date_of(answer: &HttpResponse) -> Option<WallTime> {
    answer.headers().get("x-amzn-requestid")?;
    let date = DateTime::from_str(answer.headers().get("date")?, DateTimeFormat::HttpDate).ok()?;
    Some(WallTime::from_millis(u64::try_from(date.to_millis().ok()?).ok()?))
}

#[cfg(test)]
mod tests;
