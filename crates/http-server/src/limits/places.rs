//! Places of which a node has a limited number, such as those of logs, of followers, or of KiB of
//! memory.
//!
//! One principal holds at most half of the places, and at least one. If a principal has its share,
//! its next requests wait, up to a limit. Others are refused at once, because each request that
//! waits holds a connection. A request that holds one of the few connections between two nodes
//! waits only for a moment. Requests without a principal have no share: only all places are a
//! limit.
//!
//! Invariant: a request waits for the share of its principal before it waits for the places that
//! all principals share. A simpler version has only places for all: a principal that opens as many
//! logs as there are places, and takes them slowly, then keeps all other principals out until the
//! node cuts its connections.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use clock::{Clock, Instant};
use metrics::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::ProblemDetails;

/// The longest wait of a request for the share of its principal, if the request holds a connection
/// between two nodes. All principals share these connections.
const BETWEEN_NODES: Duration = Duration::from_millis(250);

/// The places of all principals.
#[derive(Debug)]
pub struct Places {
    most: usize,
    most_of_one: usize,
    most_waiting: usize,
    free: Arc<Semaphore>,
    /// The shares of the principals that have a place or wait for one.
    shares: Mutex<HashMap<String, Weak<Share>>>,
    /// The code of a refusal because of all places together.
    code: &'static str,
    /// The requests that were refused because of the shares of their principals.
    shares_refused: Counter,
    clock: Clock,
}

/// The share of one principal.
#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    /// The requests that may wait until the share has free places.
    waiting: Semaphore,
}

/// The principal of a request that takes places.
#[derive(Clone, Copy, Debug)]
pub struct PlaceTaker<'p> {
    principal: Option<&'p str>,
    /// The longest wait for the share of the principal; `None` if only the deadline ends the wait.
    longest_wait: Option<Duration>,
}

impl<'p> PlaceTaker<'p> {
    /// A request that holds a connection between two nodes.
    pub fn between_nodes(principal: Option<&'p str>) -> PlaceTaker<'p> {
        PlaceTaker { principal, longest_wait: Some(BETWEEN_NODES) }
    }
}

/// A request that holds nothing that all principals share.
impl<'p> From<Option<&'p str>> for PlaceTaker<'p> {
    fn from(principal: Option<&'p str>) -> PlaceTaker<'p> {
        PlaceTaker { principal, longest_wait: None }
    }
}

/// Some places that a request holds. They end when this value is dropped.
#[derive(Debug)]
pub struct Place {
    share: Option<(OwnedSemaphorePermit, Arc<Share>)>,
    place: OwnedSemaphorePermit,
}

/// The limit that kept a request from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// The principal has its share, and as many requests as may wait for it.
    OfPrincipal,
    /// All places together.
    OfAll,
}

impl Places {
    /// Creates `most` places. As many requests of a principal may wait as its share has places.
    /// `code` is that of a refusal if all principals together have all places.
    pub fn new(most: usize, code: &'static str, clock: Clock) -> Places {
        let most = most.min(Semaphore::MAX_PERMITS);
        let most_of_one = (most / 2).max(1);
        let shares_refused = metrics::counter!("httpapi_shares_refused_total", "limit" => code);
        // A counter that begins with its first event shows no increase there, so an alert would
        // miss this event.
        shares_refused.increment(0);
        Places {
            most,
            most_of_one,
            most_waiting: most_of_one,
            free: Arc::new(Semaphore::new(most)),
            shares: Mutex::new(HashMap::new()),
            code,
            shares_refused,
            clock,
        }
    }

    /// Sets the least share of a principal.
    pub(crate) fn least_of_one(self, least: usize) -> Places {
        Places { most_of_one: self.most_of_one.max(least.min(self.most)), ..self }
    }

    /// Sets the number of requests of a principal that may wait for its share.
    pub fn most_waiting(self, most: usize) -> Places {
        Places { most_waiting: most.clamp(1, Semaphore::MAX_PERMITS), ..self }
    }

