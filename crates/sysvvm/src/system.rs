//! A database with its system keyspace open.
//!
//! Invariant: a row of the registry changes only by a conditional write, so any number of nodes may
//! work on the registry at the same time.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use ielections::Slot;
use istorage::{
    AppStorageExt, Conditional, ErrorKind, Key, KeyspaceName, Outcome, Range, SharedStorage,
    StorageDriver,
    settle::{Patience, write_if_settled},
};

use crate::{
    AppEntry, AppName, AppNumber, ElectionRows, Error, NumberRows, Result,
    entry::{InitState, RegistryRow},
    layout,
};

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
                        conflicts.pop().and_then(|conflict| conflict.there).unwrap_or_default()
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

    /// Registers an application and makes its keyspace. If an earlier initialization did not
    /// finish, the call finishes it.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the application is initialized already.
    /// [`Error::OtherPartitions`] if the application is half initialized with another number of
    /// partitions. [`Error::NewerFormat`] if a newer program registered the application in a way
    /// that this one cannot read.
    pub async fn init_app(
        &self,
        name: &AppName,
        partitions: NonZeroU16,
        deadline: Instant,
    ) -> Result<OpenedApp> {
        let registered = loop {
            match self.registry_row(name, deadline).await? {
                Some(there) if there.state == InitState::Ready => {
                    return Err(Error::AlreadyExists { app: name.clone() });
                }
                Some(there) if there.entry.partitions != partitions => {
                    return Err(Error::OtherPartitions {
                        app: name.clone(),
                        registered: there.entry.partitions.get(),
                        wanted: partitions.get(),
                    });
                }
                Some(there) => break there,
                None => {
                    if let Some(registered) = self.register(name, partitions, deadline).await? {
                        break registered;
                    }
                }
            }
        };
        self.driver.create(&registered.entry.keyspace, deadline).await?;
        let storage =
            open_existing(&*self.driver, &self.clock, &registered.entry.keyspace, deadline).await?;
        self.confirm(name, &registered, deadline).await?;
        Ok(OpenedApp { entry: registered.entry, storage })
    }

    /// Opens the keyspace of an application.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`] if the application was not initialized, or not to the end.
    /// [`Error::NewerFormat`] if a newer program wrote it.
    pub async fn open_app(&self, name: &AppName, deadline: Instant) -> Result<OpenedApp> {
        let registered = self
            .registry_row(name, deadline)
            .await?
            .filter(|there| there.state == InitState::Ready);
        let Some(RegistryRow { entry, .. }) = registered else {
            return Err(Error::DoesNotExist { app: name.clone() });
        };
        if entry.format > FORMAT_VERSION {
            return Err(Error::NewerFormat { found: entry.format, known: FORMAT_VERSION });
        }
        let storage = open_existing(&*self.driver, &self.clock, &entry.keyspace, deadline).await?;
        Ok(OpenedApp { entry, storage })
    }

    /// Returns all applications that are initialized, by name.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the registry cannot be read. [`Error::NewerFormat`] if only a newer
    /// program can read the registry.
    pub async fn apps(&self, page_timeout: Duration) -> Result<Vec<(AppName, AppEntry)>> {
        let range = Range::from(vec![layout::FIRST_APP]);
        let mut rows =
            self.storage.read_linearizable(layout::last_app_number().pkey, range, page_timeout);
        let mut apps = Vec::new();
        while let Some(row) = rows.try_next().await? {
            let name = str::from_utf8(&row.ccols[1..]).ok().and_then(|name| name.parse().ok());
            let Some(name) = name else {
                return Err(Error::Foreign {
                    what: format!("the name {:?} of an application cannot be read", row.ccols),
                });
            };
            let registered = RegistryRow::decode(&row.value)?;
            if registered.state == InitState::Ready {
                apps.push((name, registered.entry));
            }
        }
        Ok(apps)
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
                        conflicts.pop().and_then(|conflict| conflict.there).unwrap_or_default()
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

    /// Takes the next number and writes the entry, in one conditional write. `None` if another node
    /// took the number or registered the application first.
    async fn register(
        &self,
        name: &AppName,
        partitions: NonZeroU16,
        deadline: Instant,
    ) -> Result<Option<RegistryRow>> {
        let counter = layout::last_app_number();
        let last = self.get(&counter, deadline).await?;
        let number = match &last {
            None => 1,
            Some(bytes) => decode_number(bytes)?.checked_add(1).ok_or_else(|| Error::Foreign {
                what: "every number of an application is taken".to_owned(),
            })?,
        };
        let keyspace = keyspace_name(&self.keyspace, number, name)?;
        if self.driver.open(&keyspace, deadline).await?.is_some() {
            // A node of this cluster raises the counter before it makes the keyspace. So the
            // keyspace is foreign if the counter is unchanged.
            if self.get(&counter, deadline).await? != last {
                return Ok(None);
            }
            return Err(Error::Foreign {
                what: format!("the keyspace `{keyspace}` exists, and is not registered"),
            });
        }
        let entry =
            AppEntry { number: AppNumber(number), partitions, format: FORMAT_VERSION, keyspace };
        let registered =
            RegistryRow { state: InitState::Creating, attempt: self.clock.random(), entry };
        let next = encode_number(number, registered.attempt);
        let count = match last {
            None => Conditional::Insert { ccols: counter.ccols, value: next, ttl: None },
            Some(old) => Conditional::Swap { ccols: counter.ccols, old, new: next, ttl: None },
        };
        let insert = Conditional::Insert {
            ccols: layout::app(name).ccols,
            value: registered.encode(),
            ttl: None,
        };
        let outcome = self.write(counter.pkey, vec![count, insert], deadline).await?;
        Ok(outcome.is_applied().then_some(registered))
    }

    /// Marks the initialization as finished. Another node may have finished it at the same time,
    /// with the same row.
    async fn confirm(
        &self,
        name: &AppName,
        registered: &RegistryRow,
        deadline: Instant,
    ) -> Result<()> {
        let (key, ready) =
            (layout::app(name), RegistryRow { state: InitState::Ready, ..registered.clone() });
        let swap = Conditional::Swap {
            ccols: key.ccols.clone(),
            old: registered.encode(),
            new: ready.encode(),
            ttl: None,
        };
        match self.write(key.pkey, vec![swap], deadline).await? {
            Outcome::Applied => Ok(()),
            Outcome::NotApplied(_) => match self.registry_row(name, deadline).await? {
                Some(there) if there == ready => Ok(()),
                there => Err(Error::Foreign {
                    what: format!("another program changed the entry of `{name}` to {there:?}"),
                }),
            },
        }
    }

    async fn registry_row(&self, name: &AppName, deadline: Instant) -> Result<Option<RegistryRow>> {
        let value = self.get(&layout::app(name), deadline).await?;
        value.map(|value| RegistryRow::decode(&value)).transpose()
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
        let patience = Patience { call_timeout, until: deadline };
        Ok(write_if_settled(&*self.storage, &self.clock, pkey, ops, patience).await?)
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

/// Encodes the number of the application registered last: `[u32 number][u64 attempt]`.
///
/// The attempt makes the bytes unique. Without it: node A writes number 5 and gets no answer, and
/// the write is lost; node B writes number 5; node A sends its write again, sees number 5, and
/// takes the row of B for its own.
fn encode_number(number: u32, attempt: u64) -> Bytes {
    [&number.to_be_bytes()[..], &attempt.to_be_bytes()].concat().into()
}

fn decode_number(bytes: &Bytes) -> Result<u32> {
    match bytes.split_first_chunk::<4>() {
        Some((number, attempt)) if attempt.len() == 8 => Ok(u32::from_be_bytes(*number)),
        _ => Err(Error::Foreign {
            what: format!("the number of the last application, {bytes:?}, cannot be read"),
        }),
    }
}

/// Returns the name of an application's keyspace: `<system>_<number>_<owner>_<name>`, cut to the
/// longest name allowed. The number alone makes the name unique.
fn keyspace_name(system: &KeyspaceName, number: u32, app: &AppName) -> Result<KeyspaceName> {
    let (system, digits) = (system.as_str(), number.to_string());
    let room = KeyspaceName::MAX_LEN - digits.len() - 1;
    let mut name =
        format!("{}_{digits}_{}_{}", &system[..system.len().min(room)], app.owner(), app.name());
    name.make_ascii_lowercase();
    name.truncate(KeyspaceName::MAX_LEN);
    Ok(KeyspaceName::new(name)?)
}

#[cfg(test)]
mod tests;
