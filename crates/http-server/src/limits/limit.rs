//! A limit: a number of units of something, such as logs, followers, or bytes of memory. A request
//! takes some of them, holds them as a [`Permit`], and gives them back by dropping it.
//!
//! **The rule of fairness.** One principal holds at most half of a limit that has shares, or its
//! `least` units if that is more. If a principal has its share, its next requests wait, up to a
//! number; others are refused at once, because each request that waits holds a connection. A
//! request that holds one of the few connections between two nodes waits only for a moment.
//! Requests are served in order of arrival. Requests without a principal have no share: only the
//! total limits them.
//!
//! Invariant: a request waits for the share of its principal before it waits for the units that all
//! principals share. A simpler version has only units for all: a principal that opens as many logs
//! as there are units, and receives them slowly, keeps all other principals out until the node cuts
//! its connections.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::ready,
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use metrics::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

use super::rules::LimitRules;
use crate::problem::ProblemDetails;

/// How long a request that holds a connection between two nodes may wait for what does not depend
/// on the other node. All principals share these connections.
const MOMENT: Duration = Duration::from_millis(250);

/// Who asks for units, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'p> {
    principal: Option<&'p str>,
    /// The end of the wait for the share of the principal.
    share_until: Instant,
    until: Instant,
}

impl<'p> Asker<'p> {
    /// A request that waits until an instant.
    pub fn new(principal: Option<&'p str>, until: Instant) -> Asker<'p> {
        Asker { principal, share_until: until, until }
    }

    /// The node itself, or a request that needs no share.
    pub fn nobody(until: Instant) -> Asker<'static> {
        Asker::new(None, until)
    }

    /// The principal, if the node knows it.
    pub fn principal(self) -> Option<&'p str> {
        self.principal
    }

    /// Waits for at most half of the time that is left. The other half is for the work that needs
    /// the units.
    ///
    /// Without this rule an overload never ends: requests wait in order, so each request gets its
    /// memory when its deadline is nearly over, and its work is given up. The same happens to each
    /// request after it, and no answer is ever finished.
    pub fn half(self, now: Instant) -> Asker<'p> {
        let half = now + (self.until - now) / 2;
        Asker { until: half, share_until: self.share_until.min(half), ..self }
    }

    /// Waits for the share of the principal for at most half of the time that is left.
    pub fn half_for_share(self, now: Instant) -> Asker<'p> {
        Asker { until: self.until, ..self.half(now) }
    }

    /// Waits for a moment only, for the share of the principal and for all units.
    pub fn moment(self, now: Instant) -> Asker<'p> {
        Asker { until: self.until.min(now + MOMENT), ..self.moment_for_share(now) }
    }

    /// Waits for the share of the principal for a moment only: the request holds a connection
    /// between two nodes.
    pub fn moment_for_share(self, now: Instant) -> Asker<'p> {
        Asker { share_until: self.share_until.min(now + MOMENT), ..self }
    }
}

/// A limit.
#[derive(Debug)]
pub struct Limit {
    rules: LimitRules,
    of_one: usize,
    free: Arc<Semaphore>,
    /// The shares of the principals that have units or wait for some.
    shares: Mutex<HashMap<String, Weak<Share>>>,
    clock: Clock,
}

/// The share of one principal.
#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    /// Bounds the requests that wait until the share has free units.
    waiting: Semaphore,
}

/// The part of its principal's share that a request holds.
#[derive(Debug)]
pub(super) struct HeldShare {
    units: OwnedSemaphorePermit,
    of: Arc<Share>,
}

/// Some units that a request holds. They are given back when this value is dropped.
#[derive(Debug)]
pub struct Permit {
    of: Arc<Limit>,
    share: Option<HeldShare>,
    units: OwnedSemaphorePermit,
}

/// The refusal of a request by a limit.
#[derive(Debug)]
pub struct Full {
    of: Arc<Limit>,
    whose: Whose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The principal holds its whole share, and no more of its requests may wait for it.
    Principal,
    /// All units are taken.
    All,
}

