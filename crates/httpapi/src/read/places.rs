//! The places of logs that are sent at the same time.
//!
//! Invariant: a request waits for the share of its principal before it waits for anything that all
//! principals share. A simpler version has only places for all: a principal that opens as many logs
//! as there are places, and takes them slowly, then keeps all other principals out until the node
//! cuts its connections.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use clock::{Clock, Instant};
use hyper::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::ProblemDetails;

/// The places of logs. One principal has at most half of them, and at least one.
#[derive(Debug)]
pub(crate) struct SendPlaces {
    /// The sender of these logs, with a verb, for people.
    sends: &'static str,
    most: usize,
    free: Arc<Semaphore>,
    /// The shares of the principals that have a place or wait for one.
    shares: Mutex<HashMap<String, Weak<Semaphore>>>,
    clock: Clock,
}

/// The place of a log that is being sent. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct SendPlace {
    _share: Option<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
}

impl SendPlaces {
    /// Creates `most` places. `sends` begins the reason of a refusal, such as "this node sends".
    pub(crate) fn new(sends: &'static str, most: usize, clock: Clock) -> SendPlaces {
        let most = most.min(Semaphore::MAX_PERMITS);
        SendPlaces {
            sends,
            most,
            free: Arc::new(Semaphore::new(most)),
            shares: Mutex::new(HashMap::new()),
            clock,
        }
    }

    /// Waits for a place. Without a principal, only the number of all places is a limit.
    pub(crate) async fn take(
        &self,
        principal: Option<&str>,
        deadline: Instant,
    ) -> Result<SendPlace, ProblemDetails> {
        let share = match principal {
            None => None,
            Some(principal) => {
                let share = self.wait_for(self.share_of(principal), deadline).await;
                Some(share.ok_or_else(|| self.share_used())?)
            }
        };
        let place = self.wait_for(Arc::clone(&self.free), deadline).await;
        let place = place.ok_or_else(|| {
            let reason = format!("{} {} logs already, which is the limit", self.sends, self.most);
            ProblemDetails::unavailable("too_many_logs", reason)
        })?;
        Ok(SendPlace { _share: share, _place: place })
    }

    async fn wait_for(
        &self,
        places: Arc<Semaphore>,
        deadline: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        self.clock.timeout_at(deadline, places.acquire_owned()).await.ok()?.ok()
    }

    /// The most logs of one principal.
    fn most_of_one(&self) -> usize {
        (self.most / 2).max(1)
    }

    fn share_of(&self, principal: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(principal).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.most_of_one()));
        shares.insert(principal.to_owned(), Arc::downgrade(&share));
        share
    }

    fn share_used(&self) -> ProblemDetails {
        let most = self.most_of_one();
        let reason =
            format!("{} this principal {most} logs already, which is its limit", self.sends);
        ProblemDetails::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", reason)
            .retry_after(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;
    use futures::FutureExt;

    use super::*;

    /// A principal that took its logs slowly kept all other principals out.
    #[test]
    fn a_principal_has_half_of_the_places_and_at_least_one() {
        for (most, of_one) in [(9, 4), (2, 1), (1, 1)] {
            let manual = ManualClock::new(1);
            let deadline = manual.clock().now() + Duration::from_secs(1);
            let places = SendPlaces::new("this node sends", most, manual.clock());
            let take = |who| places.take(who, deadline);
            let mut held: Vec<_> =
                std::iter::from_fn(|| take(Some("slow")).now_or_never()?.ok()).collect();
            assert_eq!(held.len(), of_one, "of {most}");
            let mut waits = Box::pin(take(Some("slow")));
            assert!(waits.as_mut().now_or_never().is_none());
            let names: Vec<String> = (0..most).map(|number| number.to_string()).collect();
            let take_one = |name: &String| places.take(Some(name), deadline).now_or_never()?.ok();
            let others = names.iter().map_while(take_one);
            let others: Vec<_> = others.collect();
            assert_eq!(others.len(), most - of_one, "the others have the rest");
            // The principal goes on when one of its logs ends.
            held.pop();
            let place = waits.now_or_never().unwrap().unwrap();
            // Nobody has a share after the last log.
            drop((held, others, place));
            let all: Vec<_> = std::iter::from_fn(|| take(None).now_or_never()?.ok()).collect();
            assert_eq!(all.len(), most, "without principals there is only the limit of all");
            drop(take(Some("new")));
            drop(take(Some("newer")).now_or_never());
            assert_eq!(places.shares.lock().unwrap().len(), 1, "shares without logs are forgotten");
        }
    }

    #[test]
    fn a_refusal_says_whose_limit_is_reached() {
        let manual = ManualClock::new(1);
        let now = manual.clock().now();
        let places = SendPlaces::new("this node sends", 2, manual.clock());
        let refusal = |who| {
            let problem = places.take(who, now).now_or_never().unwrap().unwrap_err();
            (problem.status().as_u16(), problem.code(), problem.reason().to_owned())
        };
        let later = now + Duration::from_secs(1);
        let _one = places.take(Some("a"), later).now_or_never().unwrap().unwrap();
        let (status, code, reason) = refusal(Some("a"));
        assert_eq!((status, code), (429, "rate_limited"), "{reason}");
        assert!(reason.contains("this principal 1 logs"), "{reason}");
        let _two = places.take(Some("b"), later).now_or_never().unwrap().unwrap();
        let (status, code, reason) = refusal(Some("c"));
        assert_eq!((status, code), (503, "too_many_logs"), "{reason}");
        assert!(reason.contains("this node sends 2 logs"), "{reason}");
    }
}
