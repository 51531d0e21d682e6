//! A store that records every call, and injects faults.
//!
//! It stands between a node and the store of a trial.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use tokio_util::sync::CancellationToken;

use super::shifted::Shifted;
use crate::{Row, Seen, StoreError, TtlStore, Written};

/// A kind of call, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Look,
    ReadEpoch,
    Take,
    RaiseEpoch,
    Renew,
    Release,
}

/// The fault of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
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
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) at: Instant,
    /// Whether the call was made after the watched leadership was told that it is over.
    pub(super) after_the_end: bool,
}

#[derive(Debug)]
pub(super) struct Unruly {
    store: Shifted,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    faults: HashMap<Kind, (Fault, usize)>,
    calls: Vec<Call>,
    over: Option<CancellationToken>,
}

impl Unruly {
    pub(super) fn new(store: Shifted, clock: Clock) -> Unruly {
        Unruly { store, clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next `times` calls of a kind fail.
    pub(super) fn fail(&self, kind: Kind, fault: Fault, times: usize) {
        self.state().faults.insert(kind, (fault, times));
    }

    /// Makes all calls fail until [`heal`](Unruly::heal).
    pub(super) fn fail_all(&self, fault: Fault) {
        use Kind::{Look, RaiseEpoch, ReadEpoch, Release, Renew, Take};
        for kind in [Look, ReadEpoch, Take, RaiseEpoch, Renew, Release] {
            self.fail(kind, fault, usize::MAX);
        }
    }

    pub(super) fn heal(&self) {
        self.state().faults.clear();
    }

    /// Returns the number of calls that are still to fail.
    pub(super) fn faults_left(&self) -> usize {
        self.state().faults.values().map(|(_, times)| times).sum()
    }

    /// Sets the leadership to watch. From now on each call records whether it was made after the
    /// end of this leadership.
    pub(super) fn look_at(&self, over: CancellationToken) {
        self.state().over = Some(over);
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Forgets the recorded calls.
    pub(super) fn forget(&self) {
        self.state().calls.clear();
    }

    fn next_fault(&self, kind: Kind) -> Option<Fault> {
        let at = self.clock.now();
        let mut state = self.state();
        let after_the_end = state.over.as_ref().is_some_and(CancellationToken::is_cancelled);
        state.calls.push(Call { kind, at, after_the_end });
        let (fault, times) = state.faults.get_mut(&kind).filter(|(_, times)| *times > 0)?;
        *times -= 1;
        Some(*fault)
    }

    async fn call<T>(
        &self,
        kind: Kind,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let unknown = || StoreError::Unknown("the suite lost the answer".into());
        match self.next_fault(kind) {
            None => call.await,
            Some(Fault::Unavailable) => {
                Err(StoreError::Unavailable("the suite let the call fail".into()))
            }
            Some(Fault::DoneUnknown) => call.await.and_then(|_| Err(unknown())),
            Some(Fault::NotDoneUnknown) => Err(unknown()),
            Some(Fault::Hangs) => pending().await,
            Some(Fault::AnswersLate(late)) => {
                let answer = call.await;
                self.clock.sleep(late).await;
                answer
            }
        }
    }
}

#[async_trait]
impl TtlStore for Unruly {
    fn expiry_delay(&self) -> Duration {
        self.store.expiry_delay()
    }

    fn expiry_is_watched(&self) -> bool {
        self.store.expiry_is_watched()
    }

    async fn leases(&self, deadline: Instant) -> Result<Vec<Seen>, StoreError> {
        self.call(Kind::Look, self.store.leases(deadline)).await
    }

    async fn get(&self, row: Row, deadline: Instant) -> Result<Option<Bytes>, StoreError> {
        self.call(Kind::ReadEpoch, self.store.get(row, deadline)).await
    }

    async fn insert_if_not_exist(
        &self,
        row: Row,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Written, StoreError> {
        let kind = match row {
            Row::Lease(_) => Kind::Take,
            Row::Epoch(_) => Kind::RaiseEpoch,
        };
        self.call(kind, self.store.insert_if_not_exist(row, value, ttl, deadline)).await
    }

    async fn compare_and_swap(
        &self,
        row: Row,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Written, StoreError> {
        let kind = match row {
            Row::Lease(_) if old == new => Kind::Renew,
            Row::Lease(_) => Kind::Take,
            Row::Epoch(_) => Kind::RaiseEpoch,
        };
        self.call(kind, self.store.compare_and_swap(row, old, new, ttl, deadline)).await
    }

    async fn compare_and_delete(
        &self,
        row: Row,
        old: Bytes,
        deadline: Instant,
    ) -> Result<Written, StoreError> {
        self.call(Kind::Release, self.store.compare_and_delete(row, old, deadline)).await
    }
}