impl Limit {
    /// A limit with all its units free.
    pub fn new(rules: LimitRules, clock: &Clock) -> Arc<Limit> {
        let most = rules.most.clamp(1, Semaphore::MAX_PERMITS);
        let least = rules.share.map_or(1, |share| share.least.max(1));
        // A counter that begins with its first event shows no increase there, so an alert would
        // miss this event. The gauge exists from the beginning, too.
        rules.share.inspect(|_| shares_refused(rules.code).increment(0));
        rules.shown.iter().for_each(|shown| shown.increment(0));
        Arc::new(Limit {
            of_one: (most / 2).max(least.min(most)),
            free: Arc::new(Semaphore::new(most)),
            rules: LimitRules { most, ..rules },
            shares: Mutex::default(),
            clock: clock.clone(),
        })
    }

    /// Takes `units`, or all units if there are fewer, so that a large request is not refused for
    /// ever. A request for more than the share of its principal takes the whole share.
    ///
    /// # Errors
    /// If the units did not become free before the end of the wait, or, without a wait, are not
    /// free. The share of the principal refuses in the same way. It also refuses at once if as many
    /// requests wait for it as may.
    pub async fn take(self: &Arc<Self>, who: Asker<'_>, units: usize) -> Result<Permit, Full> {
        let share = self.share(who, units).await?;
        self.units(share, who, units).await
    }

    /// Takes units like [`take`](Limit::take), if they are free at once.
    pub fn try_take(
        self: &Arc<Self>,
        principal: Option<&str>,
        units: usize,
    ) -> Result<Permit, Full> {
        let share = self.try_share(principal, units)?;
        let units = try_acquire(&self.free, permits(units, self.rules.most));
        self.permit(share, units)
    }

