//! A database with its system keyspace open.

mod imports;
mod keyspace;
mod registry;

use std::{cmp::Ordering, num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{
    AppStorageExt, Conditional, ErrorKind, Key, KeyspaceName, Outcome, SharedStorage,
    StorageDriver,
    settle::{SettleLimits, write_if_settled},
};

pub use self::imports::{AppImport, ImportState};
use self::keyspace::open_existing;
use crate::{
    AppEntry, ElectionRows, Error, MemberRows, NumberRows, OwnerRows, RepairRows, Result, layout,
};

/// The format that this program writes, and the only one that it reads.
///
/// In format 1 the epochs of a partition's log were those of a lease. Since format 2 they are those
/// of the ownership row, which begin at 1. So an older log has epochs that are too high.
pub const FORMAT_VERSION: u32 = 2;

/// The first bytes of the row of the format. The version follows as a u32.
const FORMAT_MAGIC: &[u8; 4] = b"VVM\0";

/// The longest time of one call. The deadline of the caller bounds all calls together.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of tries to read a row while the storage is unavailable. If one server of a database
/// hangs, one try fails, and afterwards the driver avoids that server.
const READ_TRIES: usize = 3;

/// The longest name of a system keyspace. The names of the applications' keyspaces begin with it,
/// and need room for a number.
const SYSTEM_NAME_MAX: usize = 32;

/// A database with its system keyspace open.
#[derive(Debug)]
pub struct System {
    driver: Arc<dyn StorageDriver>,
    keyspace: KeyspaceName,
    storage: SharedStorage,
    clock: Clock,
}

/// An application with its keyspace open.
#[derive(Clone, Debug)]
pub struct OpenedApp {
    /// The entry of the application in the registry.
    pub entry: AppEntry,
    /// The keyspace of the application.
    pub storage: SharedStorage,
}

impl System {
    /// Opens the system keyspace, and makes it if the database is new. Any number of nodes may do
    /// so at once.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NewerFormat`] and [`Error::OlderFormat`] if the keyspace is not
    /// for this program. Nothing is changed then.
    pub async fn open(
        driver: Arc<dyn StorageDriver>,
        keyspace: KeyspaceName,
        clock: Clock,
        deadline: Instant,
    ) -> Result<System> {
        if keyspace.as_str().len() > SYSTEM_NAME_MAX {
            let message = format!(
                "the name of the system keyspace, `{keyspace}`, is longer than {SYSTEM_NAME_MAX}"
            );
            return Err(istorage::Error::invalid(message).into());
        }
        let storage = match driver.open(&keyspace, deadline).await? {
            Some(storage) => storage,
            None => {
                driver.create(&keyspace, deadline).await?;
                open_existing(&*driver, &clock, &keyspace, deadline).await?
            }
        };
        let system = System { driver, keyspace, storage, clock };
        system.check_format(deadline).await?;
        Ok(system)
    }

    /// Returns the system keyspace.
    #[must_use]
    pub fn storage(&self) -> &SharedStorage {
        &self.storage
    }

    /// Returns the name of the system keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &KeyspaceName {
        &self.keyspace
    }

    /// Returns the store of the elections of this cluster.
    #[must_use]
    pub fn elections(&self) -> ElectionRows {
        ElectionRows::new(Arc::clone(&self.storage), self.clock.clone())
    }

    /// Returns the ownership rows of all partitions.
    #[must_use]
    pub fn owners(&self) -> OwnerRows {
        OwnerRows::new(Arc::clone(&self.storage), self.clock.clone())
    }

    /// Returns the members of the cluster and the orders of operators.
    #[must_use]
    pub fn members(&self) -> MemberRows {
        MemberRows::new(Arc::clone(&self.storage), self.clock.clone())
    }

    /// Returns the stored numbers of an application.
    #[must_use]
    pub fn numbers(&self, app: &AppEntry) -> NumberRows {
        NumberRows::of_app(Arc::clone(&self.storage), self.clock.clone(), app.number)
    }

    /// Returns the repairs of an application.
    #[must_use]
    pub fn repairs(&self, app: &AppEntry) -> RepairRows {
        RepairRows::new(Arc::clone(&self.storage), app.number)
    }

    /// Returns the first bytes of the partition keys of an application's document numbers. All rows
    /// of the [system keyspace](System::storage) whose partition key begins with these bytes belong
    /// to the document numbers of this application.
    #[must_use]
    pub fn document_numbers(&self, app: &AppEntry) -> Bytes {
        layout::document_numbers(app.number)
    }

    /// Returns the driver of the database.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn StorageDriver> {
        &self.driver
    }

    /// Fixes the number of seats of the cluster. The first call decides the number. Any number of
    /// nodes may call at once.
    ///
    /// # Errors
    /// [`Error::OtherSeats`] if another number was decided before.
    pub async fn fix_seats(&self, seats: NonZeroU32, deadline: Instant) -> Result<()> {
        let ours = Bytes::copy_from_slice(&seats.get().to_be_bytes());
        let there = self.get_or_insert(layout::seats(), ours.clone(), deadline).await?;
        if there == ours {
            return Ok(());
        }
        match there.as_ref().try_into().map(u32::from_be_bytes) {
            Ok(stored) => Err(Error::OtherSeats { stored, wanted: seats.get() }),
            Err(_) => Err(Error::Foreign {
                what: format!("the number of seats, {there:?}, does not have 4 bytes"),
            }),
        }
    }

    /// Checks the format of the system keyspace. The first node writes the format.
    async fn check_format(&self, deadline: Instant) -> Result<()> {
        let mut ours = FORMAT_MAGIC.to_vec();
        ours.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
        let there = self.get_or_insert(layout::format(), ours.into(), deadline).await?;
        let version = there.strip_prefix(FORMAT_MAGIC).and_then(|version| version.try_into().ok());
        match version.map(u32::from_be_bytes) {
            None | Some(0) => {
                Err(Error::Foreign { what: format!("its format {there:?} is unknown") })
            }
            Some(found) => check_format(found),
        }
    }

    // The calls on single rows.

    pub(super) async fn get(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        let mut tries = 1..READ_TRIES;
        loop {
            let deadline = deadline.min(self.clock.now() + CALL_TIMEOUT);
            match self.storage.get_linearizable(key, deadline).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && tries.next().is_some() => {}
                read => return Ok(read?),
            }
        }
    }

    pub(super) async fn write(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        // A call may take half of the time left, so that a second call can settle an attempt
        // without an answer.
        let call_timeout = CALL_TIMEOUT.min((deadline - self.clock.now()) / 2);
        let limits = SettleLimits { call_timeout, until: deadline };
        Ok(write_if_settled(&*self.storage, &self.clock, pkey, ops, limits).await?)
    }

    /// Returns the bytes of a row. If there is no row, the call writes `ours`. If several nodes
    /// call at once, exactly one of them writes the row.
    pub(super) async fn get_or_insert(
        &self,
        key: Key,
        ours: Bytes,
        deadline: Instant,
    ) -> Result<Bytes> {
        if let Some(there) = self.get(&key, deadline).await? {
            return Ok(there);
        }
        let insert = Conditional::Insert { ccols: key.ccols, value: ours.clone(), ttl: None };
        match self.write(key.pkey, vec![insert], deadline).await? {
            Outcome::Applied => Ok(ours),
            Outcome::NotApplied(mut conflicts) => {
                Ok(conflicts.pop().and_then(|conflict| conflict.actual).unwrap_or_default())
            }
        }
    }
}

/// Checks the format of the system keyspace, or of an application.
fn check_format(found: u32) -> Result<()> {
    match found.cmp(&FORMAT_VERSION) {
        Ordering::Less => Err(Error::OlderFormat { found, needed: FORMAT_VERSION }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::NewerFormat { found, known: FORMAT_VERSION }),
    }
}

#[cfg(test)]
mod tests;
