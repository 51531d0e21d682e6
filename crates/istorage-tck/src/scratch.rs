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
    client::TrialClient,
    context::{SharedContext, TrialContext, within_setup},
    failure::EarlyEnd,
    tasks,
};

/// A keyspace of a [`Subject`] in which trials run. Each trial has partitions of its own, so trials
/// may run side by side.
///
/// Call [`remove`](ScratchKeyspace::remove) at the end. Dropping this value leaves the keyspace
/// behind.
pub struct ScratchKeyspace {
    shared: Arc<SharedContext>,
    /// The bound on the number of trials that run at once, over all callers.
    places: Semaphore,
    runs: AtomicU32,
    /// An upper bound for the limit of every trial.
    limit: Duration,
}

impl fmt::Debug for ScratchKeyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScratchKeyspace").field(&self.shared.keyspace).finish()
    }
}

impl ScratchKeyspace {
    /// Makes a keyspace with a random name that no other run uses.
    ///
    /// # Errors
    /// Those of the connection, and those of making the keyspace.
    pub async fn create(subject: Arc<dyn Subject>) -> Result<ScratchKeyspace> {
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
        let places = Semaphore::new(subject.max_concurrent_trials());
        let shared = SharedContext::new(subject, driver, keyspace, TrialClient { storage, clock });
        let (runs, limit) = (AtomicU32::new(0), Duration::MAX);
        Ok(ScratchKeyspace { shared: Arc::new(shared), places, runs, limit })
    }

    /// Bounds the time of each trial by `limit`: a trial that is not over then has failed. Without
    /// this bound, only the limit of each trial counts, which is some minutes.
    #[must_use]
    pub fn bounded(self, limit: Duration) -> ScratchKeyspace {
        ScratchKeyspace { limit, ..self }
    }

    /// The driver of the first node.
    #[must_use]
    pub fn driver(&self) -> &dyn StorageDriver {
        &*self.shared.driver
    }

    /// The scratch keyspace, for measurements beside the trials. The trials do not use partition
    /// keys of less than four bytes, nor keys that begin with a letter.
    #[must_use]
    pub fn storage(&self) -> SharedStorage {
        Arc::clone(&self.shared.db.storage)
    }

    /// Runs one trial as soon as there is a place for it. This never panics, even if the storage
    /// does.
    ///
    /// # Cancel safety
    /// The trial ends when the future is dropped. Keyspaces that the trial made are left to
    /// [`remove`](ScratchKeyspace::remove).
    pub async fn run(&self, trial: &Trial) -> TrialReport {
        // The semaphore is never closed, so the wait always ends with a place.
        let _place = self.places.acquire().await;
        // The limit is real time, not the time of the storage's clock, because a slow trial costs
        // people their time.
        let clock = Clock::system();
        let start = clock.now();
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let context = TrialContext::new(Arc::clone(&self.shared), run);
        let task = tasks::spawn(trial.run(context));
        let limit = trial.limit().min(self.limit);
        let conclusion = match clock.timeout_at(start + limit, task).await {
            Ok(Ok(())) => Conclusion::Passed,
            Ok(Err(EarlyEnd::Failed(failure))) => Conclusion::Failed(failure.to_string()),
            Ok(Err(EarlyEnd::NotOffered(reason))) => Conclusion::Ignored(reason),
            Ok(Err(EarlyEnd::TooSlow)) => {
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

    /// Runs trials side by side, and reports their progress.
    ///
    /// # Cancel safety
    /// The same as for [`run`](ScratchKeyspace::run).
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
        let at_once = self.shared.subject.max_concurrent_trials();
        let mut trials: Vec<_> = stream::iter(runs).buffer_unordered(at_once).collect().await;
        trials.sort_unstable_by_key(|(place, _)| *place);
        let trials = trials.into_iter().map(|(_, report)| report).collect();
        Report { trials, took: clock.now() - start }
    }

    /// Drops the keyspace, and the keyspaces that trials made and could not drop.
    ///
    /// # Errors
    /// Those of dropping the keyspaces. After an error some may be left behind.
    pub async fn remove(self) -> Result<()> {
        let of_trials = self.shared.drop_keyspaces(None).await;
        let SharedContext { driver, keyspace, db, .. } = &*self.shared;
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