    /// Does work, and holds one unit during each of its steps. A step ends where the work waits or
    /// [yields](tokio::task::yield_now); the work holds no unit while it waits.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut units = PollSemaphore::new(Arc::clone(&self.free));
        let mut work = pin!(work);
        poll_fn(|context| {
            let _unit = ready!(units.poll_acquire(context));
            work.as_mut().poll(context)
        })
        .await
    }

    /// Waits for the share of the principal; `None` if the request needs none.
    pub(super) async fn share(
        self: &Arc<Self>,
        who: Asker<'_>,
        units: usize,
    ) -> Result<Option<HeldShare>, Full> {
        // Nobody overtakes a request that waits: its semaphore has no free permits meanwhile.
        let tried = self.try_share(who.principal, units);
        let (Err(_), Some(principal), true) = (&tried, who.principal, self.rules.waits) else {
            return tried;
        };
        let of = self.share_of(principal);
        let waiting = of.waiting.try_acquire().map_err(|_| self.full(Whose::Principal))?;
        let units = Arc::clone(&of.free).acquire_many_owned(permits(units, self.of_one));
        let units = self.clock.timeout_at(who.share_until, units).await.ok().and_then(Result::ok);
        drop(waiting);
        Ok(Some(HeldShare { units: units.ok_or_else(|| self.full(Whose::Principal))?, of }))
    }

    /// Takes units of the share of the principal, if they are free at once.
    pub(super) fn try_share(
        self: &Arc<Self>,
        principal: Option<&str>,
        units: usize,
    ) -> Result<Option<HeldShare>, Full> {
        let (Some(principal), Some(_)) = (principal, self.rules.share) else { return Ok(None) };
        let of = self.share_of(principal);
        let units = try_acquire(&of.free, permits(units, self.of_one));
        Ok(Some(HeldShare { units: units.ok_or_else(|| self.full(Whose::Principal))?, of }))
    }

    /// Waits for units of all principals. The request already holds its share.
    pub(super) async fn units(
        self: &Arc<Self>,
        share: Option<HeldShare>,
        who: Asker<'_>,
        units: usize,
    ) -> Result<Permit, Full> {
        let units = self.acquire(who, units).await;
        self.permit(share, units)
    }

    async fn acquire(&self, who: Asker<'_>, units: usize) -> Option<OwnedSemaphorePermit> {
        let units = permits(units, self.rules.most);
        if !self.rules.waits {
            return try_acquire(&self.free, units);
        }
        let units = Arc::clone(&self.free).acquire_many_owned(units);
        self.clock.timeout_at(who.until, units).await.ok().and_then(Result::ok)
    }

    fn permit(
        self: &Arc<Self>,
        share: Option<HeldShare>,
        units: Option<OwnedSemaphorePermit>,
    ) -> Result<Permit, Full> {
        let units = units.ok_or_else(|| self.full(Whose::All))?;
        self.show(0, units.num_permits());
        Ok(Permit { of: Arc::clone(self), share, units })
    }

    /// Whether requests wait for units.
    pub(super) fn waits(&self) -> bool {
        self.rules.waits
    }

    fn full(self: &Arc<Self>, whose: Whose) -> Full {
        Full { of: Arc::clone(self), whose }
    }

    fn show(&self, before: usize, after: usize) {
        if let Some(shown) = &self.rules.shown {
            shown.increment(after as f64 - before as f64);
        }
    }

    fn share_of(&self, principal: &str) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(principal).and_then(Weak::upgrade) {
            return share;
        }
        // A principal that sends one request at a time gets a new share for each. So the map is not
        // searched for shares to forget before it is full, and half of it is free afterwards.
        if shares.len() == shares.capacity() {
            shares.retain(|_, share| share.strong_count() > 0);
            let live = shares.len();
            shares.reserve(live);
        }
        let waiting = self.rules.share.map_or(0, |share| share.waiting);
        let share = Arc::new(Share {
            free: Arc::new(Semaphore::new(self.of_one)),
            waiting: Semaphore::new(waiting.min(Semaphore::MAX_PERMITS)),
        });
        shares.insert(principal.to_owned(), Arc::downgrade(&share));
        share
    }
}

impl Permit {
    /// The number of units.
    pub fn units(&self) -> usize {
        self.units.num_permits()
    }

    /// Gives the units back, and keeps the share of the principal. Returns whether there is one.
    pub(super) fn keep_only_share(&mut self) -> bool {
        self.of.show(self.units(), 0);
        let all = self.units();
        drop(self.units.split(all));
        self.share.is_some()
    }

    /// Takes the units again, if the permit has only its share.
    pub(super) async fn take_units_again(
        &mut self,
        who: Asker<'_>,
        units: usize,
    ) -> Result<(), Full> {
        if self.units() == 0 {
            let units = self.of.acquire(who, units).await;
            let units = units.ok_or_else(|| self.of.full(Whose::All))?;
            self.of.show(0, units.num_permits());
            self.units.merge(units);
        }
        Ok(())
    }

    /// Changes the number of units, or leaves it as it is if there are not enough free units.
    ///
    /// A permit does not wait for more, because permits that waited would wait for each other. For
    /// example, 64 answers with 2 MiB each fill a memory of 128 MiB, and none of them could become
    /// larger or end.
    ///
    /// # Errors
    /// If there are not enough free units.
    pub fn resize(&mut self, units: usize) -> Result<(), Full> {
        let before = self.units();
        let of_share_before = self.share.as_ref().map_or(0, |share| share.units.num_permits());
        if let Some(share) = &mut self.share
            && !resize(&mut share.units, permits(units, self.of.of_one))
        {
            return Err(self.of.full(Whose::Principal));
        }
        if !resize(&mut self.units, permits(units, self.of.rules.most)) {
            if let Some(share) = &mut self.share {
                // The share becomes smaller, which is always possible.
                resize(&mut share.units, of_share_before as u32);
            }
            return Err(self.of.full(Whose::All));
        }
        self.of.show(before, self.units());
        Ok(())
    }

