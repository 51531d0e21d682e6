//! The single requests about a table.

use aws_sdk_dynamodb::types::{
    BillingMode, ProvisionedThroughput, TableDescription, TimeToLiveSpecification,
};
use clock::Instant;
use istorage::Error;

use super::{TableSetup, schema};
use crate::{Billing, errors::RequestFailure, layout};

impl TableSetup<'_> {
    pub(super) async fn describe(
        &self,
        deadline: Instant,
    ) -> Result<Option<TableDescription>, Error> {
        let request = self
            .connection
            .ask(deadline, |client| client.describe_table().table_name(self.name).send());
        match request.await {
            Ok(answer) => Ok(answer.table),
            Err(failure) if failure.is_no_table() => Ok(None),
            Err(failure) => Err(failure.into_read_error()),
        }
    }

    pub(super) async fn send_create(&self, billing: &Billing) -> Result<(), RequestFailure> {
        let request = self.connection.send(|client| {
            let request = client.create_table().table_name(self.name);
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
            self.connection.send(|client| client.delete_table().table_name(self.name).send());
        match request.await.map_err(RequestFailure::new) {
            Err(failure) if failure.is_no_table() => Ok(()),
            answer => answer.map(drop),
        }
    }

    pub(super) async fn send_enable_ttl(&self) -> Result<(), RequestFailure> {
        let request = self.connection.send(|client| {
            let request = client.update_time_to_live().table_name(self.name);
            async {
                let setting = TimeToLiveSpecification::builder()
                    .enabled(true)
                    .attribute_name(layout::PURGED)
                    .build()?;
                request.time_to_live_specification(setting).send().await
            }
        });
        request.await.map(drop).map_err(RequestFailure::new)
    }
}
