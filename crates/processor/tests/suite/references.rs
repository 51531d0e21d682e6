//! References: what a record points to when a command writes it.

use eventlog::{RecordId, Value};
use futures::future::join_all;
use processor::{PartitionEnd, RowChange};
use shop::{ShopDatabase, ShopNode, new_row, text};

use crate::rules::{begin, change, lead, refused, write};

const TABLES: &str = r#"
[tables."shop.Customer"]
kind = "CDoc"
fields = { name = "string" }

[tables."shop.Article"]
kind = "CDoc"

[tables."shop.Bill"]
kind = "WDoc"
fields.customer = { type = "ref", to = ["shop.Customer"] }
fields.about = "ref"
fields.note = "string"
"#;

fn active(id: RecordId, is_active: bool) -> RowChange {
    RowChange::Update {
        id,
        table: None,
        version: None,
        is_active: Some(is_active),
        fields: [].into(),
    }
}

fn bill(field: &str, id: RecordId) -> RowChange {
    new_row(1, "shop.Bill", [(field, Value::Ref(id))])
}

async fn make(shop_db: &ShopDatabase, node: &ShopNode, table: &str) -> RecordId {
    write(shop_db, node, vec![new_row(1, table, [])]).await.unwrap()[0]
}

#[tokio::test]
async fn a_reference_points_to_an_active_record_of_its_tables() {
    let (shop_db, node) = begin(TABLES).await;
    let customer = make(&shop_db, &node, "shop.Customer").await;
    let article = make(&shop_db, &node, "shop.Article").await;
    let write = async |rows| write(&shop_db, &node, rows).await;
    write(vec![bill("customer", customer)]).await.unwrap();
    write(vec![bill("about", article)]).await.unwrap();
    let named = |field: &str, why: String| {
        format!("the new record 1: the field `{field}` of shop.Bill refers to {why}")
    };
    let foreign = format!("record {} of shop.Article, and must refer to shop.Customer", article.0);
    refused(write(vec![bill("customer", article)]).await, &named("customer", foreign));
    let nobody = RecordId(999_999);
    let missing = || "record 999999, which does not exist in the workspace".to_owned();
    refused(write(vec![bill("customer", nobody)]).await, &named("customer", missing()));
    refused(write(vec![bill("about", nobody)]).await, &named("about", missing()));

    write(vec![active(customer, false)]).await.unwrap();
    let inactive = || format!("record {} of shop.Customer, which is not active", customer.0);
    refused(write(vec![bill("customer", customer)]).await, &named("customer", inactive()));
    write(vec![active(customer, true)]).await.unwrap();
    // A command is judged by what it leaves.
    let both = vec![bill("customer", customer), active(customer, false)];
    refused(write(both).await, &named("customer", inactive()));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

#[tokio::test]
async fn a_reference_may_point_to_a_new_record_of_the_same_command() {
    let (shop_db, node) = begin(TABLES).await;
    let customer = new_row(2, "shop.Customer", [("name", text("Ann"))]);
    write(&shop_db, &node, vec![bill("customer", RecordId(2)), customer]).await.unwrap();
    let refers_to_itself = write(&shop_db, &node, vec![bill("about", RecordId(1))]).await;
    let id = refers_to_itself.unwrap()[0];
    let why = format!(
        "record {}: the field `customer` of shop.Bill refers to record {} of shop.Bill, and must \
         refer to shop.Customer",
        id.0, id.0
    );
    let to_itself = change(id, [("customer", Some(Value::Ref(id)))]);
    refused(write(&shop_db, &node, vec![to_itself]).await, &why);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A bill of a customer that was deactivated later could not be changed any more.
#[tokio::test]
async fn a_reference_that_does_not_change_is_not_judged() {
    let (mut shop_db, node) = begin(TABLES).await;
    let customer = make(&shop_db, &node, "shop.Customer").await;
    let id = write(&shop_db, &node, vec![bill("customer", customer)]).await.unwrap()[0];
    write(&shop_db, &node, vec![active(customer, false)]).await.unwrap();
    let same = change(id, [("customer", Some(Value::Ref(customer))), ("note", Some(text("late")))]);
    write(&shop_db, &node, vec![same]).await.unwrap();
    // The next leader reads the events again, and judges none of them.
    node.kill();
    let node = lead(&mut shop_db, TABLES).await;
    write(&shop_db, &node, vec![change(id, [("note", Some(text("later")))])]).await.unwrap();
    write(&shop_db, &node, vec![change(id, [("customer", None)])]).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// One command of the group deactivates what the next ones refer to, or makes it.
#[tokio::test]
async fn a_command_is_judged_by_what_those_before_it_in_its_group_left() {
    let (shop_db, node) = begin(TABLES).await;
    let customer = make(&shop_db, &node, "shop.Customer").await;
    let (shop_db, node) = (&shop_db, &node);
    for round in 0..20 {
        let is_active = round % 2 == 1;
        let command = |row| write(shop_db, node, vec![row]);
        let commands = [active(customer, is_active), bill("customer", customer)].map(command);
        let done: Vec<bool> = join_all(commands).await.iter().map(Result::is_ok).collect();
        assert_eq!(done, [true, is_active], "round {round}");
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
