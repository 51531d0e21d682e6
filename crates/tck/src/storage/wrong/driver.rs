//! The drivers with a defect, which open storages with the same defect.

use std::sync::{Arc, atomic::AtomicBool};

use async_trait::async_trait;
use clock::{Clock, Instant};
use istorage::{CallKind, Error, KeyspaceName, Result, SharedStorage, StorageDriver};

use super::{Defect, storage::WrongStorage};
use crate::storage::{Fault, Faulty, Subject, WrappedSubject};

impl Defect {
    /// Puts the defect into a correct subject.
    pub fn put_into<S: Subject>(self, right: S) -> WrappedSubject<S> {
        let clock = right.clock();
        WrappedSubject::with_drivers(right, move |right, wall_ahead_ms| {
            let (clock, closed) = (clock.clone(), Arc::default());
            Arc::new(WrongDriver { right, clock, defect: self, wall_ahead_ms, closed })
        })
    }
}

#[derive(Debug)]
struct WrongDriver {
    right: Arc<dyn StorageDriver>,
    clock: Clock,
    defect: Defect,
    wall_ahead_ms: i64,
    /// Whether a storage of this driver was closed.
    closed: Arc<AtomicBool>,
}

impl WrongDriver {
    fn name_of(&self, keyspace: &KeyspaceName) -> Result<KeyspaceName> {
        match self.defect {
            Defect::KeyspacesShared => KeyspaceName::new("the_only_one"),
            Defect::LongNamesRefused if keyspace.as_str().len() > 40 => {
                Err(Error::invalid("the name is too long"))
            }
            _ => Ok(keyspace.clone()),
        }
    }
}

#[async_trait]
impl StorageDriver for WrongDriver {
    fn name(&self) -> &'static str {
        "wrong"
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        let keyspace = self.name_of(keyspace)?;
        let once = self.defect == Defect::CreateOnce;
        if once && self.right.open(&keyspace, deadline).await?.is_some() {
            return Err(Error::invalid("it exists already"));
        }
        self.right.create(&keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let keyspace = self.name_of(keyspace)?;
        if self.defect == Defect::OpenCreates {
            self.right.create(&keyspace, deadline).await?;
        }
        let right = self.right.open(&keyspace, deadline).await?;
        let right = right.map(|right| match self.defect {
            Defect::BlindRetry => Arc::new(losing_answers(right, self.clock.clone())),
            _ => right,
        });
        Ok(right.map(|right| {
            let (clock, closed) = (self.clock.clone(), Arc::clone(&self.closed));
            let wrong = WrongStorage::new(right, clock, self.defect, self.wall_ahead_ms, closed);
            Arc::new(wrong) as SharedStorage
        }))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        match self.defect {
            Defect::DropIgnored => Ok(()),
            _ => self.right.drop_keyspace(&self.name_of(keyspace)?, deadline).await,
        }
    }

    async fn close(&self) {
        if self.defect != Defect::DriverCloseIgnored {
            self.right.close().await;
        }
    }
}

/// Loses the answers of conditional writes: every fifth write is done, and its answer is lost.
fn losing_answers(right: SharedStorage, clock: Clock) -> Faulty {
    let mut calls = 0_u32;
    Faulty::scripted(right, clock, move |kind| {
        calls += u32::from(kind == CallKind::WriteIf);
        let lost = kind == CallKind::WriteIf && calls.is_multiple_of(5);
        if lost { Fault::AppliedButError } else { Fault::None }
    })
}
