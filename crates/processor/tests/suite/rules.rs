//! The rules of tables, as commands of clients and of handlers meet them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{Name, RecordId, TrustLevel, Value, WsId};
use futures::future::join_all;
use isequencer::WsKind;
use processor::{
    Application, CommandContext, Declarations, Handler, HandlerError, PartitionEnd, Refused,
    Rejection, RejectionKind, RowChange,
};
use shop::{ShopDatabase, ShopNode, ShopNodeSettings, create_workspace, cud, new_row, qname, text};

pub(crate) const PARTITION: u16 = 1;
pub(crate) const WS: u64 = 1;

/// The tables before anybody thought of a rule.
const WITHOUT_RULES: &str = r#"
[tables."shop.Bill"]
kind = "WDoc"
fields = { customer = "string", cents = "int64", state = "string" }

[tables."shop.Entry"]
kind = "WDoc"
fields = { text = "string" }
"#;

const WITH_RULES: &str = r#"
[tables."shop.Bill"]
kind = "WDoc"
fields.customer = { type = "string", required = true, immutable = true }
fields.cents = { type = "int64", min = 0, default = 7 }
fields.state = { type = "string", one_of = ["open", "paid"] }

[tables."shop.Entry"]
kind = "WDoc"
append_only = true
fields = { text = "string" }
"#;

/// Makes a bill without its customer, and gives it one afterwards if the params have one.
#[derive(Debug)]
struct Issue;

#[async_trait]
impl Handler for Issue {
    async fn run(
        &self,
        params: &Bytes,
        _rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let id = context.write(vec![new_row(1, "shop.Bill", [])]).await?[0].1;
        let (bill, _) = context.get(id).await?.unwrap();
        assert_eq!(bill.fields.get("cents"), Some(&Value::Int64(7)), "it has its default");
        if !params.is_empty() {
            let customer = String::from_utf8_lossy(params).into_owned();
            context.write(vec![change(id, [("customer", Some(text(customer)))])]).await?;
        }
        Ok(Bytes::new())
    }
}

pub(crate) fn change<const N: usize>(
    id: RecordId,
    fields: [(&str, Option<Value>); N],
) -> RowChange {
    let fields = fields.map(|(name, value)| (name.parse::<Name>().unwrap(), value.into())).into();
    RowChange::Update { id, table: None, version: None, is_active: None, fields }
}

pub(crate) fn application(tables: &str) -> Application {
    let declared = Declarations::new(tables.parse().unwrap()).unwrap();
    let declared = declared.with_workspaces("Shop", WsKind(1), []).unwrap();
    Application::new(declared).with_command(qname("shop.Issue"), Issue).unwrap()
}

/// The leader of a program with these tables.
pub(crate) async fn lead(shop_db: &mut ShopDatabase, tables: &str) -> ShopNode {
    shop_db.application = Arc::new(application(tables));
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    node
}

pub(crate) async fn begin(tables: &str) -> (ShopDatabase, ShopNode) {
    let mut shop_db = ShopDatabase::in_memory().await;
    let node = lead(&mut shop_db, tables).await;
    node.commands.run(create_workspace(WS, shop_db.soon())).await.unwrap();
    (shop_db, node)
}

pub(crate) async fn write(
    shop_db: &ShopDatabase,
    node: &ShopNode,
    rows: Vec<RowChange>,
) -> Result<Vec<RecordId>, Rejection> {
    match node.commands.run(cud(WS, rows, shop_db.soon())).await {
        Ok(done) => Ok(done.answer.ids.into_iter().map(|(_, id)| id).collect()),
        Err(Refused::Rejected(rejection)) => Err(rejection),
        Err(refused) => panic!("{refused:?}"),
    }
}

fn bill(customer: &str) -> RowChange {
    new_row(1, "shop.Bill", [("customer", text(customer))])
}

/// A refusal by a rule, with these words.
pub(crate) fn refused<T: std::fmt::Debug>(written: Result<T, Rejection>, why: &str) {
    let rejection = written.unwrap_err();
    assert_eq!((rejection.kind, &*rejection.message), (RejectionKind::Rule, why));
}

pub(crate) async fn field(node: &ShopNode, id: RecordId, name: &str) -> Option<Value> {
    let stored = node.commands.record(WsId(WS), id).await.unwrap().unwrap();
    stored.record.fields.get(name).cloned()
}

