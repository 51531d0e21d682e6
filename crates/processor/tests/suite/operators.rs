//! Changes by operator: numbers that a command changes without reading them before.

use std::collections::BTreeMap;

use eventlog::{RecordId, Value};
use futures::future::join_all;
use processor::{FieldChange, PartitionEnd, RejectionKind, RowChange};
use shop::{new_row, text};

use crate::rules::{begin, field, refused, write};

const ARTICLES: &str = r#"
[tables."shop.Article"]
kind = "WDoc"
fields.name = "string"
fields.stock = { type = "int64", min = 0, max = 9_223_372_036_854_775_807 }
fields.seen = "int32"
fields.weight = "float64"
"#;

fn add(id: RecordId, name: &str, number: i64) -> RowChange {
    let fields = BTreeMap::from([(name.parse().unwrap(), FieldChange::Add(number))]);
    RowChange::Update { id, table: None, version: None, is_active: None, fields }
}

/// Clients that read the stock and write what is left must retry whenever another one was faster.
#[tokio::test]
async fn many_clients_sell_exactly_what_is_there_and_nobody_retries() {
    let (shop_db, node) = begin(ARTICLES).await;
    let article = new_row(1, "shop.Article", [("stock", Value::Int64(100))]);
    let id = write(&shop_db, &node, vec![article]).await.unwrap()[0];
    let (shop_db, node) = (&shop_db, &node);
    let client = async || {
        let (mut sold, mut refused) = (0, 0);
        while refused == 0 {
            match write(shop_db, node, vec![add(id, "stock", -1)]).await {
                Ok(_) => sold += 1,
                Err(rejection) => {
                    assert_eq!(rejection.kind, RejectionKind::Rule, "{rejection}");
                    assert!(rejection.message.contains("must be at least 0"), "{rejection}");
                    refused += 1;
                }
            }
        }
        sold
    };
    let sold = join_all((0..8).map(|_| client())).await;
    assert_eq!(sold.iter().sum::<u32>(), 100, "{sold:?}");
    assert_eq!(field(node, id, "stock").await, Some(Value::Int64(0)));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

#[tokio::test]
async fn a_sum_starts_at_zero_and_stays_in_its_type() {
    let (shop_db, node) = begin(ARTICLES).await;
    let article = new_row(1, "shop.Article", [("name", text("pear"))]);
    let id = write(&shop_db, &node, vec![article]).await.unwrap()[0];
    write(&shop_db, &node, vec![add(id, "seen", i32::MAX.into())]).await.unwrap();
    write(&shop_db, &node, vec![add(id, "stock", i64::MAX)]).await.unwrap();
    for (name, number, holds) in [("seen", 1, "int32"), ("stock", 1, "int64")] {
        let why = format!(
            "record {}: the field `{name}` of shop.Article would have a sum outside of {holds}",
            id.0
        );
        refused(write(&shop_db, &node, vec![add(id, name, number)]).await, &why);
    }
    for name in ["name", "weight", "nothing"] {
        let rejection = write(&shop_db, &node, vec![add(id, name, 1)]).await.unwrap_err();
        assert_eq!(rejection.kind, RejectionKind::Invalid, "{rejection}");
        assert!(rejection.message.contains("nothing can be added"), "{rejection}");
    }
    assert_eq!(field(&node, id, "seen").await, Some(Value::Int32(i32::MAX)));
    assert_eq!(field(&node, id, "stock").await, Some(Value::Int64(i64::MAX)));
    let twice = vec![add(id, "seen", -1), add(id, "seen", -1)];
    let rejection = write(&shop_db, &node, twice).await.unwrap_err();
    assert!(rejection.message.ends_with("and add up its numbers"), "{rejection}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
