//! Watched leases: each node judges their expiry by itself.
//!
//! A lease has expired for a node when the node has seen the same version for as long as the lease
//! lasts.

use std::{collections::HashMap, time::Duration};

use clock::Instant;
use ielections::{
    Seat,
    engine::{StoreAnswer, StoreCall},
};

use super::World;
use crate::{
    defect::Defect,
    store::{Shown, seat_of_lease},
};

/// The leases that a process has seen.
#[derive(Debug, Default)]
pub(super) struct Watch(HashMap<Seat, (Shown, Instant)>);

impl Watch {
    /// Notes a lease, and returns the time that is left of it.
    fn see(&mut self, shown: Shown, now: Instant, restarts: bool) -> Duration {
        let (seen, since) = self.0.entry(shown.seat).or_insert((shown, now));
        if *seen != shown && restarts {
            *since = now;
        }
        *seen = shown;
        (*since + shown.ttl).saturating_since(now)
    }

    /// Returns the version of a lease that has expired.
    fn expired(&self, seat: Seat, now: Instant) -> Option<u64> {
        let (shown, since) = self.0.get(&seat)?;
        (*since + shown.ttl <= now).then_some(shown.version)
    }
}

impl World {
    /// Returns the version of the lease that has expired for a node that sends a call.
    pub(super) fn expired(&self, process: usize, op: &StoreCall) -> Option<u64> {
        self.processes[process].watch.expired(seat_of_lease(op)?, self.local(process))
    }

    /// Returns the answer as a node judges it.
    pub(super) fn judged(
        &mut self,
        process: usize,
        answer: StoreAnswer,
        shown: &[Shown],
    ) -> StoreAnswer {
        if !self.nodes_watch {
            return answer;
        }
        let (now, restarts) = (self.local(process), !self.has(Defect::CountsThroughRenewals));
        let watch = &mut self.processes[process].watch;
        let left: HashMap<Seat, Duration> =
            shown.iter().map(|shown| (shown.seat, watch.see(*shown, now, restarts))).collect();
        let StoreAnswer::Leases(mut leases) = answer else { return answer };
        for seen in &mut leases {
            seen.left = left.get(&seen.seat).copied().unwrap_or(seen.left);
        }
        leases.retain(|seen| !seen.left.is_zero());
        StoreAnswer::Leases(leases)
    }
}
