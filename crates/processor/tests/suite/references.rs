//! References: what a record points to when a command writes it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use eventlog::{RecordId, TrustLevel, Value, WsId};
use futures::future::join_all;
use istorage::CallKind;
use processor::{PartitionEnd, RejectionKind, RowChange};
use shop::{ShopDatabase, ShopNode, ShopNodeSettings, create_workspace, cud, new_row, text};
use tck::storage::{Fault, Faulty};

use crate::rules::{PARTITION, WS, begin, change, lead, refused, write};

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

[tables."shop.Note"]
kind = "WDoc"
fields = { about = "ref" }
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
    // A table without any rule has references, too.
    let note = new_row(1, "shop.Note", [("about", Value::Ref(nobody))]);
    refused(write(vec![note]).await, &named("about", missing()).replace("Bill", "Note"));

    write(vec![active(customer, false)]).await.unwrap();
    let inactive = || format!("record {} of shop.Customer, which is not active", customer.0);
    refused(write(vec![bill("customer", customer)]).await, &named("customer", inactive()));
    refused(write(vec![bill("about", customer)]).await, &named("about", inactive()));
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

/// Ids of different workspaces are equal, and a bill of one workspace could point into another.
#[tokio::test]
async fn a_reference_stays_in_its_workspace() {
    let (shop_db, node) = begin(TABLES).await;
    let customer = make(&shop_db, &node, "shop.Customer").await;
    let other = WS + 10;
    node.commands.run(create_workspace(other, shop_db.soon())).await.unwrap();
    let command = cud(other, vec![bill("customer", customer)], shop_db.soon());
    node.commands.run(command).await.unwrap_err();
    let own = cud(other, vec![new_row(1, "shop.Customer", [])], shop_db.soon());
    assert_eq!(node.commands.run(own).await.unwrap().answer.ids[0].1, customer);
    let command = cud(other, vec![bill("customer", customer)], shop_db.soon());
    node.commands.run(command).await.unwrap();
    let stored = node.commands.record(WsId(other), customer).await.unwrap();
    assert!(stored.is_some());
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A leader whose reads are counted.
async fn counted(shop_db: &ShopDatabase) -> (ShopNode, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let count = move |kind| {
        if matches!(kind, CallKind::Get | CallKind::GetBatch | CallKind::GetValues) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Fault::None
    };
    let storage = Faulty::scripted(Arc::clone(&shop_db.app.storage), shop_db.clock.clone(), count);
    let settings = ShopNodeSettings {
        storage: Some(Arc::new(storage)),
        ..ShopNodeSettings::at(TrustLevel::Zero)
    };
    let node = shop_db.node(PARTITION, settings);
    node.ready().await;
    (node, reads)
}

/// 4,096 lines of one article read the article 4,096 times, one after another, and kept the
/// partition for ten seconds.
#[tokio::test]
async fn a_record_is_read_once_and_several_are_read_together() {
    let (shop_db, node) = begin(TABLES).await;
    let mut customers = Vec::new();
    for _ in 0..20 {
        customers.push(make(&shop_db, &node, "shop.Customer").await);
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let (node, reads) = counted(&shop_db).await;
    make(&shop_db, &node, "shop.Article").await;
    for distinct in [1, 20] {
        let row = |raw: u64| {
            let customer = customers[raw as usize % distinct];
            new_row(raw, "shop.Bill", [("customer", Value::Ref(customer))])
        };
        reads.store(0, Ordering::Relaxed);
        write(&shop_db, &node, (1..=1_000).map(row).collect()).await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 1, "{distinct} records");
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// Nothing bounded what the references of a command read.
#[tokio::test]
async fn a_command_refers_to_a_bounded_number_of_records_and_bytes() {
    let (shop_db, node) = begin(TABLES).await;
    let mut large = Vec::new();
    for _ in 0..40 {
        let row = new_row(1, "shop.Customer", [("name", text("x".repeat(900_000)))]);
        large.extend(write(&shop_db, &node, vec![row]).await.unwrap());
    }
    let to = |ids: &[RecordId]| -> Vec<RowChange> {
        let rows = (1..).zip(ids);
        rows.map(|(raw, id)| new_row(raw, "shop.Bill", [("customer", Value::Ref(*id))])).collect()
    };
    let rejection = write(&shop_db, &node, to(&large)).await.unwrap_err();
    assert_eq!(rejection.kind, RejectionKind::TooLarge, "{rejection}");
    write(&shop_db, &node, to(&large[..30])).await.unwrap();
    let customers: Vec<RowChange> =
        (1..=4_096).map(|raw| new_row(raw, "shop.Customer", [])).collect();
    let mut ids = write(&shop_db, &node, customers).await.unwrap();
    ids.truncate(2_049);
    let articles: Vec<RowChange> =
        (1..=2_048).map(|raw| new_row(raw, "shop.Article", [])).collect();
    let articles = write(&shop_db, &node, articles).await.unwrap();
    let both = |customers: &[RecordId]| -> Vec<RowChange> {
        let rows = (1..).zip(customers.iter().zip(articles.iter().cycle()));
        let row = |(raw, (customer, about)): (u64, (&RecordId, &RecordId))| {
            let fields = [("customer", Value::Ref(*customer)), ("about", Value::Ref(*about))];
            new_row(raw, "shop.Bill", fields)
        };
        rows.map(row).collect()
    };
    let rejection = write(&shop_db, &node, both(&ids)).await.unwrap_err();
    assert_eq!(rejection.message, "a command refers to more than 4096 records");
    write(&shop_db, &node, both(&ids[..2_048])).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
