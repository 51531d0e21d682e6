//! The parts of a fast series that do not change.

use std::ops::Add;

use base::with_causes;
use clock::Instant;
use futures::{StreamExt, stream};
use tracing::warn;

use super::{
    FastSettings, RangeOwner,
    counter::{CounterName, HeldCounter, RowsState},
    give_back::GivenUp,
    meters::SeriesMeters,
    reserve::Reserver,
};
use crate::{Series, rows::DocNumberRows};

/// How many counters are given back at the same time.
pub(crate) const SIDE_BY_SIDE: usize = 8;

/// The parts of a fast series that do not change.
#[derive(Debug)]
pub(crate) struct SeriesContext {
    pub(crate) series: Series,
    pub(crate) rows: DocNumberRows,
    pub(crate) owner: RangeOwner,
    pub(crate) settings: FastSettings,
    pub(crate) meters: SeriesMeters,
}

/// The counters that a fast series gave up when it was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesEnd {
    /// The counters that the next reservation takes again.
    pub given_back: u64,
    /// The counters that will not be issued, because other nodes had reserved counters after them.
    /// The ledger says so.
    pub not_issued: u64,
    /// The counters that may be lost, because the storage failed or the deadline passed. The ledger
    /// shows their ranges as after a crash.
    pub not_given_back: u64,
}

impl Add for SeriesEnd {
    type Output = SeriesEnd;

    fn add(self, more: SeriesEnd) -> SeriesEnd {
        SeriesEnd {
            given_back: self.given_back + more.given_back,
            not_issued: self.not_issued + more.not_issued,
            not_given_back: self.not_given_back + more.not_given_back,
        }
    }
}

impl SeriesContext {
    pub(crate) fn reserver(&self) -> Reserver<'_> {
        Reserver { series: &self.series, rows: &self.rows, owner: &self.owner.name }
    }

    pub(crate) fn step(&self) -> u64 {
        self.series.definition().step
    }

    /// Everything that the node holds of a counter; `None` if there is nothing to give back.
    pub(crate) fn given_up(&self, name: CounterName, counter: HeldCounter) -> Option<GivenUp> {
        let HeldCounter { ranges: held, rows, .. } = counter;
        let known = match rows {
            RowsState::Idle(known) => known,
            // A task that has begun holds the known rows.
            RowsState::Refilling(_, known) => known.unwrap_or_default(),
        };
        let given_up = GivenUp { of: name.key(&self.series), held, known };
        given_up.is_worth_a_write().then_some(given_up)
    }

    /// Gives a counter back until `deadline`.
    pub(crate) async fn give_back(&self, given_up: GivenUp, deadline: Instant) -> SeriesEnd {
        let (key, unissued) = (given_up.of.clone(), given_up.unissued(self.step()));
        let given = self.reserver().give_back(given_up, deadline);
        let why = match self.rows.clock().timeout_at(deadline, given).await {
            Ok(Ok(end)) => {
                self.meters.reserved_after.increment(end.not_issued);
                return end;
            }
            Ok(Err(error)) => with_causes(&error),
            Err(_) => "the time is over".to_owned(),
        };
        self.meters.not_given_back.increment(unissued);
        let (series, period, ws) = (key.series, key.period, key.ws.map(|ws| ws.0));
        warn!(%series, %period, ws, unissued, error = why, "document numbers not given back");
        SeriesEnd { not_given_back: unissued, ..SeriesEnd::default() }
    }

    /// Gives many counters back, several at the same time.
    pub(crate) async fn give_all_back(&self, all: Vec<GivenUp>, deadline: Instant) -> SeriesEnd {
        let ends = stream::iter(all).map(|given_up| self.give_back(given_up, deadline));
        let ends: Vec<SeriesEnd> = ends.buffer_unordered(SIDE_BY_SIDE).collect().await;
        ends.into_iter().fold(SeriesEnd::default(), SeriesEnd::add)
    }
}
