//! A keyspace that exists for as long as the trials run.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use futures::{StreamExt, stream};
use istorage::{Error, KeyspaceName, Result, SharedStorage, StorageDriver};
use tokio::sync::Semaphore;

use crate::{
    Conclusion, Progress, Report, Subject, Trial, TrialReport,
    client::Client,
    context::{Context, Shared, within_setup},
    failure::Stop,
    tasks,
};

/// A keyspace of a [`Subject`] in which trials run. Each trial has partitions of its own, so they may run side by side.
///
/// Call [`remove`](Scratch::remove) at the end: dropping this value leaves the keyspace behind.
pub struct Scratch {
    shared: Arc<Shared>,
    /// Bounds how many trials run at once, whoever asks.
    places: Semaphore,
    runs: AtomicU32,
    /// No trial takes longer, whatever its own limit.
    limit: Duration,
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scratch").field(&self.shared.keyspace).finish()
    }
}

impl Scratch {
    /// Makes a keyspace with a name that is nobody else's.
    ///
    /// # Errors
    /// Those of the connection, and of making the keyspace.
    pub async fn create(subject: Arc<dyn Subject>) -> Result<Scratch> {
        let keyspace = KeyspaceName::new(format!("tck_{:016x}", Clock::system().random()))?;
        let driver = subject.node(0).await?;
        let clock = subject.clock();
        driver.create(&keyspace, within_setup(&clock)).await?;
        let opened = open(&*driver, &keyspace, &clock).await;
        let storage = match opened {
            Ok(storage) => storage,
            Err(error) => {
                driver.drop_keyspace(&keyspace, within_setup(&clock)).await?;
                return Err(error);
            }
        };
        let places = Semaphore::new(subject.side_by_side());
        let shared = Shared::new(subject, driver, keyspace, Client { storage, clock });
        let (runs, limit) = (AtomicU32::new(0), Duration::MAX);
        Ok(Scratch { shared: Arc::new(shared), places, runs, limit })
    }

    /// Lets no trial take longer than `limit`: one that is not over then has failed. Without it, each has a limit of its
    /// own, of some minutes.
    #[must_use]
    pub fn bounded(self, limit: Duration) -> Scratch {
        Scratch { limit, ..self }
    }

    /// The driver of the first node.
    #[must_use]
    pub fn driver(&self) -> &dyn StorageDriver {
        &*self.shared.driver
    }

    /// The scratch keyspace, for measurements beside the trials. Partition keys of less than four bytes, and those that
    /// begin with a letter, are not the trials'.
    #[must_use]
    pub fn storage(&self) -> SharedStorage {
        Arc::clone(&self.shared.db.storage)
    }

    /// Runs one trial, as soon as there is a place for it. Never panics, also if the storage does.
    ///
    /// # Cancel safety
    /// The trial ends when the future is dropped; keyspaces of its own are left to [`remove`](Scratch::remove).
    pub async fn run(&self, trial: &Trial) -> TrialReport {
        // Nobody closes the semaphore, so there is always a place in the end.
        let _place = self.places.acquire().await;
        // Whatever clock the storage is on: a trial that takes too long takes too much of somebody's time.
        let clock = Clock::system();
        let start = clock.now();
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let context = Context::new(Arc::clone(&self.shared), run);
        let task = tasks::spawn(trial.run(context));
        let limit = trial.limit().min(self.limit);
        let conclusion = match clock.timeout_at(start + limit, task).await {
            Ok(Ok(())) => Conclusion::Passed,
            Ok(Err(Stop::Failed(failure))) => Conclusion::Failed(failure.to_string()),
            Ok(Err(Stop::NotOffered(reason))) => Conclusion::Ignored(reason),
            Ok(Err(Stop::TooSlow)) => {
                Conclusion::Failed("calls take so long that expiry cannot be judged".to_owned())
            }
            Err(_) => Conclusion::Failed(format!("not over after {limit:?}")),
        };
        let conclusion = match (self.shared.drop_keyspaces(Some(run)).await, conclusion) {
            (Err(error), Conclusion::Passed) => {
                Conclusion::Failed(format!("a keyspace could not be dropped: {error:?}"))
            }
            (_, conclusion) => conclusion,
        };
        TrialReport { name: trial.name(), conclusion, took: clock.now() - start }
    }

    /// Runs some trials side by side, and tells how it goes.
    ///
    /// # Cancel safety
    /// As [`run`](Scratch::run).
    pub async fn run_all(
        &self,
        trials: impl IntoIterator<Item = &'static Trial>,
        progress: impl Fn(Progress<'_>),
    ) -> Report {
        let clock = Clock::system();
        let (start, progress) = (clock.now(), &progress);
        let runs = trials.into_iter().enumerate().map(|(place, trial)| async move {
            progress(Progress::Started(trial.name()));
            let report = self.run(trial).await;
            progress(Progress::Finished(&report));
            (place, report)
        });
        let at_once = self.shared.subject.side_by_side();
        let mut trials: Vec<_> = stream::iter(runs).buffer_unordered(at_once).collect().await;
        trials.sort_unstable_by_key(|(place, _)| *place);
        let trials = trials.into_iter().map(|(_, report)| report).collect();
        Report { trials, took: clock.now() - start }
    }

    /// Drops the keyspace, and those that trials made and could not drop.
    ///
    /// # Errors
    /// Those of dropping them; some may be left behind then.
    pub async fn remove(self) -> Result<()> {
        let of_trials = self.shared.drop_keyspaces(None).await;
        let Shared { driver, keyspace, db, .. } = &*self.shared;
        let own = driver.drop_keyspace(keyspace, within_setup(&db.clock)).await;
        of_trials.and(own)
    }
}

async fn open(
    driver: &dyn StorageDriver,
    keyspace: &KeyspaceName,
    clock: &Clock,
) -> Result<SharedStorage> {
    let opened = driver.open(keyspace, within_setup(clock)).await?;
    opened.ok_or_else(|| {
        Error::corrupt(format!("the keyspace {keyspace} does not exist after it was created"))
    })
}
