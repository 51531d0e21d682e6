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

use std::{
    sync::{Arc, Mutex, PoisonError},
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
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
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

    /// What both tell together.
    fn and(self, newer: ServiceTime) -> ServiceTime {
        let (earliest, latest) = (self.earliest.max(newer.earliest), self.latest.min(newer.latest));
        if earliest <= latest {
            return ServiceTime { earliest, latest };
        }
        // The service's clock was stepped, or an answer had a wrong date: the newer one is right. What was gone may come
        // back; a row that is gone early could be worse.
        newer
    }
}

/// Follows the service's time by all answers of a client.
#[derive(Clone, Debug)]
pub(crate) struct ServiceClock {
    clock: Clock,
    /// What was known when the last answer came; `None` before the first.
    known: Arc<Mutex<Option<(Instant, ServiceTime)>>>,
}

impl ServiceClock {
    pub(crate) fn new(clock: Clock) -> ServiceClock {
        ServiceClock { clock, known: Arc::default() }
    }

    /// What is known now; `None` before the first answer with a date.
    pub(crate) fn now(&self) -> Option<ServiceTime> {
        let now = self.clock.now();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.map(|(at, time)| time.after(now.saturating_since(at)))
    }

    /// Takes note of the date of an answer to a request that was sent at a moment of this node.
    pub(crate) fn learn(&self, sent: Instant, date: WallTime) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that it is not before the moment of what is known.
        let now = self.clock.now();
        let told = ServiceTime::told_by(date, now - sent);
        let together = known.map_or(told, |(at, before)| before.after(now - at).and(told));
        *known = Some((now, together));
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
            self.learn(sent, date);
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
