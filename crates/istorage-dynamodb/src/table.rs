//! Creates, finds and removes the table of a keyspace. Any number of nodes may do so at once.
//!
//! Every operation repeats two steps: look at the present state, then act on it, until the wanted
//! state is reached. So neither actions of other nodes nor lost answers to earlier steps matter.
//!
//! Descriptions are eventually consistent. After one server has said that a new table is active,
//! another server may still say that there is no such table.

mod schema;
mod ttl;

use std::{error::Error as StdError, sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{BillingMode, ProvisionedThroughput, TableDescription, TableStatus},
};
use clock::Instant;
use istorage::Error;

use crate::{
    Billing,
    connection::{Backoff, Connection},
    errors::RequestFailure,
    layout,
};

type Result<T, E = Error> = std::result::Result<T, E>;

/// The time after which every server shows a table that one server has shown as active. The manual
/// of DynamoDB says "a few seconds".
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// The partition key of a row that is never written.
const PROBED: &str = "probe";

/// The table of a keyspace.
#[derive(Clone, Debug)]
pub(crate) struct KeyspaceTable {
    pub(crate) connection: Arc<Connection>,
    pub(crate) name: Arc<str>,
    /// The time from which the answer "no such table" to a request for rows means that the table is
    /// lost.
    known_from: Instant,
}

/// The state of a table of this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableState {
    Creating,
    Usable,
    Deleting,
}

impl KeyspaceTable {
    pub(crate) fn new(connection: Arc<Connection>, name: String) -> KeyspaceTable {
        let known_from = connection.clock().now();
        KeyspaceTable { connection, name: name.into(), known_from }
    }

    /// The table after one server of rows has answered. Another server may not know the table for
    /// [`SHOWN_WITHIN`]. Until then its answer "no such table" means only that the call did
    /// nothing.
    pub(crate) fn opened(self) -> KeyspaceTable {
        KeyspaceTable { known_from: self.connection.clock().now() + SHOWN_WITHIN, ..self }
    }

    /// The failure of a request for rows.
    pub(crate) fn failure_of<E>(&self, error: SdkError<E>) -> RequestFailure
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let failure = RequestFailure::new(error);
        let is_known = self.connection.clock().now() >= self.known_from;
        if failure.is_no_table() && !is_known { failure.into_temporary() } else { failure }
    }

    /// As [`Connection::ask`], for a request for rows.
    pub(crate) async fn ask<T, E, F>(
        &self,
        deadline: Instant,
        request: impl Fn(&Client) -> F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        self.connection.ask_with(deadline, request, |error| self.failure_of(error)).await
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

    async fn describe(&self, deadline: Instant) -> Result<Option<TableDescription>> {
        let request = self
            .connection
            .ask(deadline, |client| client.describe_table().table_name(&*self.name).send());
        match request.await {
            Ok(answer) => Ok(answer.table),
            Err(failure) if failure.is_no_table() => Ok(None),
            Err(failure) => Err(failure.into_read_error()),
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

    async fn send_create(&self, billing: &Billing) -> Result<(), RequestFailure> {
        let request = self.connection.send(|client| {
            let request = client.create_table().table_name(&*self.name);
            async {
                let (keys, attributes) = schema::table_keys()?;
                let request =
                    request.set_key_schema(Some(keys)).set_attribute_definitions(Some(attributes));
                let request = match billing {
                    Billing::OnDemand => request.billing_mode(BillingMode::PayPerRequest),
                    Billing::Provisioned { read_units, write_units } => {
                        let capacity = ProvisionedThroughput::builder()
                            .read_capacity_units(i64::from(*read_units))
                            .write_capacity_units(i64::from(*write_units))
                            .build()?;
                        request
                            .billing_mode(BillingMode::Provisioned)
                            .provisioned_throughput(capacity)
                    }
                };
                request.send().await
            }
        });
        request.await.map(drop).map_err(RequestFailure::new)
    }

    async fn send_delete(&self) -> Result<(), RequestFailure> {
        let request =
            self.connection.send(|client| client.delete_table().table_name(&*self.name).send());
        match request.await.map_err(RequestFailure::new) {
            Err(failure) if failure.is_no_table() => Ok(()),
            answer => answer.map(drop),
        }
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
