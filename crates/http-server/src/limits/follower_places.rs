//! The places of followers: a node serves only so many clients that follow logs.

use std::sync::Arc;

use clock::Clock;
use metrics::Gauge;

use super::places::{Place, Places};
use crate::problem::{ProblemDetails, TOO_MANY_FOLLOWERS};

/// The places of the clients that follow logs through a node, whoever owns the partitions.
///
/// They are apart from the places of logs that are read once, which have an end.
#[derive(Debug)]
pub struct FollowerPlaces {
    places: Places,
    taken: Gauge,
}

/// The place of a follower. It ends when this value is dropped.
#[derive(Debug)]
pub struct FollowerPlace {
    _place: Place,
    principal: Option<Arc<str>>,
    taken: Gauge,
}

impl FollowerPlaces {
    /// Places for `most` followers; one principal takes at most half of them.
    pub fn new(most: usize, clock: Clock) -> FollowerPlaces {
        let taken = metrics::gauge!("httpapi_followers");
        // The gauge exists from the beginning.
        taken.increment(0);
        FollowerPlaces { places: Places::new(most, TOO_MANY_FOLLOWERS, clock), taken }
    }

    /// Takes a place. Nobody waits for one: followers may stay for days.
    pub fn take(&self, principal: Option<&str>) -> Result<FollowerPlace, ProblemDetails> {
        let places = &self.places;
        let place = places.try_take(principal, 1).map_err(|why| {
            places.problem(why, |most, of| {
                format!(
                    "at most {most} clients{of} follow logs of this node at the same time: wait \
                     until one of them has ended"
                )
            })
        })?;
        self.taken.increment(1);
        let principal = principal.map(Arc::from);
        Ok(FollowerPlace { _place: place, principal, taken: self.taken.clone() })
    }
}

impl FollowerPlace {
    /// The principal of the follower, if the node knows its principals.
    pub fn principal(&self) -> Option<Arc<str>> {
        self.principal.clone()
    }
}

impl Drop for FollowerPlace {
    fn drop(&mut self) {
        self.taken.decrement(1);
    }
}
