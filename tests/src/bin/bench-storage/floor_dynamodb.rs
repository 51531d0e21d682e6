//! The floor of DynamoDB: the bare AWS crate, used in the most obvious way.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    Client,
    config::{Credentials, Region},
    primitives::Blob,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
        PutRequest, ScalarAttributeType, TransactWriteItem, WriteRequest,
    },
};
use bytes::Bytes;

use vvm_tests::bench::BenchError;

use crate::work::{Op, Side, ccols, pkey, value};

pub(crate) struct DynamoDbFloor {
    client: Client,
    table: String,
}

impl DynamoDbFloor {
    pub(crate) async fn connect(
        endpoint: &str,
        table: &str,
    ) -> Result<Arc<DynamoDbFloor>, BenchError> {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version_latest()
            .endpoint_url(endpoint)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
            .build();
        let client = Client::from_conf(config);
        let attribute = |name: &str| {
            AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::B)
                .build()
        };
        let key = |name: &str, kind| {
            KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
        };
        client
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest)
            .set_attribute_definitions(Some(vec![attribute("p")?, attribute("c")?]))
            .set_key_schema(Some(vec![key("p", KeyType::Hash)?, key("c", KeyType::Range)?]))
            .send()
            .await?;
        Ok(Arc::new(DynamoDbFloor { client, table: table.to_owned() }))
    }

    pub(crate) async fn drop_table(&self) -> Result<(), BenchError> {
        self.client.delete_table().table_name(&self.table).send().await?;
        Ok(())
    }
}

fn binary(bytes: Bytes) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

fn item(op: Op, n: u64, row: u16) -> HashMap<String, AttributeValue> {
    let values = [("p", pkey(op, n)), ("c", ccols(row)), ("v", value())];
    values.into_iter().map(|(name, bytes)| (name.to_owned(), binary(bytes))).collect()
}

#[async_trait]
impl Side for DynamoDbFloor {
    async fn run(&self, op: Op, n: u64) -> Result<(), BenchError> {
        match op {
            Op::Put => {
                self.client
                    .put_item()
                    .table_name(&self.table)
                    .set_item(Some(item(op, n, 0)))
                    .send()
                    .await?;
            }
            Op::Get => {
                let get = self.client.get_item().table_name(&self.table).consistent_read(true);
                let answer =
                    get.key("p", binary(pkey(op, n))).key("c", binary(ccols(0))).send().await?;
                answer.item.ok_or("a row that was written is not there")?;
            }
            Op::PutBatch10 => {
                let put = |row| {
                    let put = PutRequest::builder().set_item(Some(item(op, n, row))).build()?;
                    Ok::<_, BenchError>(WriteRequest::builder().put_request(put).build())
                };
                let rows = (0..10).map(put).collect::<Result<Vec<_>, _>>()?;
                self.client.batch_write_item().request_items(&self.table, rows).send().await?;
            }
            Op::Insert => {
                let put =
                    self.client.put_item().table_name(&self.table).set_item(Some(item(op, n, 0)));
                put.condition_expression("attribute_not_exists(p)").send().await?;
            }
            Op::WriteIf32 => {
                let put = |row| {
                    let put =
                        Put::builder().table_name(&self.table).set_item(Some(item(op, n, row)));
                    let put = put.condition_expression("attribute_not_exists(p)").build()?;
                    Ok::<_, BenchError>(TransactWriteItem::builder().put(put).build())
                };
                let rows = (0..32).map(put).collect::<Result<Vec<_>, _>>()?;
                self.client.transact_write_items().set_transact_items(Some(rows)).send().await?;
            }
        }
        Ok(())
    }
}
