//! The shares of principals in the connections to a peer.

use clock::{Clock, Instant};
use http_server::{
    limits::{Place, Places},
    problem::ProblemDetails,
};

use crate::quota::QuotaLimits;

/// The places of reads that another node does. One principal has half of them. A read whose answer
/// finds no memory holds its connection, and its principal may have used up the memory itself.
#[derive(Debug)]
pub(crate) struct ReadPlaces {
    places: Places,
    of: &'static str,
}

impl ReadPlaces {
    /// The places of the reads of a partition that has so many connections to its owner.
    pub(crate) fn of_partition(most: usize, limits: QuotaLimits, clock: Clock) -> ReadPlaces {
        ReadPlaces::new(most, limits, clock, "partition_busy", "of this partition")
    }

    /// The places of the reads that a peer does.
    pub(crate) fn of_peer(most: usize, limits: QuotaLimits, clock: Clock) -> ReadPlaces {
        ReadPlaces::new(most, limits, clock, "peer_busy", "at the owner of this partition")
    }

    fn new(
        most: usize,
        limits: QuotaLimits,
        clock: Clock,
        code: &'static str,
        of: &'static str,
    ) -> ReadPlaces {
        ReadPlaces { places: Places::new(most, code, clock).most_waiting(limits.requests), of }
    }

    /// Takes a place, if one is free at once.
    pub(crate) fn try_take(&self, principal: Option<&str>) -> Option<Place> {
        self.places.try_take(principal, 1).ok()
    }

    /// Waits for a place.
    pub(crate) async fn take(
        &self,
        principal: Option<&str>,
        deadline: Instant,
    ) -> Result<Place, ProblemDetails> {
        let ReadPlaces { places, of } = self;
        places.take(principal, 1, deadline).await.map_err(|why| {
            places.problem(why, |most, of_one| {
                format!(
                    "this node does at most {most} reads{of_one} {of} at the same time: send the \
                     request again later"
                )
            })
        })
    }
}
