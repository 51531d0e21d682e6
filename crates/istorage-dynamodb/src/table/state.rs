//! The present state of the table of a keyspace.

use aws_sdk_dynamodb::types::{TableDescription, TableStatus};
use clock::Instant;
use istorage::Error;

use super::{KeyspaceTable, Result, schema};

/// The state of a table of this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableState {
    Creating,
    Usable,
    Deleting,
}

impl KeyspaceTable {
    pub(super) async fn describe(&self, deadline: Instant) -> Result<Option<TableDescription>> {
        let request = self
            .connection
            .ask(deadline, |client| client.describe_table().table_name(&*self.name).send());
        match request.await {
            Ok(answer) => Ok(answer.table),
            Err(failure) if failure.is_no_table() => Ok(None),
            Err(failure) => Err(failure.into_read_error()),
        }
    }

    pub(super) fn state(&self, table: &TableDescription) -> Result<TableState> {
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

    pub(super) fn foreign(&self) -> Error {
        Error::corrupt(format!(
            "the DynamoDB table `{}` was not created by this driver, and was left unchanged: use another `table_prefix`",
            self.name
        ))
    }
}
