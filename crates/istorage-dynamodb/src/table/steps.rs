//! The steps that create and remove a table, and the pauses between them.

use aws_sdk_dynamodb::types::{BillingMode, ProvisionedThroughput};
use istorage::Error;

use super::{KeyspaceTable, Result, schema};
use crate::{Billing, connection::Backoff, errors::RequestFailure};

impl KeyspaceTable {
    pub(super) async fn send_create(&self, billing: &Billing) -> Result<(), RequestFailure> {
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

    pub(super) async fn send_delete(&self) -> Result<(), RequestFailure> {
        let request =
            self.connection.send(|client| client.delete_table().table_name(&*self.name).send());
        match request.await.map_err(RequestFailure::new) {
            Err(failure) if failure.is_no_table() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Waits for the next look at the table.
    ///
    /// # Errors
    /// Fails at the deadline, with the failure of the last step.
    pub(super) async fn wait(
        &self,
        backoff: &mut Backoff<'_>,
        failure: Option<RequestFailure>,
    ) -> Result<()> {
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
pub(super) fn retryable_failure(
    step: Result<(), RequestFailure>,
) -> Result<Option<RequestFailure>> {
    match step {
        Ok(()) => Ok(None),
        Err(failure) if failure.may_be_retried() => Ok(Some(failure)),
        Err(failure) => Err(failure.into_write_error()),
    }
}
