//! Changes by operator: numbers that a command changes without reading them before.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{RecordId, Value, WsId};
use futures::future::join_all;
use isequencer::WsKind;
use processor::{
    Application, Command, CommandContext, Declarations, FieldChange, Handler, HandlerError,
    PartitionEnd, RejectionKind, RowChange,
};
use shop::{ShopDatabase, ShopNodeSettings, create_workspace, new_row, qname, text};

use crate::rules::{PARTITION, WS, begin, field, lead, refused, write};

const ARTICLES: &str = r#"
[tables."shop.Article"]
kind = "WDoc"
fields.name = "string"
fields.stock = { type = "int64", min = 0 }
fields.debt = "int64"
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
    write(&shop_db, &node, vec![add(id, "debt", i64::MIN)]).await.unwrap();
    for (name, number, holds) in [
        ("seen", 1, "int32"),
        ("seen", i64::MAX, "int32"),
        ("seen", -(1 << 32) - 1, "int32"),
        ("stock", 1, "int64"),
        ("debt", -1, "int64"),
    ] {
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

/// Sells one piece after another, and takes two back.
#[derive(Debug)]
struct SellAndReturn;

#[async_trait]
impl Handler for SellAndReturn {
    async fn run(
        &self,
        params: &Bytes,
        _rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let id = RecordId(String::from_utf8_lossy(params).parse().unwrap());
        for number in [-3, -3, 2] {
            context.write(vec![add(id, "stock", number)]).await?;
        }
        Ok(Bytes::new())
    }
}

/// The rule counts for what the handler leaves. In between, there were less than none.
#[tokio::test]
async fn a_handler_adds_to_its_own_sums() {
    let mut shop_db = ShopDatabase::in_memory().await;
    let declared = Declarations::new(ARTICLES.parse().unwrap()).unwrap();
    let declared = declared.with_workspaces("Shop", WsKind(1), []).unwrap();
    let shop = Application::new(declared).with_command(qname("shop.Sell"), SellAndReturn).unwrap();
    shop_db.application = Arc::new(shop);
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(eventlog::TrustLevel::Zero));
    node.ready().await;
    node.commands.run(create_workspace(WS, shop_db.soon())).await.unwrap();
    let article = new_row(1, "shop.Article", [("stock", Value::Int64(5))]);
    let id = write(&shop_db, &node, vec![article]).await.unwrap()[0];
    let sell = || {
        let command = Command::new(WsId(WS), qname("shop.Sell"), shop_db.soon());
        node.commands.run(command.with_params(id.0.to_string()))
    };
    sell().await.unwrap();
    assert_eq!(field(&node, id, "stock").await, Some(Value::Int64(1)));
    sell().await.unwrap_err();
    assert_eq!(field(&node, id, "stock").await, Some(Value::Int64(1)));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// The tables of an import were older than one of its events: 5,000,000,000 pieces became -2.
#[tokio::test]
async fn a_number_of_another_type_is_not_taken_for_nothing() {
    let tables = |holds: &str| {
        format!("[tables.\"shop.Article\"]\nkind = \"WDoc\"\nfields = {{ stock = \"{holds}\" }}")
    };
    let (mut shop_db, node) = begin(&tables("int64")).await;
    let many = Value::Int64(5_000_000_000);
    let article = new_row(1, "shop.Article", [("stock", many.clone())]);
    let id = write(&shop_db, &node, vec![article]).await.unwrap()[0];
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let node = lead(&mut shop_db, &tables("int32")).await;
    let rejection = write(&shop_db, &node, vec![add(id, "stock", -2)]).await.unwrap_err();
    assert_eq!(rejection.kind, RejectionKind::Internal, "{rejection}");
    assert!(rejection.message.ends_with("declare the type that was deployed"), "{rejection}");
    assert_eq!(field(&node, id, "stock").await, Some(many));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
