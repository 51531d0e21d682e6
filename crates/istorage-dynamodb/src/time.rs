//! The service's time, as its answers tell it.
//!
//! Ordered rows with a TTL, such as the answer that is kept for an idempotency key, expire by this
//! time. Leases do not: see [`lease`](crate::lease).
//!
//! DynamoDB has no clock in its conditions, so the node decides whether a row has expired. Each answer
//! of the service carries the time at which it was made, cut off to a second, in its `Date` header.
//! The node notes on its monotonic clock when it sent the request and when the answer came. Both
//! together bound the service's time from both sides. Each answer narrows the bounds, to about a round
//! trip when answers came from each side of a full second.
//!
//! Expiry is written by [`ServiceTime::latest`] and judged by [`ServiceTime::earliest`], so no row is
//! gone early while the service's time lies between them, whatever the calendars of the nodes say.
//!
//! # Answers that contradict each other
//!
//! One wrong date must not make rows expire. A step of the service's clock must be followed. One
//! answer cannot tell the two apart. So the driver sorts answers into *timelines*: all answers of a
//! timeline can come from one clock. Usually there is one timeline.
//!
//! - The bounds span all timelines. In doubt a row lives too long, never too short.
//! - One timeline is *trusted*. A node that has just started trusts none, and judges no row to
//!   have expired.
//! - A *run* is a series of answers that all tell one timeline. The run is *proved* when its
//!   answers came over [`CONNECTIONS`] different connections. An answer that tells another
//!   timeline starts a new run.
//! - A proved run of the trusted timeline ends the doubt: all other timelines are forgotten. So
//!   does a proved run on a node that trusts no timeline yet.
//! - After a proved run of another timeline the node trusts that timeline and forgets all others.
//!   But the timeline must have lasted for [`STEP_LASTS`], in which no answer told the trusted one.
//! - An answer in doubt closes its connection until the run is proved, so the next answer comes
//!   over another connection. Otherwise one connection to a server with a wrong clock could be
//!   the only one that is heard.
//!
//! What stays wrong: a node that hears only servers with one wrong clock judges ordered rows by that
//! clock, and so does each node after a step has counted. A step ahead makes rows expire earlier by
//! its length.

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

/// What dates are cut off to.
const DATE_UNIT: Duration = Duration::from_secs(1);

/// How much two clocks may drift apart: five times what a time server may slew one of them by.
const DRIFT_PER_MILLION: u64 = 2_500;

/// What is known of the service's time at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceTime {
    /// It is not before this.
    pub(crate) earliest: WallTime,
    /// It is not after this.
    pub(crate) latest: WallTime,
}

impl ServiceTime {
    /// How little is known.
    pub(crate) fn width(self) -> Duration {
        Duration::from_nanos(self.latest.as_nanos().saturating_sub(self.earliest.as_nanos()))
    }

    /// The same knowledge some time later: both bounds move on, and apart by the drift.
    fn after(self, passed: Duration) -> ServiceTime {
        let drift = passed.mul_f64(DRIFT_PER_MILLION as f64 / 1e6);
        ServiceTime {
            earliest: self.earliest + passed.saturating_sub(drift),
            latest: self.latest + passed + drift,
        }
    }

    /// What an answer tells at the moment it comes: it was made at `date` or less than a unit later, within `took`.
    fn told_by(date: WallTime, took: Duration) -> ServiceTime {
        ServiceTime { earliest: date, latest: date + DATE_UNIT + took }
    }

    /// What both tell together; `None` if they contradict each other.
    fn and(self, other: ServiceTime) -> Option<ServiceTime> {
        let (earliest, latest) = (self.earliest.max(other.earliest), self.latest.min(other.latest));
        (earliest <= latest).then_some(ServiceTime { earliest, latest })
    }

    /// What is true if one of both is.
    fn or(self, other: ServiceTime) -> ServiceTime {
        let (earliest, latest) = (self.earliest.min(other.earliest), self.latest.max(other.latest));
        ServiceTime { earliest, latest }
    }
}

/// Over how many connections a timeline must be told.
const CONNECTIONS: usize = 3;

/// How long a step of the service's clock must last before it counts.
const STEP_LASTS: Duration = Duration::from_secs(40);

/// How many timelines are kept. One more replaces the oldest one that is not trusted.
const TIMELINES_MAX: usize = 8;

/// The connection of an answer, by the address at its end on this machine. All answers whose
/// connection is not known count as one connection.
type Connection = Option<SocketAddr>;

/// What the answers have told.
#[derive(Clone, Debug)]
struct Known {
    /// When the last answer came. All timelines are bounds for this moment.
    at: Instant,
    /// The trusted one is the first. None before the first answer.
    timelines: Vec<Timeline>,
    /// Whether a timeline is trusted. Otherwise the node has just started.
    is_trusted: bool,
    run: Run,
}

/// Answers that can come from one clock.
#[derive(Clone, Copy, Debug)]
struct Timeline {
    time: ServiceTime,
    /// When the timeline began, or the trusted one was told last.
    since: Instant,
}

/// The last answers that told one and the same timeline.
#[derive(Clone, Debug)]
struct Run {
    /// The place of the timeline.
    timeline: usize,
    /// Up to [`CONNECTIONS`] different ones.
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

    /// Adds what an answer tells at the moment it comes. Whether the next answer should come over
    /// another connection.
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
            // The answer does not tell which of these timelines is the right one.
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

    /// Begins a timeline. Its place.
    fn begin(&mut self, timeline: Timeline) -> usize {
        if self.timelines.len() >= TIMELINES_MAX {
            // The trusted one is the first.
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

    /// What is known now; `None` before the first answer with a date.
    pub(crate) fn now(&self) -> Option<ServiceTime> {
        let now = self.clock.now();
        self.known().time_at(now)
    }

    /// Whether answers contradict each other, or the node has just started.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.known().is_in_doubt()
    }

    /// Whether more answers could end a doubt about the time. Each should come over a connection
    /// of its own, and does: [`learn`](ServiceClock::learn) has the others closed.
    pub(crate) fn needs_answers(&self) -> bool {
        self.known().needs_answers()
    }

    /// Notes the date of an answer to a request that was sent at a moment of this node. Whether
    /// the connection of the answer must be closed.
    pub(crate) fn learn(&self, sent: Instant, date: WallTime, connection: Connection) -> bool {
        let mut known = self.known();
        // The lock is held, so this moment is not before the one of what is known.
        let now = self.clock.now();
        known.hear(now, ServiceTime::told_by(date, now - sent), connection)
    }
}

/// When a request was sent.
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

/// When the service says that it made this answer. Whatever else may answer on the way, a gateway or a proxy, gives
/// requests no id of DynamoDB's.
fn date_of(answer: &HttpResponse) -> Option<WallTime> {
    answer.headers().get("x-amzn-requestid")?;
    let date = DateTime::from_str(answer.headers().get("date")?, DateTimeFormat::HttpDate).ok()?;
    Some(WallTime::from_millis(u64::try_from(date.to_millis().ok()?).ok()?))
}

#[cfg(test)]
mod tests;
