//! The parts of a fast series that its tasks share, and the giving back of counters.

use causes::with_causes;
use clock::Instant;
use futures::{StreamExt, stream};
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::warn;

use super::{
    FastSettings,
    give_back::{GivenUp, Returned},
    meters::SeriesMeters,
    reserve::{KnownRows, Reserver},
    state::{CounterName, HeldCounter, RowsState},
};
use crate::{Series, rows::NumberRows};

/// The number of counters that are given back side by side.
const SIDE_BY_SIDE: usize = 8;

/// The parts of a fast series that do not change.
#[derive(Debug)]
pub(crate) struct SeriesContext {
    pub(crate) series: Series,
    pub(crate) rows: NumberRows,
    pub(crate) owner: String,
    pub(crate) settings: FastSettings,
    pub(crate) meters: SeriesMeters,
}

impl SeriesContext {
    pub(crate) fn reserver(&self) -> Reserver<'_> {
        Reserver { series: &self.series, rows: &self.rows, owner: &self.owner }
    }

    pub(crate) fn step(&self) -> u64 {
        self.series.definition().step
    }

    /// All that the node holds of a counter; nothing if there is nothing to give back.
    pub(crate) fn given_up(&self, (name, counter): (CounterName, HeldCounter)) -> Option<GivenUp> {
        let HeldCounter { ranges: held, rows, .. } = counter;
        let known = match rows {
            RowsState::Idle(known) => known,
            // The task of the reservation has what is known of the rows.
            RowsState::Refilling(_) => KnownRows::default(),
        };
        let of = name.key(&self.series);
        let given_up = GivenUp { of, held, known };
        given_up.is_worth_a_write().then_some(given_up)
    }

    /// Gives counters back until `deadline`.
    pub(crate) async fn give_back(&self, given_up: GivenUp, deadline: Instant) -> SeriesEnd {
        let (key, unissued) = (given_up.of.clone(), given_up.held.unissued(self.step()));
        let given = self.reserver().give_back(given_up, deadline);
        let why = match self.rows.clock().timeout_at(deadline, given).await {
            Ok(Ok(Returned { given_back, not_issued })) => {
                self.meters.reserved_behind.increment(not_issued);
                return SeriesEnd { given_back, not_issued, not_given_back: 0 };
            }
            Ok(Err(error)) => with_causes(&error),
            Err(_) => "the time is over".to_owned(),
        };
        self.meters.not_given_back.increment(unissued);
        let (series, period, ws) = (key.series, key.period, key.ws.map(|ws| ws.0));
        warn!(%series, %period, ws, unissued, error = why, "document numbers not given back");
        SeriesEnd { not_given_back: unissued, ..SeriesEnd::default() }
    }

    /// Gives many counters back, side by side.
    pub(crate) async fn give_all_back(&self, all: Vec<GivenUp>, deadline: Instant) -> SeriesEnd {
        let ends = stream::iter(all).map(|given_up| self.give_back(given_up, deadline));
        ends.buffer_unordered(SIDE_BY_SIDE).fold(SeriesEnd::default(), SeriesEnd::plus).await
    }
}

/// The counters that a fast series gave up when it was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesEnd {
    /// The counters that the next node issues.
    pub given_back: u64,
    /// The counters that nobody will issue, because other nodes had reserved counters behind them.
    /// The ledger says so.
    pub not_issued: u64,
    /// The counters that nobody will issue, because the storage failed or the time was over. In the
    /// ledger their ranges look as after a crash.
    pub not_given_back: u64,
}

impl SeriesEnd {
    #[allow(clippy::unused_async, reason = "a fold takes a future")]
    async fn plus(self, more: SeriesEnd) -> SeriesEnd {
        SeriesEnd {
            given_back: self.given_back + more.given_back,
            not_issued: self.not_issued + more.not_issued,
            not_given_back: self.not_given_back + more.not_given_back,
        }
    }
}

/// The task that gives back the counters of old periods, and those that were evicted.
#[derive(Debug)]
pub(crate) struct Returns {
    queue: mpsc::Sender<GivenUp>,
    task: JoinHandle<()>,
}

impl Returns {
    /// Starts the task. It ends when the queue is closed and empty.
    pub(crate) fn start(context: std::sync::Arc<SeriesContext>) -> Returns {
        let (queue, waiting) = mpsc::channel(context.settings.counters_held);
        let returning = async move {
            let next = |mut waiting: mpsc::Receiver<GivenUp>| async {
                waiting.recv().await.map(|given_up| (given_up, waiting))
            };
            let all = stream::unfold(waiting, next);
            all.for_each_concurrent(SIDE_BY_SIDE, |given_up| async {
                let deadline = context.rows.several_calls();
                context.give_back(given_up, deadline).await;
            })
            .await;
        };
        #[expect(clippy::disallowed_methods, reason = "the series owns the task and ends it")]
        let task = tokio::spawn(returning);
        Returns { queue, task }
    }

    /// Hands a counter to the task. Returns whether the queue had room for it.
    pub(crate) fn send(&self, given_up: GivenUp) -> bool {
        self.queue.try_send(given_up).is_ok()
    }

    /// The task, which ends after all that it was given. Nothing more can be sent.
    pub(crate) fn ending(self) -> JoinHandle<()> {
        self.task
    }
}