    /// Waits for so many places, or for all places if there are fewer. A request that needs more
    /// than the share of its principal takes the whole share.
    pub async fn take<'p>(
        &self,
        taker: impl Into<PlaceTaker<'p>>,
        count: usize,
        deadline: Instant,
    ) -> Result<Place, NoPlace> {
        let PlaceTaker { principal, longest_wait } = taker.into();
        let share = match principal {
            None => None,
            Some(principal) => {
                let share = self.share_of(principal);
                let until = longest_wait.map(|wait| self.clock.now() + wait);
                let until = until.map_or(deadline, |until| until.min(deadline));
                let permit = self.wait_for_share(&share, count, until).await;
                Some((permit.ok_or(NoPlace::OfPrincipal)?, share))
            }
        };
        let place = self.wait_for(&self.free, permits(count, self.most), deadline).await;
        Ok(Place { share, place: place.ok_or(NoPlace::OfAll)? })
    }

    /// Takes so many places like [`take`](Places::take), if they are free at once.
    pub fn try_take(&self, principal: Option<&str>, count: usize) -> Result<Place, NoPlace> {
        let share = match principal {
            None => None,
            Some(principal) => {
                let share = self.share_of(principal);
                let permit = try_acquire(&share.free, permits(count, self.most_of_one));
                Some((permit.ok_or(NoPlace::OfPrincipal)?, share))
            }
        };
        let place = try_acquire(&self.free, permits(count, self.most));
        Ok(Place { share, place: place.ok_or(NoPlace::OfAll)? })
    }

    /// Changes the number of places that a request holds. Leaves the number as it is if there are
    /// not enough free places at once.
    pub fn resize(&self, held: &mut Place, count: usize) -> Result<(), NoPlace> {
        let Place { share, place } = held;
        let mut before = None;
        if let Some((of_share, _)) = share {
            before = Some(of_share.num_permits());
            if !resize(of_share, permits(count, self.most_of_one)) {
                return Err(NoPlace::OfPrincipal);
            }
        }
        if resize(place, permits(count, self.most)) {
            return Ok(());
        }
        if let (Some((of_share, _)), Some(before)) = (share, before) {
            // The share becomes smaller, which is always possible.
            let _ = resize(of_share, permits(before, self.most_of_one));
        }
        Err(NoPlace::OfAll)
    }

    /// Changes the number of places like [`resize`](Places::resize). If there are not enough free
    /// places, the request takes those that are free.
    pub(crate) fn resize_as_possible(&self, held: &mut Place, count: usize) {
        if self.resize(held, count).is_ok() {
            return;
        }
        let of_share = held.share.as_ref().map(|(_, share)| share.free.available_permits());
        let free = self.free.available_permits().min(of_share.unwrap_or(usize::MAX));
        let most = count.min(held.count() + free);
        // If another request takes them first, this one keeps what it has.
        let _ = self.resize(held, most);
    }

    /// The problem of a request that gets no place. `reason` makes a sentence from the number of
    /// places and the words "of one principal", which follow a noun or are left out.
    pub fn problem(
        &self,
        why: NoPlace,
        reason: impl FnOnce(usize, &str) -> String,
    ) -> ProblemDetails {
        match why {
            NoPlace::OfPrincipal => {
                self.shares_refused.increment(1);
                ProblemDetails::rate_limited(reason(self.most_of_one, " of one principal"))
            }
            NoPlace::OfAll => ProblemDetails::unavailable(self.code, reason(self.most, "")),
        }
    }

    async fn wait_for_share(
        &self,
        share: &Share,
        count: usize,
        deadline: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        let count = permits(count, self.most_of_one);
        // Nobody passes a request that waits: its semaphore has no free permits meanwhile.
        if let Some(permit) = try_acquire(&share.free, count) {
            return Some(permit);
        }
        let _waiting = share.waiting.try_acquire().ok()?;
        self.wait_for(&share.free, count, deadline).await
    }

    async fn wait_for(
        &self,
        places: &Arc<Semaphore>,
        count: u32,
        deadline: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        let places = Arc::clone(places).acquire_many_owned(count);
        self.clock.timeout_at(deadline, places).await.ok()?.ok()
    }

    fn share_of(&self, principal: &str) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(principal).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let free = Arc::new(Semaphore::new(self.most_of_one));
        let share = Arc::new(Share { free, waiting: Semaphore::new(self.most_waiting) });
        shares.insert(principal.to_owned(), Arc::downgrade(&share));
        share
    }
}

