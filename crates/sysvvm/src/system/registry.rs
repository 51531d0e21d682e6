//! The registry of applications: a row for each application, with its number and its keyspace.
//!
//! Invariant: a row of the registry changes only by a conditional write, so any number of nodes may
//! work on the registry at the same time.

use std::{num::NonZeroU16, time::Duration};

use bytes::Bytes;
use clock::Instant;
use futures::TryStreamExt;
use istorage::{AppStorageExt, Conditional, KeyspaceName, Range};

use super::{FORMAT_VERSION, OpenedApp, System, check_format, keyspace::open_existing};
use crate::{
    AppEntry, AppName, AppNumber, Error, Result,
    entry::{InitState, RegistryRow},
    layout,
};

impl System {
    /// Registers an application and makes its keyspace. If an earlier initialization did not
    /// finish, the call finishes it.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the application is initialized already. [`Error::Importing`] if
    /// an import of the application has not finished.
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
                Some(there) if there.state == InitState::Importing => {
                    return Err(Error::Importing { app: name.clone() });
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
                    let state = InitState::Creating;
                    if let Some(registered) =
                        self.register(name, partitions, state, deadline).await?
                    {
                        break registered;
                    }
                }
            }
        };
        self.driver.create(&registered.entry.keyspace, deadline).await?;
        let storage =
            open_existing(&*self.driver, &self.clock, &registered.entry.keyspace, deadline).await?;
        if let Some(there) = self.confirm(name, &registered, deadline).await? {
            return Err(Error::Foreign {
                what: format!("another program changed the entry of `{name}` to {there:?}"),
            });
        }
        Ok(OpenedApp { entry: registered.entry, storage })
    }

    /// Opens the keyspace of an application.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`] if the application was not initialized, or not to the end.
    /// [`Error::Importing`] if an import of the application has not finished.
    /// [`Error::NewerFormat`] and [`Error::OlderFormat`] if it has another format.
    pub async fn open_app(&self, name: &AppName, deadline: Instant) -> Result<OpenedApp> {
        let app = || name.clone();
        let entry = match self.registry_row(name, deadline).await? {
            Some(RegistryRow { state: InitState::Ready, entry, .. }) => entry,
            Some(RegistryRow { state: InitState::Importing, .. }) => {
                return Err(Error::Importing { app: app() });
            }
            Some(_) | None => return Err(self.does_not_exist(name, deadline).await),
        };
        check_format(entry.format)?;
        let storage = open_existing(&*self.driver, &self.clock, &entry.keyspace, deadline).await?;
        Ok(OpenedApp { entry, storage })
    }

    /// Makes the error for an application that does not exist. It names those that do, if they can
    /// be read.
    pub(super) async fn does_not_exist(&self, name: &AppName, deadline: Instant) -> Error {
        let apps = self.apps(deadline - self.clock.now()).await.unwrap_or_default();
        let known = apps.into_iter().map(|(name, _)| name).collect();
        Error::DoesNotExist { app: name.clone(), known }
    }

    /// Returns all applications that are initialized, by name.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the registry cannot be read. [`Error::NewerFormat`] if only a newer
    /// program can read the registry.
    pub async fn apps(&self, page_timeout: Duration) -> Result<Vec<(AppName, AppEntry)>> {
        let all = self.registered_apps(page_timeout).await?;
        let ready = all.into_iter().filter(|(_, _, state)| *state == InitState::Ready);
        Ok(ready.map(|(name, entry, _)| (name, entry)).collect())
    }

    /// Returns all applications of the registry with their states, by name.
    ///
    /// # Errors
    /// Those of [`System::apps`].
    pub async fn registered_apps(
        &self,
        page_timeout: Duration,
    ) -> Result<Vec<(AppName, AppEntry, InitState)>> {
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
            apps.push((name, registered.entry, registered.state));
        }
        Ok(apps)
    }

    /// Takes the next number and writes the entry, in one conditional write. `None` if another node
    /// took the number or registered the application first.
    pub(super) async fn register(
        &self,
        name: &AppName,
        partitions: NonZeroU16,
        state: InitState,
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
        let registered = RegistryRow { state, attempt: self.clock.random(), entry };
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

    /// Marks the initialization as finished. If the row was changed, returns its present content.
    /// If another node finished the initialization, the row is the same.
    pub(super) async fn confirm(
        &self,
        name: &AppName,
        registered: &RegistryRow,
        deadline: Instant,
    ) -> Result<Option<Option<RegistryRow>>> {
        let ready = RegistryRow { state: InitState::Ready, ..registered.clone() };
        if self.replace(name, registered, Some(&ready), deadline).await? {
            return Ok(None);
        }
        let there = self.registry_row(name, deadline).await?;
        Ok((there.as_ref() != Some(&ready)).then_some(there))
    }

    /// Replaces the row of an application, or removes it. Returns `false` if the row has other
    /// bytes.
    pub(super) async fn replace(
        &self,
        name: &AppName,
        there: &RegistryRow,
        new: Option<&RegistryRow>,
        deadline: Instant,
    ) -> Result<bool> {
        let (key, old) = (layout::app(name), there.encode());
        let ccols = key.ccols;
        let op = match new.map(RegistryRow::encode) {
            Some(new) => Conditional::Swap { ccols, old, new, ttl: None },
            None => Conditional::Delete { ccols, old },
        };
        Ok(self.write(key.pkey, vec![op], deadline).await?.is_applied())
    }

    pub(super) async fn registry_row(
        &self,
        name: &AppName,
        deadline: Instant,
    ) -> Result<Option<RegistryRow>> {
        let value = self.get(&layout::app(name), deadline).await?;
        value.map(|value| RegistryRow::decode(&value)).transpose()
    }
}

/// Encodes the number of the application registered last: `[u32 number][u64 attempt]`.
///
/// The attempt makes the bytes unique. A simpler version stores only the number. Node A writes
/// number 5 and gets no answer, and the write is lost; node B writes number 5; node A sends its
/// write again, and sees number 5. So A would take the row of B for its own.
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
pub(super) fn keyspace_name(
    system: &KeyspaceName,
    number: u32,
    app: &AppName,
) -> Result<KeyspaceName> {
    let (system, digits) = (system.as_str(), number.to_string());
    let room = KeyspaceName::MAX_LEN - digits.len() - 1;
    let mut name =
        format!("{}_{digits}_{}_{}", &system[..system.len().min(room)], app.owner(), app.name());
    name.make_ascii_lowercase();
    name.truncate(KeyspaceName::MAX_LEN);
    Ok(KeyspaceName::new(name)?)
}
