//! The service's time, learned from its answers.
//!
//! Ordered rows with a TTL, such as the stored answer of an idempotency key, expire by this time.
//! Leases do not: see [`lease`](crate::lease).
//!
//! Conditions of DynamoDB cannot read a clock, so the node decides whether a row has expired. The
//! `Date` header of each answer of the service tells when the answer was made, cut off to a second.
//! The node notes on its monotonic clock when it sent the request and when the answer came. The
//! date and the two notes give a lower and an upper bound of the service's time. Each answer
//! narrows the bounds. The bounds are about a round trip apart when answers came from each side of
//! a full second.
//!
//! A write stores [`ServiceTime::latest`] plus the TTL as the expiry. A read treats the row as
//! absent once [`ServiceTime::earliest`] has reached the expiry. DynamoDB's own TTL only removes
//! the item, a day later ([`layout`](crate::layout)). So no row expires early while the service's
//! time lies between the bounds, and the wall clocks of the nodes do not matter.
//!
//! The module [`timelines`] says how the driver treats answers that contradict each other.

mod bounds;
mod timelines;

use std::{
    sync::{Arc, Mutex},
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
use base::locks::lock;
use clock::{Clock, Instant, WallTime};

pub(crate) use self::bounds::ServiceTime;
use self::timelines::{KnownTime, LocalAddress};

/// The widest bounds of the service's time that are good enough for an expiry. A single answer that
/// took a second gives bounds of this width.
pub(crate) const EXPIRY_RESOLUTION: Duration = Duration::from_secs(2);

/// Follows the service's time through all answers of a client.
#[derive(Clone, Debug)]
pub(crate) struct ServiceClock {
    clock: Clock,
    known: Arc<Mutex<KnownTime>>,
}

impl ServiceClock {
    pub(crate) fn new(clock: Clock) -> ServiceClock {
        let known = Arc::new(Mutex::new(KnownTime::new(clock.now())));
        ServiceClock { clock, known }
    }

    /// The bounds now; `None` before the first answer with a date.
    pub(crate) fn now(&self) -> Option<ServiceTime> {
        let now = self.clock.now();
        lock(&self.known).time_at(now)
    }

    /// Whether answers contradict each other, or the node has just started.
    pub(crate) fn is_in_doubt(&self) -> bool {
        lock(&self.known).is_in_doubt()
    }

    /// Whether more answers could end a doubt about the time. Each of these answers should come
    /// over its own connection. So in doubt, [`add_answer`](ServiceClock::add_answer) tells its
    /// caller to close the connection.
    pub(crate) fn needs_answers(&self) -> bool {
        lock(&self.known).needs_answers()
    }

    /// Notes the date of an answer to a request that the node sent at `sent`. Returns whether the
    /// connection of the answer must be closed.
    pub(crate) fn add_answer(
        &self,
        sent: Instant,
        date: WallTime,
        connection: LocalAddress,
    ) -> bool {
        let mut known = lock(&self.known);
        // The clock is read under the lock, so this time is not before the time of the known
        // bounds.
        let now = self.clock.now();
        known.add_answer(now, ServiceTime::from_answer(date, now - sent), connection)
    }
}

/// When a request was sent.
#[derive(Debug)]
struct RequestStart(Instant);

impl Storable for RequestStart {
    type Storer = StoreReplace<RequestStart>;
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
        request.interceptor_state().store_put(RequestStart(self.clock.now()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        request: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let (Some(&RequestStart(sent)), Some(date)) =
            (request.load::<RequestStart>(), date_of(context.response()))
        {
            let connection =
                request.load::<CaptureSmithyConnection>().and_then(CaptureSmithyConnection::get);
            let address = connection.as_ref().and_then(ConnectionMetadata::local_addr);
            let closes = self.add_answer(sent, date, address);
            if let Some(connection) = connection.filter(|_| closes) {
                connection.poison();
            }
        }
        Ok(())
    }
}

/// When the service made this answer, by its own word. A gateway or a proxy may answer instead of
/// the service. Such an answer has no request id of DynamoDB, and its date is ignored.
fn date_of(answer: &HttpResponse) -> Option<WallTime> {
    answer.headers().get("x-amzn-requestid")?;
    let date = DateTime::from_str(answer.headers().get("date")?, DateTimeFormat::HttpDate).ok()?;
    Some(WallTime::from_millis(u64::try_from(date.to_millis().ok()?).ok()?))
}

#[cfg(test)]
mod tests;
