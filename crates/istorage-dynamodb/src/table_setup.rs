//! Creates, finds and removes the table of a keyspace. Any number of nodes may do so at once.
//!
//! Every operation repeats two steps: look at the present state, then act on it, until the wanted
//! state is reached. So neither actions of other nodes nor lost answers to earlier steps matter.
//!
//! Descriptions are eventually consistent. After one server has said that a new table is active,
//! another server may still say that there is no such table.

mod schema;
mod steps;

use std::time::Duration;

use aws_sdk_dynamodb::types::{TableDescription, TableStatus, TimeToLiveStatus};
use clock::Instant;
use istorage::Error;

use crate::{
    Billing,
    connection::{Backoff, Connection},
    errors::RequestFailure,
    layout,
    table::{KeyspaceTable, SHOWN_WITHIN},
};

type Result<T, E = Error> = std::result::Result<T, E>;

/// The partition key of a row that is never written.
const PROBED: &str = "probe";

/// The state of a table of this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableState {
    Creating,
    Usable,
    Deleting,
}

/// A table of the service, before a keyspace of rows is opened in it.
pub(crate) struct TableSetup<'t> {
    connection: &'t Connection,
    name: &'t str,
}

impl<'t> TableSetup<'t> {
    pub(crate) fn of(table: &'t KeyspaceTable) -> TableSetup<'t> {
        TableSetup { connection: &table.connection, name: &table.name }
    }

    /// Creates the table if it does not exist, and waits until the table can be used.
    pub(crate) async fn create(&self, billing: &Billing, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let failure = match self.describe(deadline).await? {
                None => retryable_failure(self.send_create(billing).await)?,
                Some(table) => match self.state(&table)? {
                    TableState::Usable => break,
                    TableState::Creating | TableState::Deleting => None,
                },
            };
            self.wait(&mut backoff, failure).await?;
        }
        self.enable_ttl(deadline).await
    }

    /// Whether the table can be used. Waits for a table that is being created. If this driver has
    /// created the table, "no such table" is believed only after [`SHOWN_WITHIN`].
    pub(crate) async fn exists(&self, was_created: bool, deadline: Instant) -> Result<bool> {
        let clock = self.connection.clock();
        let shown_by = clock.now() + if was_created { SHOWN_WITHIN } else { Duration::ZERO };
        let mut backoff = self.connection.backoff(deadline);
        loop {
            match self.describe(deadline).await? {
                None if clock.now() >= shown_by => return Ok(false),
                None => self.wait(&mut backoff, None).await?,
                Some(table) => match self.state(&table)? {
                    TableState::Usable => break,
                    TableState::Deleting => return Ok(false),
                    TableState::Creating => self.wait(&mut backoff, None).await?,
                },
            }
        }
        self.wait_for_readable_rows(deadline).await?;
        Ok(true)
    }

    /// Waits until a read of a row is answered. The servers of rows may know the table later than
    /// the servers that describe it.
    async fn wait_for_readable_rows(&self, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let request = self.connection.ask(deadline, |client| {
                client
                    .get_item()
                    .table_name(self.name)
                    .set_key(Some(layout::key(&PROBED.into(), b"")))
                    .consistent_read(true)
                    .send()
            });
            match request.await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.is_no_table() => {
                    self.wait(&mut backoff, Some(failure)).await?;
                }
                Err(failure) => return Err(failure.into_read_error()),
            }
        }
    }

    /// Removes the table, and waits until the table is gone.
    pub(crate) async fn remove(&self, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        let mut removed = None;
        loop {
            let Some(table) = self.describe(deadline).await? else { return Ok(()) };
            if removed.is_some() && removed.as_deref() != table.table_id() {
                // The removed table is gone, and another program or node has created a new one.
                return Ok(());
            }
            let mut failure = None;
            if self.state(&table)? == TableState::Usable && removed.is_none() {
                failure = retryable_failure(self.send_delete().await)?;
                if failure.is_none() {
                    removed = table.table_id().map(str::to_owned);
                }
            }
            self.wait(&mut backoff, failure).await?;
        }
    }

    /// Turns on the removal of items by [`layout::PURGED`], if it is not on.
    async fn enable_ttl(&self, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let answer = self.connection.ask(deadline, |client| {
                client.describe_time_to_live().table_name(self.name).send()
            });
            let answer = match answer.await {
                Ok(answer) => answer,
                Err(failure) if failure.is_no_table() => {
                    self.wait(&mut backoff, Some(failure)).await?;
                    continue;
                }
                Err(failure) => return Err(failure.into_read_error()),
            };
            let there = answer.time_to_live_description;
            let attribute = there.as_ref().and_then(|there| there.attribute_name());
            let failure = match there.as_ref().and_then(|there| there.time_to_live_status()) {
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => {
                    let is_ours = attribute == Some(layout::PURGED);
                    return if is_ours { Ok(()) } else { Err(self.foreign()) };
                }
                Some(TimeToLiveStatus::Disabling) => None,
                _ => match self.send_enable_ttl().await {
                    Ok(()) => return Ok(()),
                    // The service also gives this answer if another node has sent the same request
                    // in the meantime.
                    Err(failure) if failure.is_invalid() || failure.is_no_table() => Some(failure),
                    Err(failure) => retryable_failure(Err(failure))?,
                },
            };
            self.wait(&mut backoff, failure).await?;
        }
    }

    fn state(&self, table: &TableDescription) -> Result<TableState> {
        let status = table.table_status();
        if status == Some(&TableStatus::Deleting) {
            return Ok(TableState::Deleting);
        }
        if !schema::is_ours(table) {
            return Err(self.foreign());
        }
        match status {
            Some(TableStatus::Creating) => Ok(TableState::Creating),
            Some(TableStatus::Active | TableStatus::Updating) => Ok(TableState::Usable),
            status => Err(Error::unavailable(format!(
                "the DynamoDB table `{}` cannot be used: it is {}",
                self.name,
                status.map_or("in an unknown state", TableStatus::as_str)
            ))),
        }
    }

    fn foreign(&self) -> Error {
        Error::corrupt(format!(
            "the DynamoDB table `{}` was not created by this driver, and was left unchanged: use another `table_prefix`",
            self.name
        ))
    }

    /// Waits for the next look at the table.
    ///
    /// # Errors
    /// Fails at the deadline, with the failure of the last step.
    async fn wait(&self, backoff: &mut Backoff<'_>, failure: Option<RequestFailure>) -> Result<()> {
        if backoff.wait().await {
            return Ok(());
        }
        let late = Error::unavailable(format!(
            "DynamoDB did not finish creating or removing the table `{}` before the deadline",
            self.name
        ));
        Err(match failure {
            Some(failure) => late.with_source(failure.into_write_error()),
            None => late,
        })
    }
}

/// The failure that prevented a step, if a look at the present state can decide how to go on.
fn retryable_failure(step: Result<(), RequestFailure>) -> Result<Option<RequestFailure>> {
    match step {
        Ok(()) => Ok(None),
        Err(failure) if failure.may_be_retried() => Ok(Some(failure)),
        Err(failure) => Err(failure.into_write_error()),
    }
}

#[cfg(test)]
mod tests;
