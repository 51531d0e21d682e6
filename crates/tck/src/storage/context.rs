//! The context of a trial: its storage, its names, and its ways to let time pass.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use base::locks::lock;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::future::{Either, select};
use istorage::{BatchLimits, Capabilities, Key, KeyspaceName, Result, StorageDriver};
use tokio::sync::OnceCell;

use crate::{
    storage::{Subject, client::TrialClient},
    trial::{EarlyEnd, Verdict, tasks},
};

/// How many milliseconds the calendar of the other node is ahead.
const OTHER_AHEAD_MS: i64 = 5_000;

/// The longest time for making, opening or dropping a keyspace. Busy servers of a cluster did not
/// agree about a keyspace within a minute.
const SETUP: Duration = Duration::from_secs(180);

pub(crate) fn within_setup(clock: &Clock) -> Instant {
    clock.now() + SETUP
}

/// The things that all trials of a run share.
pub(crate) struct SharedContext {
    pub(crate) subject: Arc<dyn Subject>,
    pub(crate) driver: Arc<dyn StorageDriver>,
    pub(crate) keyspace: KeyspaceName,
    pub(crate) db: TrialClient,
    pub(crate) other: OnceCell<TrialClient>,
    /// The partition with very many rows, made when the first trial needs it.
    pub(crate) large: OnceCell<Bytes>,
    /// Further keyspaces that trials made, each with the number of the trial's run.
    keyspaces: Mutex<Vec<(u32, KeyspaceName)>>,
    keyspaces_made: AtomicU32,
}

impl SharedContext {
    pub(crate) fn new(
        subject: Arc<dyn Subject>,
        driver: Arc<dyn StorageDriver>,
        keyspace: KeyspaceName,
        db: TrialClient,
    ) -> SharedContext {
        SharedContext {
            subject,
            driver,
            keyspace,
            db,
            other: OnceCell::new(),
            large: OnceCell::new(),
            keyspaces: Mutex::default(),
            keyspaces_made: AtomicU32::new(0),
        }
    }

    /// Drops the further keyspaces of one run, or those of all runs if `run` is `None`.
    pub(crate) async fn drop_keyspaces(&self, run: Option<u32>) -> Result<()> {
        let of_it = |keyspace: &mut (u32, KeyspaceName)| run.is_none_or(|run| keyspace.0 == run);
        let keyspaces: Vec<_> = lock(&self.keyspaces).extract_if(.., of_it).collect();
        let mut dropped = Ok(());
        for (_, keyspace) in keyspaces {
            // Try to drop all of them, and return the first error.
            let this = self.driver.drop_keyspace(&keyspace, within_setup(&self.db.clock)).await;
            dropped = dropped.and(this);
        }
        dropped
    }
}

/// The context of a trial. [`ScratchKeyspace`](crate::storage::ScratchKeyspace) makes one for each
/// run of a trial.
#[derive(Clone)]
pub struct StorageContext {
    /// The scratch keyspace through the first node.
    pub(crate) db: TrialClient,
    shared: Arc<SharedContext>,
    /// The number of this run of a trial. Every partition key of the run begins with it.
    run: u32,
    /// The next part of every partition key. A trial that begins anew counts up, and so gets
    /// partitions of its own again.
    attempt: u8,
}

impl fmt::Debug for StorageContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageContext").field("run", &self.run).finish_non_exhaustive()
    }
}

impl StorageContext {
    pub(crate) fn new(shared: Arc<SharedContext>, run: u32) -> StorageContext {
        StorageContext { db: shared.db.clone(), shared, run, attempt: 0 }
    }

    /// The same context for another attempt.
    pub(crate) fn attempt(&self, attempt: u8) -> StorageContext {
        StorageContext { attempt, ..self.clone() }
    }

    pub(crate) fn shared(&self) -> &SharedContext {
        &self.shared
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.db.storage.capabilities()
    }

    /// The limits of `write_atomic`. If the storage does not offer the call, the trial ends here.
    pub(crate) fn atomic(&self) -> Verdict<BatchLimits> {
        let limits = self.capabilities().atomic;
        limits.ok_or(EarlyEnd::Ignored("this storage does not offer write_atomic"))
    }

