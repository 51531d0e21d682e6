//! The places of logs that are sent at the same time.

use clock::{Clock, Instant};

use super::places::{Place, PlaceTaker, Places};
use crate::problem::ProblemDetails;

/// The places of logs.
#[derive(Debug)]
pub struct SendPlaces {
    /// The sender of these logs, with a verb, for people.
    sends: &'static str,
    places: Places,
}

impl SendPlaces {
    /// Creates `most` places. `sends` begins the reason of a refusal, such as "this node sends".
    pub fn new(sends: &'static str, most: usize, clock: Clock) -> SendPlaces {
        SendPlaces { sends, places: Places::new(most, "too_many_logs", clock) }
    }

    /// Waits for a place.
    pub async fn take<'p>(
        &self,
        taker: impl Into<PlaceTaker<'p>>,
        deadline: Instant,
    ) -> Result<Place, ProblemDetails> {
        let SendPlaces { sends, places } = self;
        places.take(taker, 1, deadline).await.map_err(|why| {
            places.problem(why, |most, of| {
                format!(
                    "{sends} at most {most} logs{of} at the same time: wait until one of them has \
                     ended"
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_refusal_names_the_limit_that_is_reached() {
        let manual = ManualClock::new(1);
        let now = manual.clock().now();
        let places = SendPlaces::new("this node sends", 2, manual.clock());
        let refusal = |principal| {
            let problem = places.take(principal, now).now_or_never().unwrap().unwrap_err();
            (problem.status().as_u16(), problem.code(), problem.reason().to_owned())
        };
        let later = now + Duration::from_secs(1);
        let _one = places.take(Some("a"), later).now_or_never().unwrap().unwrap();
        let (status, code, reason) = refusal(Some("a"));
        assert_eq!((status, code), (429, "rate_limited"), "{reason}");
        assert!(
            reason.starts_with("this node sends at most 1 logs of one principal at"),
            "{reason}"
        );
        let _two = places.take(Some("b"), later).now_or_never().unwrap().unwrap();
        let (status, code, reason) = refusal(Some("c"));
        assert_eq!((status, code), (503, "too_many_logs"), "{reason}");
        assert!(reason.starts_with("this node sends at most 2 logs at"), "{reason}");
    }
}
