//! Measures two sides in turn: if the speed of the machine drifts, the drift is the same for both.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use vvm_tests::bench::{BenchError, Sample, median};

use crate::work::{Op, PREFILLED, Side};

/// The result for one operation with a number of tasks: the medians of the rounds.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) op: Op,
    pub(crate) tasks: usize,
    pub(crate) driver: Sample,
    pub(crate) floor: Option<Sample>,
    /// The median of the ratios of the rounds, driver to floor.
    pub(crate) ratio: Option<f64>,
}

#[derive(Clone)]
pub(crate) struct Meter {
    pub(crate) clock: Clock,
    pub(crate) rounds: usize,
    pub(crate) span: Duration,
    /// The number of the next new row. Rows are numbered over all rounds.
    pub(crate) next: Arc<AtomicU64>,
}

impl Meter {
    pub(crate) async fn compare(
        &self,
        op: Op,
        tasks: usize,
        driver: &Arc<dyn Side>,
        floor: Option<&Arc<dyn Side>>,
    ) -> Result<Row, BenchError> {
        let (mut drivers, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            // The first round warms up, because a server compiles while it runs. The two sides take
            // turns at going first.
            let warm_up = round == 0;
            let span = if warm_up { 2 * self.span } else { self.span };
            let (mut one, mut other) = (None, None);
            for turn in [round, round + 1] {
                if turn % 2 == 0 {
                    one = Some(self.sample(op, tasks, span, driver).await?);
                } else if let Some(floor) = floor {
                    other = Some(self.sample(op, tasks, span, floor).await?);
                }
            }
            if warm_up {
                continue;
            }
            drivers.extend(one);
            floors.extend(other);
            if let (Some(one), Some(other)) = (one, other) {
                ratios.push(one.per_second / other.per_second);
            }
        }
        Ok(Row {
            op,
            tasks,
            driver: Sample::medians(&drivers).ok_or("no round was measured")?,
            floor: Sample::medians(&floors),
            ratio: median(ratios),
        })
    }

    async fn sample(
        &self,
        op: Op,
        tasks: usize,
        span: Duration,
        side: &Arc<dyn Side>,
    ) -> Result<Sample, BenchError> {
        let (side, next) = (Arc::clone(side), Arc::clone(&self.next));
        let call = move |_| {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let n = if op == Op::Get { n % PREFILLED } else { PREFILLED + n };
            let side = Arc::clone(&side);
            async move { side.run(op, n).await }
        };
        Sample::measure(&self.clock, tasks, span, call).await
    }
}