#[tokio::test]
async fn a_command_that_breaks_a_rule_writes_nothing_and_says_which() {
    let (shop_db, node) = begin(WITH_RULES).await;
    let rows = vec![bill("Ann"), new_row(2, "shop.Bill", [])];
    let why = "the new record 2: the field `customer` of shop.Bill must have a value";
    refused(write(&shop_db, &node, rows).await, why);
    let ids = write(&shop_db, &node, vec![bill("Ann")]).await.unwrap();
    assert_eq!(field(&node, ids[0], "cents").await, Some(Value::Int64(7)));
    let named = |why: &str| format!("record {}: the field {why}", ids[0].0);
    for (changed, why) in [
        ([("cents", Some(Value::Int64(-1)))], "`cents` of shop.Bill must be at least 0"),
        ([("state", Some(text("lost")))], "`state` of shop.Bill must be one of `open`, `paid`"),
        (
            [("customer", Some(text("Bob")))],
            "`customer` of shop.Bill has a value already, and is immutable",
        ),
        ([("customer", None)], "`customer` of shop.Bill has a value already, and is immutable"),
    ] {
        refused(write(&shop_db, &node, vec![change(ids[0], changed)]).await, &named(why));
    }
    write(&shop_db, &node, vec![change(ids[0], [("customer", Some(text("Ann")))])]).await.unwrap();
    write(&shop_db, &node, vec![change(ids[0], [("cents", None)])]).await.unwrap();
    assert_eq!(field(&node, ids[0], "cents").await, None, "a default is for new records");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

#[tokio::test]
async fn a_record_of_an_append_only_table_is_neither_changed_nor_deactivated() {
    let (shop_db, node) = begin(WITH_RULES).await;
    let entry = new_row(1, "shop.Entry", [("text", text("paid"))]);
    let ids = write(&shop_db, &node, vec![entry]).await.unwrap();
    let why = format!(
        "record {}: the records of shop.Entry cannot change: the table is append-only",
        ids[0].0
    );
    let deactivated = RowChange::Update {
        id: ids[0],
        table: None,
        version: None,
        is_active: Some(false),
        fields: [].into(),
    };
    for row in [change(ids[0], [("text", Some(text("never")))]), deactivated] {
        refused(write(&shop_db, &node, vec![row]).await, &why);
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A handler writes a record in several calls. What the record was in between does not count.
#[tokio::test]
async fn a_handler_is_judged_by_what_it_has_written_at_its_end() {
    let (shop_db, node) = begin(WITH_RULES).await;
    let issue = |customer: &'static str| {
        let command = processor::Command::new(WsId(WS), qname("shop.Issue"), shop_db.soon());
        node.commands.run(command.with_params(customer))
    };
    issue("Ann").await.unwrap();
    let Err(Refused::Rejected(rejection)) = issue("").await else { panic!("it has no customer") };
    assert_eq!(rejection.kind, RejectionKind::Rule, "{rejection}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// Two clients set an empty field that is immutable, in one group.
#[tokio::test]
async fn a_command_is_judged_by_those_before_it_in_its_group() {
    let (mut shop_db, node) = begin(WITHOUT_RULES).await;
    let ids = write(&shop_db, &node, vec![new_row(1, "shop.Bill", [])]).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let node = lead(&mut shop_db, WITH_RULES).await;
    let set = ["Ann", "Bob", "Eve"].map(|customer| {
        write(&shop_db, &node, vec![change(ids[0], [("customer", Some(text(customer)))])])
    });
    let done = join_all(set).await.into_iter().filter(|written| written.is_ok()).count();
    assert_eq!(done, 1);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A leader that repeats an event must not judge it: the rule is newer than the event.
#[tokio::test]
async fn an_old_record_that_breaks_a_new_rule_is_read_and_corrected() {
    let (mut shop_db, node) = begin(WITHOUT_RULES).await;
    let row = new_row(1, "shop.Bill", [("cents", Value::Int64(-5)), ("state", text("lost"))]);
    let ids = write(&shop_db, &node, vec![row]).await.unwrap();
    // It stores no numbers, so the next leader reads the event again.
    node.kill();
    let node = lead(&mut shop_db, WITH_RULES).await;
    assert_eq!(field(&node, ids[0], "state").await, Some(text("lost")));
    let state = |state: &str| vec![change(ids[0], [("state", Some(text(state)))])];
    let why = "the field `state` of shop.Bill must be one of `open`, `paid`";
    refused(write(&shop_db, &node, state("gone")).await, &format!("record {}: {why}", ids[0].0));
    write(&shop_db, &node, state("paid")).await.unwrap();
    assert_eq!(field(&node, ids[0], "cents").await, Some(Value::Int64(-5)));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
