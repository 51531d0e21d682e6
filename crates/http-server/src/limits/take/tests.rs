//! A simulation of requests that take several limits. A seed replays a run exactly, and each wrong
//! way to take the limits is found.

use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};

use clock::{Clock, Instant, ManualClock};

use super::*;
use crate::limits::{LimitRules, ShareRules};

const SEEDS: u64 = 50;
const STEPS: usize = 300;

/// The units of each limit, as between nodes: requests, tries of two partitions, connections.
const MOST: [usize; 4] = [12, 6, 6, 5];
const OF_ONE: [usize; 4] = [12, 3, 3, 2];
const CONNECTIONS: usize = 3;

/// How requests take the limits.
#[derive(Clone, Copy, Debug)]
enum Way {
    Right,
    /// The units of each limit are taken before the share of the next one.
    UnitsBeforeShares,
    /// A request that waits for a share keeps the units that it has.
    UnitsAreKept,
    /// Every other request names the limits in another order.
    TwoOrders,
    /// The share of a principal is not given back.
    ShareIsKept,
    /// Principals have no shares.
    NoShares,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// It has a try, and waits for an owner without a connection.
    Parked,
    Works,
    Ended,
}

/// A request: its principal, the limit of the tries of its partition, whether it is parked first,
/// the end of its wait, and its state.
struct Request {
    principal: Option<&'static str>,
    tries: usize,
    is_parked_first: bool,
    until: Instant,
    state: Rc<Cell<State>>,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Request {
    fn poll(&mut self) {
        if !self.is_over() {
            let ended = self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if ended.is_ready() {
                self.state.set(State::Ended);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.state.get() == State::Ended
    }

    fn works(&self) -> bool {
        self.state.get() == State::Works
    }
}

struct Simulation {
    way: Way,
    manual: ManualClock,
    clock: Clock,
    limits: [Arc<Limit>; 4],
    /// All that have not ended, in order of arrival.
    requests: Vec<Request>,
    begun: usize,
}

impl Simulation {
    fn new(way: Way, seed: u64) -> Simulation {
        let manual = ManualClock::new(seed);
        let clock = manual.clock();
        let limit = |at: usize| {
            let share = ShareRules { least: 1, waiting: 20 };
            let share = (at > 0).then_some(share);
            let waits = at > 0;
            Limit::new(LimitRules { most: MOST[at], share, waits, ..LimitRules::default() }, &clock)
        };
        let limits = [0, 1, 2, CONNECTIONS].map(limit);
        Simulation { way, manual, clock, limits, requests: Vec::new(), begun: 0 }
    }

    fn below(&self, bound: u64) -> u64 {
        self.clock.random() % bound
    }

    fn begin(&mut self) {
        let principal = [None, Some("slow"), Some("slow"), Some("other")][self.below(4) as usize];
        let wait = Duration::from_millis(self.below(2_000));
        let work = Duration::from_millis(1 + self.below(200));
        let (tries, is_parked_first) = (1 + self.below(2) as usize, self.below(3) == 0);
        let pause = Duration::from_millis(self.below(100));
        let (until, state) = (self.clock.now() + wait, Rc::new(Cell::new(State::Waits)));
        let (way, number, shown) = (self.way, self.begun, Rc::clone(&state));
        let (limits, clock) = (self.limits.clone(), self.clock.clone());
        self.begun += 1;
        let future = Box::pin(async move {
            let asked = if matches!(way, Way::NoShares) { None } else { principal };
            let who = Asker::new(asked, until);
            let mut held = [None, None, None];
            let needed = [0, tries, CONNECTIONS].map(|at| &limits[at]);
            let needs = held.iter_mut().zip(needed);
            let mut needs: Vec<_> =
                needs.map(|(held, limit)| Need { limit, units: 1, held }).collect();
            if is_parked_first {
                if take(who, &mut needs[..2]).await.is_err() {
                    return;
                }
                shown.set(State::Parked);
                clock.sleep(pause).await;
                shown.set(State::Waits);
            }
            if matches!(way, Way::TwoOrders) && number.is_multiple_of(2) && !is_parked_first {
                needs.swap(1, 2);
            }
            let taken = match way {
                Way::UnitsBeforeShares => one_after_the_other(who, &mut needs).await,
                Way::UnitsAreKept if is_parked_first => take(who, &mut needs[2..]).await,
                _ => take(who, &mut needs).await,
            };
            if taken.is_ok() {
                shown.set(State::Works);
                clock.sleep(work).await;
            }
            if matches!(way, Way::ShareIsKept) {
                std::mem::forget(limits[tries].try_share(principal, 1));
            }
        });
        let request = Request { principal, tries, is_parked_first, until, state, future };
        self.requests.push(request);
    }

    /// Lets all requests go on, until none of them can.
    fn settle(&mut self) -> Result<(), String> {
        let begun: Vec<_> = self.requests.iter().map(|one| one.state.get()).collect();
        // When something is given back, the earliest request goes on first.
        let goes_on = |one: &mut Request| {
            let before = one.state.get();
            one.poll();
            one.state.get() != before
        };
        while self.requests.iter_mut().any(goes_on) {}
        // Requests of one principal in one partition are served in order of arrival.
        for (at, one) in self.requests.iter().enumerate() {
            let has_entered = one.works() && begun[at] == State::Waits;
            let is_passed = |earlier: &Request| {
                (earlier.principal, earlier.tries) == (one.principal, one.tries)
                    && earlier.state.get() == State::Waits
                    && !earlier.is_parked_first
            };
            if has_entered && !one.is_parked_first && self.requests[..at].iter().any(is_passed) {
                return Err(format!("a request of {:?} passed another one", one.principal));
            }
        }
        self.requests.retain(|one| !one.is_over());
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        let now = self.clock.now();
        let mut alive = BTreeMap::<_, [usize; 2]>::new();
        for one in &self.requests {
            if one.state.get() != State::Parked {
                alive.entry(one.principal).or_default()[usize::from(one.works())] += 1;
            }
            if one.state.get() == State::Waits && one.until < now {
                return Err("a wait did not end".to_owned());
            }
        }
        for (principal, [waiting, working]) in &alive {
            if principal.is_some() && *working > OF_ONE[CONNECTIONS] {
                return Err(format!("{principal:?} has more than its share: {working}"));
            }
            let all: usize = alive.values().map(|[_, working]| working).sum();
            let parked = self.requests.iter().any(|one| one.state.get() == State::Parked);
            if all == 0 && *waiting > 0 && !parked {
                return Err(format!("{waiting} of {principal:?} wait, and nobody works"));
            }
        }
        // A request that waits for its share holds nothing that others wait for. Only a request
        // that waits for a connection of all principals holds a try meanwhile.
        for tries in [1, 2] {
            let taken = MOST[tries] - self.free(tries);
            let has_try = |one: &&Request| {
                one.tries == tries && [State::Parked, State::Works].contains(&one.state.get())
            };
            let used = self.requests.iter().filter(has_try).count();
            if taken > used && self.free(CONNECTIONS) > 0 {
                return Err(format!("{taken} have a try, {used} use it, and connections are free"));
            }
        }
        Ok(())
    }

    fn free(&self, at: usize) -> usize {
        // A request for more units than the limit has would take all, so begin with what it has.
        (0..=MOST[at]).rev().find(|units| self.limits[at].try_take(None, *units).is_ok()).unwrap()
    }

    /// Runs to the end. The error is what was found.
    fn run(mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            for _ in 0..self.below(4) {
                self.begin();
                self.settle()?;
            }
            self.manual.advance(Duration::from_millis(self.below(40)));
            self.settle()?;
            // The client of a request goes away.
            if self.below(10) == 0 && !self.requests.is_empty() {
                let at = self.below(self.requests.len() as u64) as usize;
                drop(self.requests.remove(at));
                self.settle()?;
            }
        }
        while !self.requests.is_empty() {
            self.manual.advance(Duration::from_millis(50));
            self.settle()?;
        }
        for (at, most) in MOST.into_iter().enumerate() {
            let of_slow = self.limits[at].try_take(Some("slow"), OF_ONE[at]).is_ok();
            if self.free(at) != most || !of_slow {
                return Err(format!("something of limit {at} is not given back"));
            }
        }
        Ok(())
    }
}

/// Takes the limits as several calls do, each with its share.
async fn one_after_the_other(who: Asker<'_>, needs: &mut [Need<'_>]) -> Result<(), Full> {
    for Need { limit, units, held } in needs {
        **held = Some(limit.take(who, *units).await?);
    }
    Ok(())
}

fn found(way: Way) -> Option<String> {
    (1..=SEEDS).find_map(|seed| {
        let found = Simulation::new(way, seed).run().err()?;
        Some(format!("{way:?}, seed {seed}: {found}"))
    })
}

#[test]
fn requests_take_limits_in_order_and_leave_the_rest_to_others() {
    assert_eq!(found(Way::Right), None);
}

#[test]
fn wrong_ways_to_take_limits_are_found() {
    for way in
        [Way::UnitsBeforeShares, Way::UnitsAreKept, Way::TwoOrders, Way::ShareIsKept, Way::NoShares]
    {
        let found = found(way);
        assert!(found.is_some(), "{way:?}");
        println!("{}", found.unwrap_or_default());
    }
}
