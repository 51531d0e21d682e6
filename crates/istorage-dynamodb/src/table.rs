//! Creates, finds and removes the table of a keyspace. Any number of nodes may do so at once.
//!
//! Every operation repeats two steps: look at the present state, then act on it, until the wanted
//! state is reached. So neither actions of other nodes nor lost answers to earlier steps matter.
//!
//! Descriptions are eventually consistent. After one server has said that a new table is active,
//! another server may still say that there is no such table.

use std::{error::Error as StdError, sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{
        BillingMode, ProvisionedThroughput, TableDescription, TableStatus, TimeToLiveSpecification,
        TimeToLiveStatus,
    },
};
use clock::Instant;
use istorage::Error;

use crate::{
    Billing,
    connection::{Backoff, Connection},
    errors::Failure,
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
pub(crate) struct Table {
    pub(crate) connection: Arc<Connection>,
    pub(crate) name: Arc<str>,
    /// The time from which the answer "no such table" to a request for rows means that the table is
    /// lost.
    known_from: Instant,
}

/// The state of a table of this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    BeingMade,
    Usable,
    BeingRemoved,
}

impl Table {
    pub(crate) fn new(connection: Arc<Connection>, name: String) -> Table {
        let known_from = connection.clock().now();
        Table { connection, name: name.into(), known_from }
    }

    /// The table after one server of rows has answered. Another server may not know the table for
    /// [`SHOWN_WITHIN`]. Until then its answer "no such table" means only that the call did
    /// nothing.
    pub(crate) fn opened(self) -> Table {
        Table { known_from: self.connection.clock().now() + SHOWN_WITHIN, ..self }
    }