    /// The number of rounds of a race.
    pub(crate) fn rounds(&self) -> usize {
        self.shared.subject.scale().rounds()
    }

    /// The number of rounds of a race that costs more, or proves less, than others.
    pub(crate) fn reduced_rounds(&self) -> usize {
        self.rounds() / 5 + 10
    }

    /// A partition key that no other trial uses.
    pub(crate) fn pkey(&self, name: impl AsRef<[u8]>) -> Bytes {
        let [a, b, c, d] = self.run.to_be_bytes();
        [&[a, b, c, d, self.attempt], name.as_ref()].concat().into()
    }

    /// A row in a partition that no other trial uses.
    pub(crate) fn key(&self, pkey: impl AsRef<[u8]>, ccols: impl Into<Bytes>) -> Key {
        Key { pkey: self.pkey(pkey), ccols: ccols.into() }
    }

    /// The same keyspace through another node. The calendar of that node is 5 s ahead.
    pub(crate) async fn other(&self) -> Verdict<TrialClient> {
        let connect = || async {
            let node = self.shared.subject.node(OTHER_AHEAD_MS).await?;
            self.open(&*node, &self.shared.keyspace).await
        };
        self.shared.other.get_or_try_init(connect).await.cloned()
    }

    /// A further node with a connection of its own.
    pub(crate) async fn node(&self) -> Result<Arc<dyn StorageDriver>> {
        self.shared.subject.node(0).await
    }

    /// A driver that the trial may close.
    pub(crate) async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        self.shared.subject.spare().await
    }

    pub(crate) fn driver(&self) -> &dyn StorageDriver {
        &*self.shared.driver
    }

    pub(crate) fn within_setup(&self) -> Instant {
        within_setup(&self.db.clock)
    }

    /// A name for a keyspace. The keyspace is dropped when the trial is over.
    pub(crate) fn new_keyspace(&self) -> Result<KeyspaceName> {
        self.new_keyspace_with_len(0)
    }

    /// A name as from [`new_keyspace`](StorageContext::new_keyspace), filled up to this length.
    pub(crate) fn new_keyspace_with_len(&self, len: usize) -> Result<KeyspaceName> {
        let number = self.shared.keyspaces_made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}_{number}", self.shared.keyspace);
        let name = KeyspaceName::new(format!("{name:_<len$}"))?;
        lock(&self.shared.keyspaces).push((self.run, name.clone()));
        Ok(name)
    }

    /// Opens a keyspace that must exist.
    pub(crate) async fn open(
        &self,
        driver: &dyn StorageDriver,
        keyspace: &KeyspaceName,
    ) -> Verdict<TrialClient> {
        let storage = driver.open(keyspace, self.within_setup()).await?;
        let storage = storage
            .ok_or_else(|| EarlyEnd::failed("a keyspace that was created could not be opened"))?;
        Ok(TrialClient { storage, clock: self.db.clock.clone() })
    }

    /// Opens the scratch keyspace through a storage of its own, which the trial may close.
    pub(crate) async fn open_again(&self) -> Verdict<TrialClient> {
        self.open(self.driver(), &self.shared.keyspace).await
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, duration: Duration) {
        self.shared.subject.pass(duration).await;
    }

    /// Lets time pass until `moment`.
    pub(crate) async fn pass_until(&self, moment: Instant) {
        // A real clock may wake its sleepers a little early or late. So the clock alone decides
        // whether the moment has come.
        loop {
            let left = moment - self.db.clock.now();
            if left.is_zero() {
                return;
            }
            self.pass(left).await;
        }
    }

    /// Lets time pass while `future` runs and waits for time to pass. A clock that is moved by hand
    /// would stand still otherwise.
    pub(crate) async fn while_time_passes<T>(&self, future: impl Future<Output = T>) -> T {
        let passing = async {
            loop {
                self.pass(Duration::from_millis(1)).await;
                tasks::yield_now().await;
            }
        };
        match select(std::pin::pin!(future), std::pin::pin!(passing)).await {
            Either::Left((output, _)) => output,
            Either::Right((never, _)) => never,
        }
    }
}