    /// Changes the number of units, for something that exists in any case. If there are not enough
    /// free units, the permit takes those that are free. So no other request can take this rest and
    /// make more things that have too few units.
    pub(crate) fn resize_as_possible(&mut self, units: usize) {
        if self.resize(units).is_ok() {
            return;
        }
        let of_share = self.share.as_ref().map(|share| share.of.free.available_permits());
        let free = self.of.free.available_permits().min(of_share.unwrap_or(usize::MAX));
        // If another request takes them first, this one keeps what it has.
        let _ = self.resize(units.min(self.units() + free));
    }

    /// Turns the bytes of a request that is done into `Bytes` that keep its permit, if it has one.
    /// The permit becomes as large as the memory allows.
    pub fn around(
        permit: Option<Permit>,
        bytes: impl AsRef<[u8]> + Into<Bytes> + Send + 'static,
    ) -> Bytes {
        let Some(mut permit) = permit else { return bytes.into() };
        permit.resize_as_possible(bytes.as_ref().len());
        held_bytes(bytes, permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.show(self.units(), 0);
    }
}

impl Full {
    /// Whether the request waited in vain for the units of all principals, not for its share.
    pub fn is_late(&self) -> bool {
        self.whose == Whose::All && self.of.rules.waits
    }
}

impl From<Full> for ProblemDetails {
    fn from(Full { of, whose }: Full) -> ProblemDetails {
        let LimitRules { most, code, of: what, reason, .. } = of.rules;
        match whose {
            Whose::Principal => {
                // A refusal counts when it becomes the answer, so a try before a wait does not
                // count.
                shares_refused(code).increment(1);
                ProblemDetails::rate_limited(reason(what, of.of_one, " of one principal"))
            }
            Whose::All => ProblemDetails::unavailable(code, reason(what, most, "")),
        }
    }
}

/// Turns bytes into `Bytes` that keep permits for as long as they exist.
pub fn held_bytes(bytes: impl AsRef<[u8]> + Send + 'static, permits: impl Send + 'static) -> Bytes {
    Bytes::from_owner(HeldBytes { bytes, _permits: permits })
}

struct HeldBytes<B, P> {
    bytes: B,
    _permits: P,
}

impl<B: AsRef<[u8]>, P> AsRef<[u8]> for HeldBytes<B, P> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The requests that were refused because of the shares of their principals.
fn shares_refused(code: &'static str) -> Counter {
    metrics::counter!("httpapi_shares_refused_total", "limit" => code)
}

/// A request for more units than there are takes all of them, and is not refused for ever.
fn permits(units: usize, most: usize) -> u32 {
    u32::try_from(units.min(most)).unwrap_or(u32::MAX)
}

fn try_acquire(free: &Arc<Semaphore>, units: u32) -> Option<OwnedSemaphorePermit> {
    Arc::clone(free).try_acquire_many_owned(units).ok()
}

fn resize(held: &mut OwnedSemaphorePermit, units: u32) -> bool {
    let (has, needs) = (held.num_permits(), units as usize);
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

    use super::{super::rules::ShareRules, *};

    /// A limit of `most` units. Each principal may have half of them, and as many of its requests
    /// may wait.
    fn limit(most: usize, least: usize, clock: &Clock) -> Arc<Limit> {
        let share = Some(ShareRules { least, waiting: (most / 2).max(1) });
        Limit::new(LimitRules { most, share, code: "full", ..LimitRules::default() }, clock)
    }

    fn whose<T: std::fmt::Debug>(refused: Result<T, Full>) -> Whose {
        refused.unwrap_err().whose
    }

    /// A principal that took its logs slowly kept all other principals out.
    #[test]
    fn a_principal_has_half_of_the_units_and_at_least_one() {
        for (most, of_one) in [(9, 4), (2, 1), (1, 1)] {
            let manual = ManualClock::new(1);
            let deadline = manual.clock().now() + Duration::from_secs(1);
            let limit = limit(most, 1, &manual.clock());
            let names: Vec<String> = (0..most).map(|number| number.to_string()).collect();
            let take = |principal| limit.take(Asker::new(principal, deadline), 1);
            let mut held: Vec<_> =
                std::iter::from_fn(|| take(Some("slow")).now_or_never()?.ok()).collect();
            assert_eq!(held.len(), of_one, "of {most}");
            assert_eq!(whose(limit.try_take(Some("slow"), 1)), Whose::Principal);
            let mut waits = Box::pin(take(Some("slow")));
            assert!(waits.as_mut().now_or_never().is_none());
            let take_one = |name| take(Some(name)).now_or_never()?.ok();
            let others: Vec<_> = names.iter().map(String::as_str).map_while(take_one).collect();
            assert_eq!(others.len(), most - of_one, "the others have the rest");
            // The principal goes on when one of its logs ends.
            held.pop();
            let permit = waits.now_or_never().unwrap().unwrap();
            // Nobody has a share after the last log.
            drop((held, others, permit));
            let all: Vec<_> = std::iter::from_fn(|| take(None).now_or_never()?.ok()).collect();
            assert_eq!(all.len(), most, "without principals there is only the limit of all");
            assert_eq!(whose(limit.try_take(None, 1)), Whose::All);
        }
    }

    /// Each new share was the reason to look at all shares. 100 principals hold units, and others
    /// send one request after another.
    #[test]
    fn shares_without_units_are_forgotten_and_seldom_looked_for() {
        let limit = limit(1_000, 1, &ManualClock::new(1).clock());
        let one = |number: usize| limit.try_take(Some(&number.to_string()), 1).unwrap();
        let _held: Vec<_> = (0..100).map(one).collect();
        let kept = (100..10_100).map(|number| {
            drop(one(number));
            limit.shares.lock().unwrap().len()
        });
        let kept: Vec<_> = kept.collect();
        let most = kept.iter().max();
        assert!(most < Some(&1_000), "{most:?} shares, of which 100 have units");
        let looked_for = kept.windows(2).filter(|kept| kept[1] <= kept[0]).count();
        assert!(looked_for <= 100, "{looked_for} times for 10,000 shares");
        let shares = limit.shares.lock().unwrap();
        let live = shares.values().filter(|share| share.strong_count() > 0).count();
        assert_eq!(live, 100, "a share with units is kept");
    }

    /// A principal with its share of the logs let any number of further requests wait. Each of them
    /// held a connection, so the requests of all others waited for connections.
    #[test]
    fn only_some_requests_of_a_principal_wait_for_its_share() {
        let manual = ManualClock::new(1);
        let deadline = manual.clock().now() + Duration::from_secs(1);
        let limit = limit(6, 1, &manual.clock());
        let begin = |principal| {
            let mut begun = Box::pin(limit.take(Asker::new(principal, deadline), 1));
            let ended = begun.as_mut().now_or_never();
            (begun, ended)
        };
        let mut held: Vec<_> = (0..3).map(|_| begin(Some("slow")).1.unwrap().unwrap()).collect();
        let waiting: Vec<_> = (0..3).map(|_| begin(Some("slow"))).collect();
        assert!(waiting.iter().all(|(_, ended)| ended.is_none()));
        assert_eq!(whose(begin(Some("slow")).1.unwrap()), Whose::Principal);
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
        let limit = limit(4, 1, &manual.clock());
        let of_client = Asker::new(Some("slow"), deadline);
        let forwarded = of_client.moment_for_share(manual.clock().now());
        let _held = limit.take(forwarded, 2).now_or_never().unwrap().unwrap();
        let mut forwarded = Box::pin(limit.take(forwarded, 1));
        let mut of_client = Box::pin(limit.take(of_client, 1));
        assert!(forwarded.as_mut().now_or_never().is_none());
        assert!(of_client.as_mut().now_or_never().is_none());
        manual.advance(MOMENT);
        assert_eq!(whose(forwarded.now_or_never().unwrap()), Whose::Principal);
        assert!(of_client.as_mut().now_or_never().is_none(), "the request of a client waits");
        manual.advance(Duration::from_secs(10));
        assert_eq!(whose(of_client.now_or_never().unwrap()), Whose::Principal);
    }

    /// A wait for a moment made the wait for the share longer again.
    #[test]
    fn no_rule_makes_a_wait_longer() {
        let now = ManualClock::new(1).clock().now();
        for rule in [Asker::half, Asker::half_for_share, Asker::moment, Asker::moment_for_share] {
            for share_millis in [100, 300, 10_000] {
                let (until, share_until) =
                    (now + Duration::from_secs(10), now + Duration::from_millis(share_millis));
                let shorter = rule(Asker { principal: None, share_until, until }, now);
                assert!(shorter.until <= until, "{shorter:?}");
                assert!(shorter.share_until <= share_until.min(shorter.until), "{shorter:?}");
            }
        }
    }

    #[test]
    fn a_request_holds_as_many_units_of_its_share_as_of_all() {
        let clock = ManualClock::new(1).clock();
        let of = limit(10, 6, &clock);
        let mut one = of.try_take(Some("one"), 4).unwrap();
        let mut two = of.try_take(Some("two"), 4).unwrap();
        assert_eq!(whose(one.resize(7)), Whose::All, "only two units are free");
        assert!(of.try_take(Some("one"), 3).is_err(), "the share has two free units");
        one.resize(6).unwrap();
        assert_eq!(whose(two.resize(5)), Whose::All);
        one.resize(1).unwrap();
        assert_eq!((one.units(), two.units()), (1, 4));
        assert!(of.try_take(Some("one"), 5).is_ok(), "the share has the units back");
        assert!(of.try_take(Some("two"), 3).is_err());
        drop(two);
        // A request that needs more than its share takes the whole share.
        assert_eq!(of.try_take(Some("two"), 9).unwrap().units(), 9);
        let mut small = of.try_take(Some("two"), 1).unwrap();
        let other = of.try_take(Some("other"), 1).unwrap();
        small.resize_as_possible(9);
        assert_eq!(small.units(), 6, "the principal has no more");
        let mut rest = of.try_take(Some("rest"), 1).unwrap();
        rest.resize_as_possible(6);
        assert_eq!(rest.units(), 2, "there are no more");
        rest.resize_as_possible(1);
        assert_eq!(rest.units(), 1);
        drop((small, other, rest));
        assert_eq!(limit(2, 6, &clock).of_one, 2);
    }

    #[test]
    fn a_refusal_names_the_limit_that_is_reached() {
        let manual = ManualClock::new(1);
        let now = manual.clock().now();
        let limit = limit(2, 1, &manual.clock());
        let refusal = |principal| {
            let refused = limit.take(Asker::new(principal, now), 1).now_or_never().unwrap();
            let problem = ProblemDetails::from(refused.unwrap_err());
            (problem.status().as_u16(), problem.code(), problem.reason().to_owned())
        };
        let later = |principal| Asker::new(Some(principal), now + Duration::from_secs(1));
        let _one = limit.take(later("a"), 1).now_or_never().unwrap().unwrap();
        let (status, code, reason) = refusal(Some("a"));
        assert_eq!((status, code), (429, "rate_limited"), "{reason}");
        let of_one = "this node does at most 1 requests of one principal at";
        assert!(reason.starts_with(of_one), "{reason}");
        let _two = limit.take(later("b"), 1).now_or_never().unwrap().unwrap();
        let (status, code, reason) = refusal(Some("c"));
        assert_eq!((status, code), (503, "full"), "{reason}");
        assert!(reason.starts_with("this node does at most 2 requests at"), "{reason}");
    }
}
