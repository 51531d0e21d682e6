//! A store that records every call, injects faults, and has seats of its own among the seats of
//! other trials.
//!
//! It stands between a node and the store of the suite.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use base::locks::lock;
use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::{ConditionalOutcome, ElectionRow, ObservedLease, Seat, StoreError, TtlStore};
use tokio_util::sync::CancellationToken;

/// The number of seats of each trial.
pub(crate) const SEATS_PER_TRIAL: u32 = 16;

/// A kind of call, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StoreCallKind {
    Look,
    ReadEpoch,
    Take,
    RaiseEpoch,
    Renew,
    Release,
}

/// The fault of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreFault {
    /// The call is not done, and the caller gets an error that says so.
    Unavailable,
    /// The call is done, and the caller gets an unknown outcome.
    DoneUnknown,
    /// The call is not done, and the caller gets an unknown outcome.
    NotDoneUnknown,
    /// The call is not done, and is never answered.
    Hangs,
    /// The call is done, and the answer is late by this time.
    AnswersLate(Duration),
}

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedCall {
    pub(crate) kind: StoreCallKind,
    pub(crate) at: Instant,
    /// Whether the call was made after the watched leadership was told that it is over.
    pub(crate) after_the_end: bool,
}

/// A view of a store. Seat 1 of the view is seat `first_seat + 1` of the store.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    store: Arc<dyn TtlStore>,
    first_seat: u32,
    clock: Clock,
    state: Mutex<FaultState>,
}

#[derive(Debug, Default)]
struct FaultState {
    faults: HashMap<StoreCallKind, (StoreFault, usize)>,
    calls: Vec<RecordedCall>,
    over: Option<CancellationToken>,
}

impl FaultyStore {
    pub(crate) fn new(store: Arc<dyn TtlStore>, first_seat: u32, clock: Clock) -> FaultyStore {
        FaultyStore { store, first_seat, clock, state: Mutex::default() }
    }

    /// Returns the row of the store that is this row of the view.
    fn row_of_store(&self, row: ElectionRow) -> ElectionRow {
        let shift = |seat: Seat| Seat::new(seat.get() + self.first_seat).unwrap_or(seat);
        match row {
            ElectionRow::Lease(seat) => ElectionRow::Lease(shift(seat)),
            ElectionRow::Epoch(seat) => ElectionRow::Epoch(shift(seat)),
        }
    }

    /// Returns a lease of the store as the view shows it; `None` for a lease of another trial.
    fn lease_of_view(&self, seen: ObservedLease) -> Option<ObservedLease> {
        let number = seen.seat.get().checked_sub(self.first_seat)?;
        let seat = Seat::new(number).filter(|seat| seat.get() <= SEATS_PER_TRIAL)?;
        Some(ObservedLease { seat, ..seen })
    }

    /// Makes the next `times` calls of a kind fail.
    pub(crate) fn fail(&self, kind: StoreCallKind, fault: StoreFault, times: usize) {
        lock(&self.state).faults.insert(kind, (fault, times));
    }

    /// Makes all calls fail until [`heal`](FaultyStore::heal).
    pub(crate) fn fail_all(&self, fault: StoreFault) {
        use StoreCallKind::{Look, RaiseEpoch, ReadEpoch, Release, Renew, Take};
        for kind in [Look, ReadEpoch, Take, RaiseEpoch, Renew, Release] {
            self.fail(kind, fault, usize::MAX);
        }
    }

    pub(crate) fn heal(&self) {
        lock(&self.state).faults.clear();
    }

    /// Returns the number of calls that are still to fail.
    pub(crate) fn faults_left(&self) -> usize {
        lock(&self.state).faults.values().map(|(_, times)| times).sum()
    }

    /// Sets the leadership to watch. From now on each call records whether it was made after the
    /// end of this leadership.
    pub(crate) fn look_at(&self, over: CancellationToken) {
        lock(&self.state).over = Some(over);
    }

    pub(crate) fn calls(&self) -> Vec<RecordedCall> {
        lock(&self.state).calls.clone()
    }

    /// Forgets the recorded calls.
    pub(crate) fn forget(&self) {
        lock(&self.state).calls.clear();
    }

    fn next_fault(&self, kind: StoreCallKind) -> Option<StoreFault> {
        let at = self.clock.now();
        let mut state = lock(&self.state);
        let after_the_end = state.over.as_ref().is_some_and(CancellationToken::is_cancelled);
        state.calls.push(RecordedCall { kind, at, after_the_end });
        let (fault, times) = state.faults.get_mut(&kind).filter(|(_, times)| *times > 0)?;
        *times -= 1;
        Some(*fault)
    }

    async fn call<T>(
        &self,
        kind: StoreCallKind,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let unknown = || StoreError::Unknown("the suite lost the answer".into());
        match self.next_fault(kind) {
            None => call.await,
            Some(StoreFault::Unavailable) => {
                Err(StoreError::Unavailable("the suite let the call fail".into()))
            }
            Some(StoreFault::DoneUnknown) => call.await.and_then(|_| Err(unknown())),
            Some(StoreFault::NotDoneUnknown) => Err(unknown()),
            Some(StoreFault::Hangs) => pending().await,
            Some(StoreFault::AnswersLate(late)) => {
                let answer = call.await;
                self.clock.sleep(late).await;
                answer
            }
        }
    }
}

#[async_trait]
impl TtlStore for FaultyStore {
    fn expiry_delay(&self) -> Duration {
        self.store.expiry_delay()
    }

    fn expiry_is_watched(&self) -> bool {
        self.store.expiry_is_watched()
    }

    async fn leases(&self, deadline: Instant) -> Result<Vec<ObservedLease>, StoreError> {
        let leases = self.call(StoreCallKind::Look, self.store.leases(deadline)).await?;
        Ok(leases.into_iter().filter_map(|seen| self.lease_of_view(seen)).collect())
    }

    async fn get(&self, row: ElectionRow, deadline: Instant) -> Result<Option<Bytes>, StoreError> {
        let row = self.row_of_store(row);
        self.call(StoreCallKind::ReadEpoch, self.store.get(row, deadline)).await
    }

    async fn insert_if_not_exists(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        let kind = match row {
            ElectionRow::Lease(_) => StoreCallKind::Take,
            ElectionRow::Epoch(_) => StoreCallKind::RaiseEpoch,
        };
        let row = self.row_of_store(row);
        self.call(kind, self.store.insert_if_not_exists(row, value, ttl, deadline)).await
    }

    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        let kind = match row {
            ElectionRow::Lease(_) if old == new => StoreCallKind::Renew,
            ElectionRow::Lease(_) => StoreCallKind::Take,
            ElectionRow::Epoch(_) => StoreCallKind::RaiseEpoch,
        };
        let row = self.row_of_store(row);
        self.call(kind, self.store.compare_and_swap(row, old, new, ttl, deadline)).await
    }

    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        let row = self.row_of_store(row);
        self.call(StoreCallKind::Release, self.store.compare_and_delete(row, old, deadline)).await
    }
}
