//! Creates, finds and removes the table of a keyspace. Any number of nodes may do so at once.
//!
//! Every operation repeats two steps: look at the present state, then act on it, until the wanted
//! state is reached. So neither actions of other nodes nor lost answers to earlier steps matter.
//!
//! Descriptions are eventually consistent. After one server has said that a new table is active,
//! another server may still say that there is no such table.

use std::time::Duration;

use clock::Instant;

use super::{KeyspaceTable, Result, SHOWN_WITHIN, state::TableState, steps::retryable_failure};
use crate::{Billing, layout};

/// The partition key of a row that is never written.
const PROBED: &str = "probe";

impl KeyspaceTable {
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
                    .table_name(&*self.name)
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
}
