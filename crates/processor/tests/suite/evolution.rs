//! Tables that change while records are stored: nodes with different tables take turns.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{RecordId, TrustLevel, Value, WsId};
use isequencer::WsKind;
use processor::{
    Application, Command, CommandContext, Declarations, FieldChange, Handler, HandlerError,
    PartitionEnd, RowChange,
};
use shop::{ShopNode, ShopNodeSettings, new_row, qname, text};

use crate::rules::{PARTITION, WS, begin, change, field, lead, refused, write};

const FIRST: &str = r#"
[tables."shop.Article"]
kind = "WDoc"
fields = { name = "string", old = "string", stock = "int32" }
"#;

/// `old` is left out, `new` is added, and `stock` is wider.
const SECOND: &str = r#"
[tables."shop.Article"]
kind = "WDoc"
fields.name = "string"
fields.new = "string"
fields.stock = { type = "int64", max = 9_000_000_000 }
"#;

async fn fields(node: &ShopNode, id: RecordId) -> [Option<Value>; 4] {
    let mut all = [const { None }; 4];
    for (value, name) in all.iter_mut().zip(["name", "old", "new", "stock"]) {
        *value = field(node, id, name).await;
    }
    all
}

/// A node refused each change of a record with a field that its tables leave out.
#[tokio::test]
async fn a_change_carries_the_values_of_fields_that_its_tables_leave_out() {
    let (mut shop_db, node) = begin(FIRST).await;
    let article = new_row(1, "shop.Article", [("name", text("tea")), ("old", text("kept"))]);
    let id = write(&shop_db, &node, vec![article]).await.unwrap()[0];
    assert_eq!(node.stop().await, PartitionEnd::Stopped);

    let node = lead(&mut shop_db, SECOND).await;
    write(&shop_db, &node, vec![change(id, [("new", Some(text("more")))])]).await.unwrap();
    for lost in [Some(text("lost")), None] {
        let hidden = change(id, [("old", lost)]);
        let unknown = write(&shop_db, &node, vec![hidden]).await.unwrap_err();
        assert_eq!(unknown.message, "the table shop.Article has no field `old`");
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);

    let node = lead(&mut shop_db, FIRST).await;
    write(&shop_db, &node, vec![change(id, [("name", Some(text("pear")))])]).await.unwrap();
    let both = [Some(text("pear")), Some(text("kept")), Some(text("more")), None];
    assert_eq!(fields(&node, id).await, both);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

#[tokio::test]
async fn a_number_that_was_stored_as_int32_is_an_int64_for_rules_and_sums() {
    let (mut shop_db, node) = begin(FIRST).await;
    let article = new_row(1, "shop.Article", [("stock", Value::Int32(i32::MAX))]);
    let id = write(&shop_db, &node, vec![article]).await.unwrap()[0];
    assert_eq!(node.stop().await, PartitionEnd::Stopped);

    let node = lead(&mut shop_db, SECOND).await;
    let add = |number| {
        let fields = [("stock".parse().unwrap(), FieldChange::Add(number))].into();
        vec![RowChange::Update { id, table: None, version: None, is_active: None, fields }]
    };
    let why =
        format!("record {}: the field `stock` of shop.Article must be at most 9000000000", id.0);
    refused(write(&shop_db, &node, add(8_000_000_000)).await, &why);
    write(&shop_db, &node, add(1)).await.unwrap();
    assert_eq!(field(&node, id, "stock").await, Some(Value::Int64(1 << 31)));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// Returns the stock that it reads.
#[derive(Debug)]
struct ShowStock;

#[async_trait]
impl Handler for ShowStock {
    async fn run(
        &self,
        params: &Bytes,
        _rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let id = RecordId(String::from_utf8_lossy(params).parse().unwrap());
        let (article, _) = context.get(id).await?.unwrap();
        Ok(format!("{:?}", article.fields.get("stock")).into())
    }
}

#[tokio::test]
async fn a_handler_reads_an_int32_as_the_int64_that_its_field_became() {
    let (mut shop_db, node) = begin(FIRST).await;
    let article = new_row(1, "shop.Article", [("stock", Value::Int32(7))]);
    let id = write(&shop_db, &node, vec![article]).await.unwrap()[0];
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let declared = Declarations::new(SECOND.parse().unwrap()).unwrap();
    let declared = declared.with_workspaces("Shop", WsKind(1), []).unwrap();
    let shop = Application::new(declared).with_command(qname("shop.Show"), ShowStock).unwrap();
    shop_db.application = Arc::new(shop);
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    let command = Command::new(WsId(WS), qname("shop.Show"), shop_db.soon());
    let done = node.commands.run(command.with_params(id.0.to_string())).await.unwrap();
    assert_eq!(done.answer.result, "Some(Int64(7))");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
