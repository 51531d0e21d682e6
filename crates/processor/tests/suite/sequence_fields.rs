//! Fields that draw from the sequences of an application: the rules, and leaders that end before
//! they store a number.

use std::{collections::BTreeMap, num::NonZeroUsize, ops::Range, sync::Arc, time::Duration};

use eventlog::{TrustLevel, Value, WsId};
use isequencer::{SeqId, Sequence, WsKind};
use processor::{
    Application, Command, Declarations, PartitionEnd, Refused, Rejection, RejectionKind, RowChange,
};
use shop::{ShopDatabase, ShopNode, ShopNodeSettings, cud, new_row, qname, text, update};

const TABLES: &str = r#"
[tables."shop.Receipt"]
kind = "WDoc"
fields = { name = "string" }
sequences = { serial = "Receipt" }

[tables."shop.Parcel"]
kind = "CDoc"
sequences = { code = "Parcel", serial = "Receipt" }
"#;

/// The partition of the tests, and workspaces in it.
const PARTITION: u16 = 1;
const SHOPS: [u64; 2] = [1, 11];
const STORE: u64 = 21;

/// Shops have receipts and parcels. Stores have parcels.
fn application(receipts: Range<u64>) -> Application {
    let sequence = |name: &str, id, range| {
        (name.parse().unwrap(), Sequence::within(SeqId(id), range).unwrap())
    };
    let shop = [sequence("Receipt", 256, receipts), sequence("Parcel", 257, 1_000..9_999)];
    let declared = Declarations::new(TABLES.parse().unwrap()).unwrap();
    let declared = declared.with_workspaces("Shop", WsKind(1), shop).unwrap();
    let store = [sequence("Parcel", 256, 70..80)];
    let declared = declared.with_workspaces("Store", WsKind(2), store).unwrap();
    declared.check_number_fields().unwrap();
    Application::new(declared)
}

async fn database(receipts: Range<u64>) -> ShopDatabase {
    let mut shop_db = ShopDatabase::in_memory().await;
    shop_db.application = Arc::new(application(receipts));
    shop_db
}

/// A leader that stores no number before its end.
async fn lead(shop_db: &ShopDatabase) -> ShopNode {
    let mut settings = ShopNodeSettings::at(TrustLevel::Zero);
    let sequencer = &mut settings.partition.sequencer;
    sequencer.flush_delay = Duration::from_secs(3_600);
    sequencer.max_unflushed = NonZeroUsize::new(100_000).unwrap();
    let node = shop_db.node(PARTITION, settings);
    node.ready().await;
    node
}

async fn open(shop_db: &ShopDatabase, node: &ShopNode) {
    for (ws, kind) in SHOPS.map(|ws| (ws, "Shop")).into_iter().chain([(STORE, "Store")]) {
        let create = Command::new(WsId(ws), qname("sys.CreateWorkspace"), shop_db.soon());
        let create = create.with_params(format!("{{\"kind\": \"{kind}\"}}"));
        node.commands.run(create).await.unwrap();
    }
}

fn receipt(raw: u64) -> RowChange {
    new_row(raw, "shop.Receipt", [("name", text("tea"))])
}

/// Creates rows, and returns their sequence fields.
async fn write(
    shop_db: &ShopDatabase,
    node: &ShopNode,
    ws: u64,
    rows: Vec<RowChange>,
) -> Result<Vec<BTreeMap<String, i64>>, Refused> {
    let done = node.commands.run(cud(ws, rows, shop_db.soon())).await?;
    let mut all = Vec::new();
    for (_, id) in done.answer.ids {
        let stored = node.commands.record(WsId(ws), id).await.unwrap().unwrap();
        let numbers = stored.record.fields.iter().filter_map(|(name, value)| match value {
            Value::Int64(number) => Some((name.to_string(), *number)),
            _ => None,
        });
        all.push(numbers.collect());
    }
    Ok(all)
}

/// Creates receipts, and returns their numbers.
async fn receipts(shop_db: &ShopDatabase, node: &ShopNode, ws: u64, count: u64) -> Vec<i64> {
    let rows = (1..=count).map(receipt).collect();
    let written = write(shop_db, node, ws, rows).await.unwrap();
    written.iter().map(|fields| fields["serial"]).collect()
}

