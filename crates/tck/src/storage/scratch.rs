//! A keyspace that exists for as long as the trials run.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clock::Clock;
use istorage::{Error, KeyspaceName, Result, SharedStorage, StorageDriver};
use tokio::sync::Semaphore;

use crate::{
    storage::{
        StorageContext, Subject,
        client::TrialClient,
        context::{SharedContext, within_setup},
    },
    trial::{Conclusion, Trial, TrialRunner},
};

/// The longest time of a trial. Most trials are done within a second. It leaves time for a call
/// that takes as long as it may.
const LIMIT: Duration = Duration::from_secs(360);
/// The longest time of a trial that writes very many rows.
const LIMIT_OF_LONG_TRIALS: Duration = Duration::from_secs(900);

/// A keyspace of a [`Subject`] for trials. Each trial has partitions of its own, so trials may run
/// side by side.
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
        let places = Semaphore::new(subject.max_concurrent_trials().max(1));
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

#[async_trait]
impl TrialRunner for ScratchKeyspace {
    type Context = StorageContext;

    fn max_concurrent_trials(&self) -> usize {
        self.shared.subject.max_concurrent_trials()
    }

    /// Runs one trial as soon as there is a place for it. If the future is dropped, keyspaces that
    /// the trial made are left to [`remove`](ScratchKeyspace::remove).
    async fn run(&self, trial: &Trial<StorageContext>) -> Conclusion {
        // The semaphore is never closed, so the wait always ends with a place.
        let _place = self.places.acquire().await;
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let context = StorageContext::new(Arc::clone(&self.shared), run);
        let limit = if trial.is_long() { LIMIT_OF_LONG_TRIALS } else { LIMIT };
        let conclusion = trial.run(context, limit.min(self.limit)).await;
        match (self.shared.drop_keyspaces(Some(run)).await, conclusion) {
            (Err(error), Conclusion::Passed) => {
                Conclusion::Failed(format!("a keyspace could not be dropped: {error:?}"))
            }
            (_, conclusion) => conclusion,
        }
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
