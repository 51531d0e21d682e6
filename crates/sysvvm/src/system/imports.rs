//! The import of an application into the registry.
//!
//! Invariant: an import never goes on where an earlier one ended. Each import has a number and a
//! keyspace of its own. A simpler version goes on with the rows that are there. An import is killed
//! while a write is under way; the next import reads the row as missing and writes it; the first
//! write lands, with other bytes.

use std::num::NonZeroU16;

use clock::Instant;

use super::{OpenedApp, System, keyspace::open_existing};
use crate::{
    AppName, Error, Result,
    entry::{InitState, RegistryRow},
};

/// An import that has begun.
#[derive(Debug)]
pub struct AppImport {
    /// The application. Only the import writes it.
    pub app: OpenedApp,
    name: AppName,
    row: RegistryRow,
}

/// What the registry says of an import that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// No node opens the application.
    Unfinished,
    /// The nodes have the application.
    Finished,
    /// Another command has discarded the import.
    Discarded,
}

impl System {
    /// Registers an application that is imported, and makes its keyspace. No node opens the
    /// application before [`System::finish_import`].
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the application exists, and [`Error::Importing`] if another
    /// import of it has not finished. Nothing is changed then.
    pub async fn begin_import(
        &self,
        name: &AppName,
        partitions: NonZeroU16,
        deadline: Instant,
    ) -> Result<AppImport> {
        let app = || name.clone();
        let row = loop {
            match self.registry_row(name, deadline).await? {
                Some(there) if there.state == InitState::Importing => {
                    return Err(Error::Importing { app: app() });
                }
                Some(_) => return Err(Error::AlreadyExists { app: app() }),
                None => {}
            }
            let state = InitState::Importing;
            if let Some(row) = self.register(name, partitions, state, deadline).await? {
                break row;
            }
        };
        let entry = row.entry.clone();
        self.driver.create(&entry.keyspace, deadline).await?;
        let storage = open_existing(&*self.driver, &self.clock, &entry.keyspace, deadline).await?;
        Ok(AppImport { app: OpenedApp { entry, storage }, name: app(), row })
    }

    /// Gives an application to the nodes. The import has written all its rows.
    ///
    /// # Errors
    /// [`Error::ImportDiscarded`] if another command has discarded the import.
    pub async fn finish_import(&self, import: &AppImport, deadline: Instant) -> Result<()> {
        match self.confirm(&import.name, &import.row, deadline).await? {
            None => Ok(()),
            Some(_) => Err(Error::ImportDiscarded { app: import.name.clone() }),
        }
    }

    /// Returns what has become of an import.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn import_state(&self, import: &AppImport, deadline: Instant) -> Result<ImportState> {
        let there = self.registry_row(&import.name, deadline).await?;
        let ready = RegistryRow { state: InitState::Ready, ..import.row.clone() };
        Ok(match there {
            Some(there) if there == import.row => ImportState::Unfinished,
            Some(there) if there == ready => ImportState::Finished,
            _ => ImportState::Discarded,
        })
    }

    /// Drops the keyspace of an import that has not finished, and removes the application from the
    /// registry. The import may still be under way: it cannot finish any more. Its number is never
    /// used again.
    ///
    /// Invariant: a keyspace is dropped only after its import can no longer finish. A simpler
    /// version drops the keyspace first. The import writes its last row; the keyspace is dropped;
    /// the import finishes. So an application without its rows would exist.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`] if there is no such import, and [`Error::AlreadyExists`] if the
    /// application is no import, or a finished one.
    pub async fn discard_import(&self, name: &AppName, deadline: Instant) -> Result<()> {
        let mut has_begun = false;
        loop {
            let there = match self.registry_row(name, deadline).await? {
                Some(there) if there.state == InitState::Importing => there,
                Some(_) => return Err(Error::AlreadyExists { app: name.clone() }),
                // Another command has discarded the import at the same time.
                None if has_begun => return Ok(()),
                None => return Err(self.does_not_exist(name, deadline).await),
            };
            let ours = RegistryRow { attempt: self.clock.random(), ..there.clone() };
            has_begun = true;
            if !self.replace(name, &there, Some(&ours), deadline).await? {
                continue;
            }
            self.driver.drop_keyspace(&ours.entry.keyspace, deadline).await?;
            if self.replace(name, &ours, None, deadline).await? {
                return Ok(());
            }
        }
    }
}