async fn rejected(
    shop_db: &ShopDatabase,
    node: &ShopNode,
    ws: u64,
    rows: Vec<RowChange>,
) -> Rejection {
    match write(shop_db, node, ws, rows).await {
        Err(Refused::Rejected(rejection)) => rejection,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_workspace_counts_on_its_own_and_a_kind_has_its_own_sequences() {
    let shop_db = database(1..100).await;
    let node = lead(&shop_db).await;
    open(&shop_db, &node).await;
    assert_eq!(receipts(&shop_db, &node, SHOPS[0], 3).await, [1, 2, 3]);
    assert_eq!(receipts(&shop_db, &node, SHOPS[1], 1).await, [1]);
    let parcel = || vec![new_row(1, "shop.Parcel", [])];
    let written = write(&shop_db, &node, SHOPS[0], parcel()).await.unwrap();
    let expected = [("code".to_owned(), 1_000), ("serial".to_owned(), 4)];
    assert_eq!(written, [BTreeMap::from(expected)]);
    let refused = rejected(&shop_db, &node, STORE, parcel()).await;
    assert_eq!(refused.kind, RejectionKind::Invalid);
    for part in ["the kind `Store`", "no sequence `Receipt`", "`serial` of shop.Parcel"] {
        assert!(refused.message.contains(part), "{part}: {refused}");
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

#[tokio::test]
async fn only_the_system_gives_a_sequence_field_its_value() {
    let shop_db = database(1..100).await;
    let node = lead(&shop_db).await;
    open(&shop_db, &node).await;
    let ws = SHOPS[0];
    let created = node.commands.run(cud(ws, vec![receipt(1)], shop_db.soon())).await.unwrap();
    let (_, id) = created.answer.ids[0];
    let serial = |value: Option<Value>| RowChange::Update {
        id,
        table: None,
        version: None,
        is_active: None,
        fields: [("serial".parse().unwrap(), value.into())].into(),
    };
    for (row, of) in [
        (new_row(1, "shop.Receipt", [("serial", Value::Int64(7))]), "a new row"),
        (serial(Some(Value::Int64(7))), "an update"),
        (serial(None), "an update that empties the field"),
    ] {
        let refused = rejected(&shop_db, &node, ws, vec![receipt(9), row]).await;
        assert_eq!(refused.kind, RejectionKind::Invalid, "{of}");
        let why = "the field `serial` of shop.Receipt gets its value from the sequence \
                   `Receipt`: leave the field out";
        assert_eq!(refused.message, why, "{of}");
    }
    let paid = cud(ws, vec![update(id, None, "paid")], shop_db.soon());
    node.commands.run(paid).await.unwrap();
    let stored = node.commands.record(WsId(ws), id).await.unwrap().unwrap();
    assert_eq!(stored.record.fields["serial"], Value::Int64(1), "an update keeps the number");
    // The refused commands had drawn, and gave their numbers back.
    assert_eq!(receipts(&shop_db, &node, ws, 1).await, [2]);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

#[tokio::test]
async fn a_range_that_is_used_up_refuses_commands_until_it_is_made_longer() {
    let mut shop_db = database(5..8).await;
    let node = lead(&shop_db).await;
    open(&shop_db, &node).await;
    let ws = SHOPS[0];
    let too_many = rejected(&shop_db, &node, ws, (1..=4).map(receipt).collect()).await;
    assert_eq!(too_many.kind, RejectionKind::NoNumber);
    assert_eq!(receipts(&shop_db, &node, ws, 3).await, [5, 6, 7], "all were given back");
    let refused = rejected(&shop_db, &node, ws, vec![receipt(1)]).await;
    assert_eq!(refused.kind, RejectionKind::NoNumber);
    assert_eq!(refused.message, "sequence 256 of workspace 1 has no number after 7");
    assert_eq!(receipts(&shop_db, &node, SHOPS[1], 1).await, [5], "others count on");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    // Whatever the next range is, no number comes again.
    for (range, next) in [(5..9, Some(8)), (1..6, None), (1..100, Some(9)), (50..100, Some(50))] {
        shop_db.application = Arc::new(application(range.clone()));
        let node = lead(&shop_db).await;
        let written = write(&shop_db, &node, ws, vec![receipt(1)]).await;
        let serial = written.ok().map(|fields| fields[0]["serial"]);
        assert_eq!(serial, next, "{range:?}");
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }
}

#[tokio::test]
async fn numbers_that_were_never_stored_are_found_in_the_log() {
    let shop_db = database(1..1_000).await;
    let mut expected = 1..;
    for leader in 0..5 {
        let node = lead(&shop_db).await;
        if leader == 0 {
            open(&shop_db, &node).await;
        }
        let count = usize::try_from(3 + leader).unwrap();
        let wanted: Vec<i64> = expected.by_ref().take(count).collect();
        for ws in SHOPS {
            assert_eq!(receipts(&shop_db, &node, ws, count as u64).await, wanted);
        }
        node.kill();
    }
}
