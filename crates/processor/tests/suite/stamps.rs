//! Stamps: the fields that a node fills with the time of the event.

use clock::Clock;
use eventlog::{RecordId, Value};
use processor::{PartitionEnd, RejectionKind};
use shop::{ShopDatabase, ShopNode, create_workspace, new_row, text};

use crate::rules::{WS, change, field, lead, write};

const TABLES: &str = r#"
[tables."shop.Bill"]
kind = "WDoc"
fields.note = "string"
fields.created = { type = "int64", stamp = "created" }
fields.changed = { type = "int64", stamp = "changed" }
fields.month = { type = "string", from = "created", format = "yyyy-MM", zone = "Europe/Berlin" }
fields.day = { type = "string", from = "changed", format = "yyyy/DDD" }
"#;

/// The last hour of April in London, which is in May in Berlin.
const APRIL_30: u64 = 1_367_362_800_000;

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// A clock at this time, in milliseconds since 1970. It goes on.
fn clock_at(millis: u64) -> Clock {
    let now = Clock::system().wall().as_millis();
    Clock::system().with_wall_offset(millis.cast_signed() - now.cast_signed())
}

/// The stamps of a bill: two times in microseconds, and two texts.
async fn stamps(node: &ShopNode, id: RecordId) -> ([u64; 2], [Value; 2]) {
    let stamp = async |name| field(node, id, name).await.unwrap();
    let times = [stamp("created").await, stamp("changed").await].map(|time| match time {
        Value::Int64(time) => time.cast_unsigned(),
        other => panic!("{other:?}"),
    });
    (times, [stamp("month").await, stamp("day").await])
}

/// The events have the stamps, so a leader that reads them again a day later changes nothing.
#[tokio::test]
async fn stamps_have_the_time_of_the_event() {
    let mut shop_db = ShopDatabase::in_memory().await;
    shop_db.clock = clock_at(APRIL_30);
    let node = lead(&mut shop_db, TABLES).await;
    node.commands.run(create_workspace(WS, shop_db.soon())).await.unwrap();
    let id = write(&shop_db, &node, vec![new_row(1, "shop.Bill", [])]).await.unwrap()[0];
    let made = stamps(&node, id).await;
    let ([created, changed], texts) = &made;
    assert_eq!(created, changed);
    let hour = APRIL_30 * 1_000..(APRIL_30 + DAY / 24) * 1_000;
    assert!(hour.contains(created), "{created}");
    assert_eq!(*texts, [text("2013-05"), text("2013/120")]);

    node.kill();
    shop_db.clock = clock_at(APRIL_30 + DAY);
    let node = lead(&mut shop_db, TABLES).await;
    assert_eq!(stamps(&node, id).await, made);
    write(&shop_db, &node, vec![change(id, [("note", Some(text("late")))])]).await.unwrap();
    let ([same, changed], texts) = stamps(&node, id).await;
    assert_eq!(same, *created);
    assert!(changed >= created + (DAY - DAY / 24) * 1_000, "{changed}");
    assert_eq!(texts, [text("2013-05"), text("2013/121")]);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

#[tokio::test]
async fn no_command_gives_a_stamp_its_value() {
    let mut shop_db = ShopDatabase::in_memory().await;
    let node = lead(&mut shop_db, TABLES).await;
    node.commands.run(create_workspace(WS, shop_db.soon())).await.unwrap();
    let id = write(&shop_db, &node, vec![new_row(1, "shop.Bill", [])]).await.unwrap()[0];
    for (name, value) in [("created", Value::Int64(1)), ("month", text("2013-05"))] {
        for row in [
            new_row(1, "shop.Bill", [(name, value.clone())]),
            change(id, [(name, Some(value.clone()))]),
            change(id, [(name, None)]),
        ] {
            let rejection = write(&shop_db, &node, vec![row]).await.unwrap_err();
            assert_eq!(rejection.kind, RejectionKind::Invalid);
            let why = format!(
                "the field `{name}` of shop.Bill gets its value from the time of the event: leave \
                 the field out"
            );
            assert_eq!(rejection.message, why);
        }
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A clock that is a century ahead gave a date without a text.
#[tokio::test]
async fn a_date_that_has_no_text_refuses_its_command() {
    let mut shop_db = ShopDatabase::in_memory().await;
    shop_db.clock = clock_at(4_102_444_800_000);
    let tables = TABLES.replace("yyyy-MM", "yy-MM");
    let node = lead(&mut shop_db, &tables).await;
    node.commands.run(create_workspace(WS, shop_db.soon())).await.unwrap();
    let refused = write(&shop_db, &node, vec![new_row(1, "shop.Bill", [])]).await.unwrap_err();
    assert!(refused.message.starts_with("the field `month` of shop.Bill: "), "{refused}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
