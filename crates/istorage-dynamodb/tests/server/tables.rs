//! Tables that several nodes create and remove.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveStatus,
};
use clock::Clock;
use futures::future::join_all;
use istorage::{Consistency, ErrorKind, Key, StorageDriver};
use istorage_dynamodb::{Billing, DynamoDbConfig, DynamoDbDriver};

use crate::support::{DynamoDbServer, get, put, soon, table_of, unique_name};

pub(crate) async fn many_nodes_create_one_table(server: DynamoDbServer) {
    let nodes = join_all((0..8).map(|_| server.driver())).await;
    for _ in 0..5 {
        let name = unique_name();
        let made = join_all(nodes.iter().map(|node| node.create(&name, soon()))).await;
        made.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
        let opened = join_all(nodes.iter().map(|node| node.open(&name, soon()))).await;
        let storages: Vec<_> = opened.into_iter().map(|opened| opened.unwrap().unwrap()).collect();
        for (n, storage) in storages.iter().enumerate() {
            let row = put(Key::new("p", format!("{n}")), "v");
            storage.put_batch(vec![row], soon()).await.unwrap();
        }
        for n in 0..8 {
            let found = get(&*storages[7 - n], &Key::new("p", format!("{n}"))).await;
            assert_eq!(found, Some("v".into()));
        }
        let request = server.raw().describe_time_to_live().table_name(table_of(&name));
        let ttl = request.send().await.unwrap().time_to_live_description.unwrap();
        assert_eq!(ttl.time_to_live_status(), Some(&TimeToLiveStatus::Enabled));
        assert_eq!(ttl.attribute_name(), Some("t"));

        let removed = join_all(nodes.iter().map(|node| node.drop_keyspace(&name, soon()))).await;
        removed.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
        assert!(nodes[0].open(&name, soon()).await.unwrap().is_none());
    }
}

pub(crate) async fn a_table_has_the_configured_capacity(server: DynamoDbServer) {
    let billing = Billing::Provisioned { read_units: 3, write_units: 4 };
    let config =
        DynamoDbConfig { billing, table_prefix: "Of-Trial.".to_owned(), ..server.config() };
    let driver = server.driver_with(config, Clock::system()).await;
    let name = unique_name();
    driver.create(&name, soon()).await.unwrap();
    let request = server.raw().describe_table().table_name(format!("Of-Trial.{name}"));
    let table = request.send().await.unwrap().table.unwrap();
    let capacity = table.provisioned_throughput().unwrap();
    assert_eq!(
        (capacity.read_capacity_units(), capacity.write_capacity_units()),
        (Some(3), Some(4))
    );
    driver.drop_keyspace(&name, soon()).await.unwrap();
}

pub(crate) async fn a_foreign_table_is_left_alone(server: DynamoDbServer) {
    let (driver, raw, name) = (server.driver().await, server.raw(), unique_name());
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build();
    let id = AttributeDefinition::builder()
        .attribute_name("id")
        .attribute_type(ScalarAttributeType::S)
        .build();
    raw.create_table()
        .table_name(table_of(&name))
        .key_schema(key.unwrap())
        .attribute_definitions(id.unwrap())
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();
    let kinds = [
        driver.create(&name, soon()).await.unwrap_err().kind(),
        driver.open(&name, soon()).await.unwrap_err().kind(),
        driver.drop_keyspace(&name, soon()).await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Corrupt; 3]);
    let ttl = raw.describe_time_to_live().table_name(table_of(&name)).send().await.unwrap();
    let status = ttl.time_to_live_description.unwrap().time_to_live_status;
    assert_eq!(status, Some(TimeToLiveStatus::Disabled));
    raw.delete_table().table_name(table_of(&name)).send().await.unwrap();
}

pub(crate) async fn a_table_that_is_removed_under_a_storage_is_corrupt(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    scratch.driver.drop_keyspace(&scratch.name, soon()).await.unwrap();
    let key = Key::new("p", "c");
    let read = scratch.storage.get(&key, Consistency::Plain, soon()).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt);
    let write = scratch.storage.put_batch(vec![put(key, "v")], soon()).await;
    assert_eq!(write.unwrap_err().kind(), ErrorKind::Corrupt);
}

pub(crate) async fn a_server_that_is_not_there_is_unavailable(_: DynamoDbServer) {
    let config = DynamoDbConfig::local("http://127.0.0.1:1");
    let driver = DynamoDbDriver::connect(config, Clock::system(), soon()).await.unwrap();
    let error = driver.create(&unique_name(), soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
