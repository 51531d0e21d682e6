//! The connection: sends all requests, and makes the pause before a request is sent again.
//!
//! Invariant: each request is sent once. The SDK's own retries are off. Only this module and its
//! callers decide whether a request is sent again, and they send again only requests that did
//! nothing or that only read.

use std::{error::Error as StdError, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
};
use clock::{Clock, Instant};
use istorage::Error;
use tokio::sync::RwLock;

use crate::{
    errors::RequestFailure,
    lease::LeaseWatch,
    time::{ServiceClock, ServiceTime},
};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The client of the database, until the connection is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Each request holds the read lock while it is under way, so closing waits for it.
    client: RwLock<Option<Client>>,
    clock: Clock,
    service_clock: ServiceClock,
    watch: LeaseWatch,
}

impl Connection {
    /// Makes a connection. `service_clock` must follow the answers of the client.
    pub(crate) fn new(client: Client, clock: Clock, service_clock: ServiceClock) -> Connection {
        let watch = LeaseWatch::default();
        Connection { client: RwLock::new(Some(client)), clock, service_clock, watch }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn service_clock(&self) -> &ServiceClock {
        &self.service_clock
    }

    pub(crate) fn watch(&self) -> &LeaseWatch {
        &self.watch
    }

    /// The service's time.
    ///
    /// # Errors
    /// `Invalid` if no answer with a date has come yet.
    pub(crate) fn service_time(&self) -> Result<ServiceTime, Error> {
        self.service_clock.now().ok_or_else(|| {
            Error::invalid(
                "the answers of the DynamoDB endpoint have no `Date` header, and rows expire by this date: let the proxies in \
                 front of the endpoint pass the header on",
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
            // The future is boxed, because futures of the SDK have many kilobytes.
            Some(client) => Box::pin(request(client)).await,
            None => Err(SdkError::construction_failure(Error::closed())),
        }
    }

    /// Sends a request that changes nothing. Sends it again until it is answered, or until the
    /// deadline leaves no time for another attempt.
    pub(crate) async fn ask<T, E, F>(
        &self,
        deadline: Instant,
        request: impl Fn(&Client) -> F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        self.ask_with(deadline, request, RequestFailure::new).await
    }

    /// Like [`ask`](Connection::ask). `failure_of` makes the failure of an error, and so decides
    /// whether the request is sent again.
    pub(crate) async fn ask_with<T, E, F>(
        &self,
        deadline: Instant,
        request: impl Fn(&Client) -> F,
        failure_of: impl Fn(SdkError<E>) -> RequestFailure,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        let mut backoff = self.backoff(deadline);
        loop {
            let failure = match self.send(&request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failure_of(error),
            };
            if !(failure.may_be_retried() && backoff.wait().await) {
                return Err(failure);
            }
        }
    }

    /// The pauses of one call.
    pub(crate) fn backoff(&self, deadline: Instant) -> Backoff<'_> {
        Backoff { clock: &self.clock, deadline, pause: PAUSE_MIN }
    }

    /// Waits for the requests under way, then drops the client.
    pub(crate) async fn close(&self) {
        self.client.write().await.take();
    }
}

/// The pauses of one call. Each pause is up to twice as long as the pause before it.
#[derive(Debug)]
pub(crate) struct Backoff<'a> {
    clock: &'a Clock,
    deadline: Instant,
    pause: Duration,
}

impl Backoff<'_> {
    /// Waits before a write that did nothing is sent again. Fails if the write must not be sent
    /// again, or if no time is left.
    pub(crate) async fn wait_to_resend(&mut self, failure: RequestFailure) -> Result<(), Error> {
        if failure.is_temporary() && self.wait().await {
            Ok(())
        } else {
            Err(failure.into_write_error())
        }
    }

    /// Waits before the next attempt. Returns `false` at once if no time would be left for another
    /// attempt.
    pub(crate) async fn wait(&mut self) -> bool {
        // Half of the pause is random, so that requests that got in each other's way do not meet
        // again.
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