impl Place {
    /// The number of places.
    pub fn count(&self) -> usize {
        self.place.num_permits()
    }
}

/// A request for more than there is takes everything, and is not refused forever.
fn permits(count: usize, most: usize) -> u32 {
    u32::try_from(count.min(most)).unwrap_or(u32::MAX)
}

fn try_acquire(places: &Arc<Semaphore>, count: u32) -> Option<OwnedSemaphorePermit> {
    Arc::clone(places).try_acquire_many_owned(count).ok()
}

fn resize(held: &mut OwnedSemaphorePermit, count: u32) -> bool {
    let (has, needs) = (held.num_permits(), count as usize);
    if needs > has {
        let Some(more) = try_acquire(held.semaphore(), (needs - has) as u32) else { return false };
        held.merge(more);
    } else {
        drop(held.split(has - needs));
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;
    use futures::FutureExt;

    use super::*;

    /// A principal that took its logs slowly kept all other principals out.
    #[test]
    fn a_principal_has_half_of_the_places_and_at_least_one() {
        for (most, of_one) in [(9, 4), (2, 1), (1, 1)] {
            let manual = ManualClock::new(1);
            let deadline = manual.clock().now() + Duration::from_secs(1);
            let places = Places::new(most, "full", manual.clock());
            let names: Vec<String> = (0..most).map(|number| number.to_string()).collect();
            let take = |principal| places.take(principal, 1, deadline);
            let mut held: Vec<_> =
                std::iter::from_fn(|| take(Some("slow")).now_or_never()?.ok()).collect();
            assert_eq!(held.len(), of_one, "of {most}");
            assert_eq!(places.try_take(Some("slow"), 1).unwrap_err(), NoPlace::OfPrincipal);
            let mut waits = Box::pin(take(Some("slow")));
            assert!(waits.as_mut().now_or_never().is_none());
            let take_one = |name| take(Some(name)).now_or_never()?.ok();
            let others: Vec<_> = names.iter().map(String::as_str).map_while(take_one).collect();
            assert_eq!(others.len(), most - of_one, "the others have the rest");
            // The principal goes on when one of its logs ends.
            held.pop();
            let place = waits.now_or_never().unwrap().unwrap();
            // Nobody has a share after the last log.
            drop((held, others, place));
            let all: Vec<_> = std::iter::from_fn(|| take(None).now_or_never()?.ok()).collect();
            assert_eq!(all.len(), most, "without principals there is only the limit of all");
            assert_eq!(places.try_take(None, 1).unwrap_err(), NoPlace::OfAll);
            drop(take(Some("new")));
            drop(take(Some("newer")).now_or_never());
            assert_eq!(places.shares.lock().unwrap().len(), 1, "shares without logs are forgotten");
        }
    }

    /// A principal with its share of the logs let any number of further requests wait. Each of them
    /// held a connection, so the requests of all others waited for connections.
    #[test]
    fn only_some_requests_of_a_principal_wait_for_its_share() {
        let manual = ManualClock::new(1);
        let deadline = manual.clock().now() + Duration::from_secs(1);
        let places = Places::new(6, "full", manual.clock());
        let begin = |principal| {
            let mut begun = Box::pin(places.take(principal, 1, deadline));
            let ended = begun.as_mut().now_or_never();
            (begun, ended)
        };
        let mut held: Vec<_> = (0..3).map(|_| begin(Some("slow")).1.unwrap().unwrap()).collect();
        let waiting: Vec<_> = (0..3).map(|_| begin(Some("slow"))).collect();
        assert!(waiting.iter().all(|(_, ended)| ended.is_none()));
        assert_eq!(begin(Some("slow")).1.unwrap().unwrap_err(), NoPlace::OfPrincipal);
        assert!(begin(Some("other")).1.unwrap().is_ok());
        // A request that gets its place, or gives up, leaves its turn to another one.
        held.pop();
        let mut waiting: Vec<_> = waiting.into_iter().map(|(begun, _)| begun).collect();
        held.push(waiting.remove(0).now_or_never().unwrap().unwrap());
        let late = begin(Some("slow"));
        assert!(late.1.is_none());
        drop(late);
        assert!(begin(Some("slow")).1.is_none());
    }

    /// A forwarded request waited for the share of its principal until half of its time was over,
    /// and held a connection between two nodes meanwhile.
    #[test]
    fn a_request_between_two_nodes_waits_only_for_a_moment() {
        let manual = ManualClock::new(1);
        let deadline = manual.clock().now() + Duration::from_secs(10);
        let places = Places::new(4, "full", manual.clock());
        let forwarded = PlaceTaker::between_nodes(Some("slow"));
        let of_client = PlaceTaker::from(Some("slow"));
        let _held = places.take(forwarded, 2, deadline).now_or_never().unwrap().unwrap();
        let mut forwarded = Box::pin(places.take(forwarded, 1, deadline));
        let mut of_client = Box::pin(places.take(of_client, 1, deadline));
        assert!(forwarded.as_mut().now_or_never().is_none());
        assert!(of_client.as_mut().now_or_never().is_none());
        manual.advance(BETWEEN_NODES);
        assert_eq!(forwarded.now_or_never().unwrap().unwrap_err(), NoPlace::OfPrincipal);
        assert!(of_client.as_mut().now_or_never().is_none(), "the request of a client waits");
        manual.advance(Duration::from_secs(10));
        assert_eq!(of_client.now_or_never().unwrap().unwrap_err(), NoPlace::OfPrincipal);
    }

    #[test]
    fn a_request_holds_as_many_places_of_its_share_as_of_all() {
        let clock = ManualClock::new(1).clock();
        let places = Places::new(10, "full", clock.clone()).least_of_one(6);
        let mut one = places.try_take(Some("one"), 4).unwrap();
        let mut two = places.try_take(Some("two"), 4).unwrap();
        let refused = places.resize(&mut one, 7).unwrap_err();
        assert_eq!(refused, NoPlace::OfAll, "all places have only two free ones");
        assert!(places.try_take(Some("one"), 3).is_err(), "the share has two free places");
        assert!(places.resize(&mut one, 6).is_ok());
        assert_eq!(places.resize(&mut two, 5).unwrap_err(), NoPlace::OfAll);
        assert!(places.resize(&mut one, 1).is_ok(), "a place can always become smaller");
        assert_eq!((one.count(), two.count()), (1, 4));
        assert!(places.try_take(Some("one"), 5).is_ok(), "the share has the places back");
        assert!(places.try_take(Some("two"), 3).is_err());
        drop(two);
        // A request that needs more than its share takes the whole share.
        assert_eq!(places.try_take(Some("two"), 9).unwrap().count(), 9);
        let mut small = places.try_take(Some("two"), 1).unwrap();
        let other = places.try_take(Some("other"), 1).unwrap();
        places.resize_as_possible(&mut small, 9);
        assert_eq!(small.count(), 6, "the principal has no more");
        let mut rest = places.try_take(Some("rest"), 1).unwrap();
        places.resize_as_possible(&mut rest, 6);
        assert_eq!(rest.count(), 2, "all places have no more");
        places.resize_as_possible(&mut rest, 1);
        assert_eq!(rest.count(), 1);
        drop((small, other, rest));
        assert_eq!(Places::new(2, "full", clock).least_of_one(6).most_of_one, 2);
    }
}
