//! Trials that run side by side, and their report.

#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tck::trial::{Conclusion, Progress, Trial, TrialRunner, run_all, tasks, trials};

/// Two trials. The first one waits for the second one.
#[derive(Default)]
struct Pair {
    has_ended: Arc<AtomicBool>,
}

const TRIALS: &[Trial<Arc<AtomicBool>>] = trials!(pair: ends_last, ends_first);

async fn ends_last(has_ended: &Arc<AtomicBool>) {
    while !has_ended.load(Ordering::Relaxed) {
        tasks::yield_now().await;
    }
}

async fn ends_first(has_ended: &Arc<AtomicBool>) {
    tasks::yield_now().await;
    has_ended.store(true, Ordering::Relaxed);
}

#[async_trait]
impl TrialRunner for Pair {
    type Context = Arc<AtomicBool>;

    fn max_concurrent_trials(&self) -> usize {
        2
    }

    async fn run(&self, trial: &Trial<Arc<AtomicBool>>) -> Conclusion {
        trial.run(Arc::clone(&self.has_ended), Duration::from_secs(60)).await
    }
}

#[tokio::test]
async fn trials_run_side_by_side_and_are_reported_in_the_order_of_the_list() {
    let (pair, news) = (Pair::default(), Mutex::new(Vec::new()));
    let progress = |progress: Progress<'_>| {
        news.lock().unwrap().push(match progress {
            Progress::Started(name) => format!("{name} started"),
            Progress::Finished(trial) => format!("{} finished", trial.name),
        });
    };
    let report = run_all(&pair, TRIALS, progress).await;
    let names: Vec<_> = report.trials.iter().map(|trial| trial.name).collect();
    assert_eq!(names, ["pair::ends_last", "pair::ends_first"]);
    assert_eq!((report.passed(), report.failed(), report.ignored()), (2, 0, 0));
    let expected = [
        "pair::ends_last started",
        "pair::ends_first started",
        "pair::ends_first finished",
        "pair::ends_last finished",
    ];
    assert_eq!(news.into_inner().unwrap(), expected);
}