    /// The failure of a request for rows.
    pub(crate) fn failure_of<E>(&self, error: SdkError<E>) -> Failure
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let failure = Failure::of(error);
        let is_known = self.connection.clock().now() >= self.known_from;
        if failure.is_no_table() && !is_known { failure.for_now() } else { failure }
    }

    /// As [`Connection::ask`], for a request for rows.
    pub(crate) async fn ask<T, E, F>(
        &self,
        deadline: Instant,
        request: impl Fn(&Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        self.connection.ask_judged(deadline, request, |error| self.failure_of(error)).await
    }

    /// Creates the table if it does not exist, and waits until the table can be used.
    pub(crate) async fn create(&self, billing: &Billing, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let hindrance = match self.describe(deadline).await? {
                None => hindrance(self.ask_to_create(billing).await)?,
                Some(table) => match self.state(&table)? {
                    State::Usable => break,
                    State::BeingMade | State::BeingRemoved => None,
                },
            };
            self.wait(&mut backoff, hindrance).await?;
        }
        self.have_expired_items_removed(deadline).await
    }

    /// Whether the table can be used. Waits for a table that is being created. If this driver has
    /// created the table, "no such table" is believed only after [`SHOWN_WITHIN`].
    pub(crate) async fn is_there(&self, was_made: bool, deadline: Instant) -> Result<bool> {
        let clock = self.connection.clock();
        let shown_by = clock.now() + if was_made { SHOWN_WITHIN } else { Duration::ZERO };
        let mut backoff = self.connection.backoff(deadline);
        loop {
            match self.describe(deadline).await? {
                None if clock.now() >= shown_by => return Ok(false),
                None => self.wait(&mut backoff, None).await?,
                Some(table) => match self.state(&table)? {
                    State::Usable => break,
                    State::BeingRemoved => return Ok(false),
                    State::BeingMade => self.wait(&mut backoff, None).await?,
                },
            }
        }
        self.have_rows_answered(deadline).await?;
        Ok(true)
    }

    /// Waits until a read of a row is answered. The servers of rows may know the table later than
    /// the servers that describe it.
    async fn have_rows_answered(&self, deadline: Instant) -> Result<()> {
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
                Err(failure) => return Err(failure.of_read()),
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
            let mut hindered = None;
            if self.state(&table)? == State::Usable && removed.is_none() {
                hindered = hindrance(self.ask_to_remove().await)?;
                if hindered.is_none() {
                    removed = table.table_id().map(str::to_owned);
                }
            }
            self.wait(&mut backoff, hindered).await?;
        }
    }

    async fn wait(&self, backoff: &mut Backoff<'_>, hindrance: Option<Failure>) -> Result<()> {
        if backoff.wait().await {
            return Ok(());
        }
        let late = Error::unavailable(format!(
            "DynamoDB did not finish creating or removing the table `{}` before the deadline",
            self.name
        ));
        Err(match hindrance {
            Some(failure) => late.because(failure.of_write()),
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
            Err(failure) => Err(failure.of_read()),
        }
    }

    fn state(&self, table: &TableDescription) -> Result<State> {
        let status = table.table_status();
        if status == Some(&TableStatus::Deleting) {
            return Ok(State::BeingRemoved);
        }
        if !layout::is_ours(table) {
            return Err(self.foreign());
        }
        match status {
            Some(TableStatus::Creating) => Ok(State::BeingMade),
            Some(TableStatus::Active | TableStatus::Updating) => Ok(State::Usable),
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

    async fn have_expired_items_removed(&self, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let answer = self.connection.ask(deadline, |client| {
                client.describe_time_to_live().table_name(&*self.name).send()
            });
            let answer = match answer.await {
                Ok(answer) => answer,
                Err(failure) if failure.is_no_table() => {
                    self.wait(&mut backoff, Some(failure)).await?;
                    continue;
                }
                Err(failure) => return Err(failure.of_read()),
            };
            let there = answer.time_to_live_description;
            let attribute = there.as_ref().and_then(|there| there.attribute_name());
            let hindrance = match there.as_ref().and_then(|there| there.time_to_live_status()) {
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => {
                    let is_ours = attribute == Some(layout::PURGED);
                    return if is_ours { Ok(()) } else { Err(self.foreign()) };
                }
                Some(TimeToLiveStatus::Disabling) => None,
                _ => match self.ask_for_removal_of_expired_items().await {
                    Ok(()) => return Ok(()),
                    // The service also gives this answer if another node has sent the same request
                    // in the meantime.
                    Err(failure) if failure.is_invalid() || failure.is_no_table() => Some(failure),
                    Err(failure) => hindrance(Err(failure))?,
                },
            };
            self.wait(&mut backoff, hindrance).await?;
        }
    }

    async fn ask_to_create(&self, billing: &Billing) -> Result<(), Failure> {
        let request = self.connection.send(|client| {
            let request = client.create_table().table_name(&*self.name);
            async {
                let (keys, attributes) = layout::table_keys()?;
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
        request.await.map(drop).map_err(Failure::of)
    }

    async fn ask_to_remove(&self) -> Result<(), Failure> {
        let request =
            self.connection.send(|client| client.delete_table().table_name(&*self.name).send());
        match request.await.map_err(Failure::of) {
            Err(failure) if failure.is_no_table() => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn ask_for_removal_of_expired_items(&self) -> Result<(), Failure> {
        let request = self.connection.send(|client| {
            let request = client.update_time_to_live().table_name(&*self.name);
            async {
                let setting = TimeToLiveSpecification::builder()
                    .enabled(true)
                    .attribute_name(layout::PURGED)
                    .build()?;
                request.time_to_live_specification(setting).send().await
            }
        });
        request.await.map(drop).map_err(Failure::of)
    }
}

/// The failure that prevented a step, if a look at the present state can decide how to go on.
fn hindrance(step: Result<(), Failure>) -> Result<Option<Failure>> {
    match step {
        Ok(()) => Ok(None),
        Err(failure) if failure.may_be_asked_again() => Ok(Some(failure)),
        Err(failure) => Err(failure.of_write()),
    }
}

#[cfg(test)]
mod tests;
