//! The one way by which requests go out, and the pause before one is sent again.
//!
//! Invariant: each request is sent once. The SDK's own retries are off, so what is sent again is decided here and by
//! the callers, and only for requests that did nothing or only read.

use std::{error::Error as StdError, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
};
use clock::{Clock, Instant};
use istorage::Error;
use tokio::sync::RwLock;

use crate::{
    errors::Failure,
    lease::Watch,
    time::{ServiceClock, ServiceTime},
};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The client of the database, until it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Each request holds the lock while it is under way, so that closing waits for it.
    client: RwLock<Option<Client>>,
    clock: Clock,
    service_clock: ServiceClock,
    watch: Watch,
}

impl Connection {
    /// `service_clock` follows the answers of the client.
    pub(crate) fn new(client: Client, clock: Clock, service_clock: ServiceClock) -> Connection {
        let watch = Watch::default();
        Connection { client: RwLock::new(Some(client)), clock, service_clock, watch }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn service_clock(&self) -> &ServiceClock {
        &self.service_clock
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The service's time, when a request was answered.
    pub(crate) fn service_time(&self) -> Result<ServiceTime, Error> {
        self.service_clock.now().ok_or_else(|| {
            Error::invalid(
                "the answers of the DynamoDB endpoint carry no `Date`, by which rows expire: whatever is between it and \
                 this node must pass that header on",
            )
        })
    }

    /// Sends a request once, or not at all if the connection is closed.
    pub(crate) async fn send<T, E, F>(
        &self,
        request: impl FnOnce(&Client) -> F,
    ) -> Result<T, SdkError<E>>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        match &*self.client.read().await {
            // Boxed, as the SDK's futures have many kilobytes.
            Some(client) => Box::pin(request(client)).await,
            None => Err(SdkError::construction_failure(Error::closed())),
        }
    }

    /// Sends a request that changes nothing until it is answered, or the deadline leaves no time for more.
    pub(crate) async fn ask<T, E, F>(
        &self,
        deadline: Instant,
        request: impl Fn(&Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let mut backoff = self.backoff(deadline);
        loop {
            let failure = match self.send(&request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => Failure::of(error),
            };
            if !(failure.may_be_asked_again() && backoff.wait().await) {
                return Err(failure);
            }
        }
    }

    /// The pauses of one call.
    pub(crate) fn backoff(&self, deadline: Instant) -> Backoff<'_> {
        Backoff { clock: &self.clock, deadline, pause: PAUSE_MIN }
    }

    /// Waits for the requests under way and gives the client back.
    pub(crate) async fn close(&self) {
        self.client.write().await.take();
    }
}

/// The pauses of one call, each up to twice as long as the one before.
#[derive(Debug)]
pub(crate) struct Backoff<'a> {
    clock: &'a Clock,
    deadline: Instant,
    pause: Duration,
}

impl Backoff<'_> {
    /// Waits before a write that did nothing is sent again. The error, if it must not be sent again or no time is left.
    pub(crate) async fn again(&mut self, failure: Failure) -> Result<(), Error> {
        if failure.is_for_now() && self.wait().await { Ok(()) } else { Err(failure.of_write()) }
    }

    /// Waits before the next attempt. `false`, at once, if no time would be left for one.
    pub(crate) async fn wait(&mut self) -> bool {
        // Half of it is chance, so that those who got into each other's way do not meet again.
        let half = self.pause / 2;
        let chance = self.clock.random() % u64::from(half.subsec_nanos());
        let end = self.clock.now() + half + Duration::from_nanos(chance);
        if end >= self.deadline {
            return false;
        }
        self.clock.sleep_until(end).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
