//! The wrong stores, and the trials that find them.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::{ConditionalOutcome, ElectionRow, ObservedLease, StoreError, TtlStore};
use tck::elections::MemStore;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The store checks a condition first, and writes afterwards.
    GetThenPut,
    /// A lease ends early.
    EarlyExpiry,
    /// A lease ends late.
    LateExpiry,
    /// A renewal does not prolong the lease.
    RenewalKeepsTheEnd,
    /// A swap does not compare.
    SwapIgnoresOld,
    /// A delete does not compare.
    DeleteIgnoresOld,
    /// An insert replaces the row in its place.
    InsertReplaces,
    /// Looks show no leases.
    LooksAreEmpty,
    /// Epochs expire as leases do.
    EpochsExpire,
    /// A refused write does not return the row in its place.
    NothingTold,
}

/// Each defect, and the trials that must fail on it.
pub(crate) const TABLE: &[(Defect, &[&str])] = &[
    (Defect::GetThenPut, &["race::one_of_several_writes_of_a_lease_wins"]),
    (Defect::EarlyExpiry, &["expiry::a_lease_exists_for_its_ttl_and_expires_soon_after"]),
    (Defect::LateExpiry, &["expiry::a_lease_exists_for_its_ttl_and_expires_soon_after"]),
    (Defect::RenewalKeepsTheEnd, &["expiry::a_renewal_restarts_the_ttl"]),
    (
        Defect::SwapIgnoresOld,
        &[
            "loss::a_lease_of_another_node_ends_the_leadership",
            "stale::writes_of_an_earlier_leadership_of_the_same_node_change_nothing",
        ],
    ),
    (
        Defect::DeleteIgnoresOld,
        &["stale::writes_of_an_earlier_leadership_of_the_same_node_change_nothing"],
    ),
    (
        Defect::InsertReplaces,
        &["race::one_of_several_writes_of_a_lease_wins", "stale::an_epoch_is_raised_once"],
    ),
    (Defect::LooksAreEmpty, &["watch::an_observer_reads_the_leaders"]),
    (Defect::EpochsExpire, &["release::unfinished_work_leaves_the_lease_to_expire"]),
    (Defect::NothingTold, &["unknown::an_epoch_that_was_raised"]),
];

/// A store that is right except for one defect.
#[derive(Debug)]
pub(crate) struct WrongStore {
    store: MemStore,
    defect: Defect,
}

impl WrongStore {
    pub(crate) fn new(defect: Defect) -> WrongStore {
        WrongStore { store: MemStore::new(Clock::system()), defect }
    }

    fn ttl(&self, row: ElectionRow, ttl: Option<Duration>) -> Option<Duration> {
        match (self.defect, row) {
            (Defect::EarlyExpiry, _) => ttl.map(|ttl| ttl * 3 / 4),
            (Defect::LateExpiry, _) => ttl.map(|ttl| ttl * 3),
            (Defect::EpochsExpire, ElectionRow::Epoch(_)) => Some(Duration::from_secs(1)),
            _ => ttl,
        }
    }

    fn reported(&self, written: ConditionalOutcome) -> ConditionalOutcome {
        match written {
            ConditionalOutcome::Refused(_) if self.defect == Defect::NothingTold => {
                ConditionalOutcome::Refused(None)
            }
            written => written,
        }
    }

    async fn force(
        &self,
        row: ElectionRow,
        value: Option<Bytes>,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        if let Some(old) = self.store.get(row, deadline).await? {
            let _ = self.store.compare_and_delete(row, old, deadline).await?;
        }
        match value {
            Some(value) => self.store.insert_if_not_exists(row, value, ttl, deadline).await,
            None => Ok(ConditionalOutcome::Done),
        }
    }
}

#[async_trait]
impl TtlStore for WrongStore {
    fn expiry_delay(&self) -> Duration {
        Duration::ZERO
    }

    async fn leases(&self, deadline: Instant) -> Result<Vec<ObservedLease>, StoreError> {
        match self.defect {
            Defect::LooksAreEmpty => Ok(Vec::new()),
            _ => self.store.leases(deadline).await,
        }
    }

    async fn get(&self, row: ElectionRow, deadline: Instant) -> Result<Option<Bytes>, StoreError> {
        self.store.get(row, deadline).await
    }

    async fn insert_if_not_exists(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        let ttl = self.ttl(row, ttl);
        match self.defect {
            Defect::InsertReplaces => self.force(row, Some(value), ttl, deadline).await,
            Defect::GetThenPut => {
                if let Some(there) = self.store.get(row, deadline).await? {
                    return Ok(ConditionalOutcome::Refused(Some(there)));
                }
                tokio::task::yield_now().await;
                self.force(row, Some(value), ttl, deadline).await
            }
            _ => {
                Ok(self.reported(self.store.insert_if_not_exists(row, value, ttl, deadline).await?))
            }
        }
    }

    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        let ttl = self.ttl(row, ttl);
        match self.defect {
            Defect::SwapIgnoresOld => self.force(row, Some(new), ttl, deadline).await,
            Defect::RenewalKeepsTheEnd if old == new => {
                let there = self.store.get(row, deadline).await?;
                let is_as_expected = there.as_ref() == Some(&old);
                Ok(if is_as_expected {
                    ConditionalOutcome::Done
                } else {
                    ConditionalOutcome::Refused(there)
                })
            }
            _ => {
                Ok(self.reported(self.store.compare_and_swap(row, old, new, ttl, deadline).await?))
            }
        }
    }

    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        match self.defect {
            Defect::DeleteIgnoresOld => self.force(row, None, None, deadline).await,
            _ => Ok(self.reported(self.store.compare_and_delete(row, old, deadline).await?)),
        }
    }
}
