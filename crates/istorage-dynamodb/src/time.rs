//! The service's time, as far as its answers tell.
//!
//! DynamoDB has no clock in its conditions, so somebody else must say whether a row has expired. If each node asked its
//! own calendar, a node that is ahead would take a lease from its holder. Every answer of the service carries the time at
//! which it was made, cut off to a second, in its `Date` header. Together with the moments at which the request was sent
//! and the answer came, on the node's monotonic clock, it bounds from both sides how far the service's time is from that
//! clock. Each answer narrows the bounds, to about a round trip when one has come from each side of a full second.
//!
//! Invariant: the service's time lies between [`ServiceTime::earliest`] and [`ServiceTime::latest`]. Expiry is written by
//! the latest and judged by the earliest, so no row is gone early, whatever the nodes' calendars say.
//!
//! An answer can contradict all answers before it: its date is wrong, or the service's clock was
//! stepped. Nobody can tell at once. If the answer were believed, one wrong date would take each
//! lease from its holder. So both stories count meanwhile: rows are written by the later time and
//! judged by the earlier one. The new story alone counts when several answers have told it, each
//! over a connection of its own, for as long as the longest row lives: each row that was written
//! by the old story is then gone, or was written again. One answer that agrees with the old story
//! alone ends the doubt.

use std::{
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
    connection::CaptureSmithyConnection, orchestrator::HttpResponse,
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

/// How many answers must tell that the service's clock was stepped.
const ANSWERS: u32 = 3;

/// A step must last for at least so long, whatever rows live: a default lease.
const LASTS_MIN: Duration = Duration::from_secs(20);

/// What the answers have told.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// When the last answer came.
    at: Instant,
    time: ServiceTime,
    doubt: Option<Doubt>,
}

/// Answers that contradict those before them, and agree with each other.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Instant,
    answers: u32,
    time: ServiceTime,
}

impl Known {
    /// Both stories, at a later moment.
    fn time_at(&self, now: Instant) -> ServiceTime {
        let time = self.doubt.map_or(self.time, |doubt| self.time.or(doubt.time));
        time.after(now.saturating_since(self.at))
    }

    /// Adds what an answer tells at the moment it comes. A doubt that lasts for `lasts` is believed.
    fn hear(self, now: Instant, told: ServiceTime, lasts: Duration) -> Known {
        let passed = now.saturating_since(self.at);
        let time = self.time.after(passed);
        let doubt = self.doubt.map(|doubt| Doubt { time: doubt.time.after(passed), ..doubt });
        let agreed = |doubt: Doubt| Some(Doubt { time: doubt.time.and(told)?, ..doubt });
        if let Some(time) = time.and(told) {
            return Known { at: now, time, doubt: doubt.and_then(agreed) };
        }
        let doubt = doubt.and_then(agreed);
        let mut doubt = doubt.unwrap_or(Doubt { since: now, answers: 0, time: told });
        doubt.answers += 1;
        if doubt.answers >= ANSWERS && now.saturating_since(doubt.since) >= lasts {
            return Known { at: now, time: doubt.time, doubt: None };
        }
        Known { at: now, time, doubt: Some(doubt) }
    }
}

/// Follows the service's time by all answers of a client.
#[derive(Clone, Debug)]
pub(crate) struct ServiceClock {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// `None` before the first answer.
    known: Option<Known>,
    /// The longest life of a row so far.
    longest: Duration,
}

impl ServiceClock {
    pub(crate) fn new(clock: Clock) -> ServiceClock {
        let state = State { known: None, longest: LASTS_MIN };
        ServiceClock { clock, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known now; `None` before the first answer with a date.
    pub(crate) fn now(&self) -> Option<ServiceTime> {
        let now = self.clock.now();
        self.state().known.map(|known| known.time_at(now))
    }

    /// Takes note that rows live for so long. Call this before a row is written or judged.
    pub(crate) fn rows_live(&self, ttl: Duration) {
        let mut state = self.state();
        state.longest = state.longest.max(ttl);
    }

    /// Takes note of the date of an answer to a request that was sent at a moment of this node.
    /// Whether the answer is in doubt: its connection must not bring another one.
    pub(crate) fn learn(&self, sent: Instant, date: WallTime) -> bool {
        let mut state = self.state();
        // Read under the lock, so that it is not before the moment of what is known.
        let now = self.clock.now();
        let told = ServiceTime::told_by(date, now - sent);
        let known = match state.known {
            None => Known { at: now, time: told, doubt: None },
            Some(known) => known.hear(now, told, state.longest),
        };
        state.known = Some(known);
        known.doubt.is_some()
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
            let is_in_doubt = self.learn(sent, date);
            let connection = request.load::<CaptureSmithyConnection>().filter(|_| is_in_doubt);
            if let Some(connection) = connection.and_then(CaptureSmithyConnection::get) {
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
