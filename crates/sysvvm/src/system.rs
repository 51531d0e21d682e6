//! A database with its system keyspace open.

mod registry;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::Slot;
use istorage::{
    AppStorageExt, Conditional, ErrorKind, Key, KeyspaceName, Outcome, SharedStorage,
    StorageDriver,
    settle::{SettleLimits, write_if_settled},
};

use crate::{AppEntry, ElectionRows, Error, NumberRows, Result, layout};

/// The format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// The first bytes of the row of the format. The version follows as a u32.
const FORMAT_MAGIC: &[u8; 4] = b"VVM\0";

/// The longest name of a system keyspace. The names of the applications' keyspaces begin with it,
/// and need room for a number.
const SYSTEM_NAME_MAX: usize = 32;

/// The longest time of one call. The deadline of the caller bounds all calls together.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of tries to read a row while the storage is unavailable. If one server of a database
/// hangs, one try fails, and afterwards the driver avoids that server.
const READ_TRIES: usize = 3;

/// The time within which every server of a storage shows a keyspace that one server has shown.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two tries to open a keyspace that must exist.
const OPEN_PAUSE: Duration = Duration::from_millis(200);

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
    /// [`Error::Foreign`] and [`Error::NewerFormat`] if the keyspace is not for this program.
    /// Nothing is changed then.
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

    /// Returns the store of the elections of this cluster.
    #[must_use]
    pub fn elections(&self) -> ElectionRows {
        ElectionRows::new(Arc::clone(&self.storage), self.clock.clone())
    }

    /// Fixes the number of slots of the cluster. The first call decides the number. Any number of
    /// nodes may call at once.
    ///
    /// # Errors
    /// [`Error::OtherSlots`] if another number was decided before.
    pub async fn fix_slots(&self, slots: Slot, deadline: Instant) -> Result<()> {
        let key = layout::slots();
        let ours = Bytes::copy_from_slice(&slots.get().to_be_bytes());
        let there = match self.get(&key, deadline).await? {
            Some(there) => there,
            None => {
                let value = ours.clone();
                let insert = Conditional::Insert { ccols: key.ccols, value, ttl: None };
                match self.write(key.pkey, vec![insert], deadline).await? {
                    Outcome::Applied => ours.clone(),
                    Outcome::NotApplied(mut conflicts) => {
                        conflicts.pop().and_then(|conflict| conflict.actual).unwrap_or_default()
                    }
                }
            }
        };
        if there == ours {
            return Ok(());
        }
        match there.as_ref().try_into().map(u32::from_be_bytes) {
            Ok(stored) => Err(Error::OtherSlots { stored, wanted: slots.get() }),
            Err(_) => Err(Error::Foreign {
                what: format!("the number of slots, {there:?}, does not have 4 bytes"),
            }),
        }
    }

    /// Returns the stored numbers of an application.
    #[must_use]
    pub fn numbers(&self, app: &AppEntry) -> NumberRows {
        NumberRows::of_app(Arc::clone(&self.storage), self.clock.clone(), app.number)
    }

    /// Returns the driver of the database.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn StorageDriver> {
        &self.driver
    }

    async fn check_format(&self, deadline: Instant) -> Result<()> {
        let mut ours = FORMAT_MAGIC.to_vec();
        ours.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
        let there = match self.get(&layout::format(), deadline).await? {
            Some(there) => there,
            None => {
                let key = layout::format();
                let insert =
                    Conditional::Insert { ccols: key.ccols, value: ours.into(), ttl: None };
                match self.write(key.pkey, vec![insert], deadline).await? {
                    Outcome::Applied => return Ok(()),
                    Outcome::NotApplied(mut conflicts) => {
                        conflicts.pop().and_then(|conflict| conflict.actual).unwrap_or_default()
                    }
                }
            }
        };
        let version = there.strip_prefix(FORMAT_MAGIC).and_then(|version| version.try_into().ok());
        match version.map(u32::from_be_bytes) {
            None | Some(0) => {
                Err(Error::Foreign { what: format!("its format {there:?} is unknown") })
            }
            Some(found) if found > FORMAT_VERSION => {
                Err(Error::NewerFormat { found, known: FORMAT_VERSION })
            }
            Some(_) => Ok(()),
        }
    }

    async fn get(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        let mut tries = 1..READ_TRIES;
        loop {
            let deadline = deadline.min(self.clock.now() + CALL_TIMEOUT);
            match self.storage.get_linearizable(key, deadline).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && tries.next().is_some() => {}
                read => return Ok(read?),
            }
        }
    }

    async fn write(
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
}

/// Opens a keyspace that must exist.
///
/// Another node may have made the keyspace just now, and some servers of a storage may show it
/// later than others. So the keyspace counts as lost only after it was missing for
/// [`SHOWN_WITHIN`].
async fn open_existing(
    driver: &dyn StorageDriver,
    clock: &Clock,
    keyspace: &KeyspaceName,
    deadline: Instant,
) -> Result<SharedStorage> {
    let shown_by = clock.now() + SHOWN_WITHIN;
    loop {
        if let Some(storage) = driver.open(keyspace, deadline).await? {
            return Ok(storage);
        }
        if clock.now() >= shown_by {
            return Err(istorage::Error::corrupt(format!(
                "the keyspace `{keyspace}` was created, and does not exist any more"
            ))
            .into());
        }
        let again = clock.now() + OPEN_PAUSE;
        if again >= deadline {
            return Err(istorage::Error::unavailable(format!(
                "the keyspace `{keyspace}` was created, and the storage does not show it yet"
            ))
            .into());
        }
        clock.sleep_until(again).await;
    }
}

#[cfg(test)]
mod tests;
