//! Records that one command writes twice.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{RecordId, TrustLevel, Value, WsId};
use processor::{
    Application, Command, CommandContext, FieldChange, Handler, HandlerError, PartitionEnd,
    Refused, Rejection, RejectionKind, RowChange,
};
use shop::{
    ShopDatabase, ShopNode, ShopNodeSettings, create_workspace, cud, new_row, qname, shop, text,
    update,
};

const PARTITION: u16 = 1;
const WS: u64 = 1;

/// Sells the articles in its params, one of each, and writes what is left of them.
#[derive(Debug)]
struct SellHandler {
    /// Whether the handler collects the changes, and writes them all in one call.
    writes_at_the_end: bool,
}

#[async_trait]
impl Handler for SellHandler {
    async fn run(
        &self,
        params: &Bytes,
        _rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let mut collected = Vec::new();
        for id in String::from_utf8_lossy(params).split(' ') {
            let id = RecordId(id.parse().unwrap());
            let (article, _) = context.get(id).await?.unwrap();
            let Some(Value::Int64(left @ 1..)) = article.fields.get("left") else {
                return Err(Rejection::conflict(format!("article {} is sold out", id.0)).into());
            };
            collected.push(leave(id, left - 1));
            if !self.writes_at_the_end {
                context.write(std::mem::take(&mut collected)).await?;
            }
        }
        context.write(collected).await?;
        Ok(Bytes::new())
    }
}

fn leave(id: RecordId, left: i64) -> RowChange {
    RowChange::Update {
        id,
        table: None,
        version: None,
        is_active: None,
        fields: [("left".parse().unwrap(), FieldChange::Set(Value::Int64(left)))].into(),
    }
}

/// A shop that also has the commands `shop.Sell` and `shop.SellAtTheEnd`, and its leader.
async fn lead() -> (ShopDatabase, ShopNode) {
    let mut shop_db = ShopDatabase::in_memory().await;
    let application = Arc::try_unwrap(shop()).map(|shop: Application| {
        let shop = shop.with_command(qname("shop.Sell"), SellHandler { writes_at_the_end: false });
        let at_the_end = SellHandler { writes_at_the_end: true };
        shop.unwrap().with_command(qname("shop.SellAtTheEnd"), at_the_end).unwrap()
    });
    shop_db.application = Arc::new(application.unwrap());
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    node.commands.run(create_workspace(WS, shop_db.soon())).await.unwrap();
    (shop_db, node)
}

/// Creates an article, of which `left` are left.
async fn article(shop_db: &ShopDatabase, node: &ShopNode, left: i64) -> RecordId {
    let row = new_row(1, "shop.Article", [("left", Value::Int64(left))]);
    node.commands.run(cud(WS, vec![row], shop_db.soon())).await.unwrap().answer.ids[0].1
}

async fn left(node: &ShopNode, id: RecordId) -> Option<Value> {
    let stored = node.commands.record(WsId(WS), id).await.unwrap().unwrap();
    stored.record.fields.get("left").cloned()
}

async fn rejected(node: &ShopNode, command: Command) -> Rejection {
    match node.commands.run(command).await {
        Err(Refused::Rejected(rejection)) => rejection,
        other => panic!("{other:?}"),
    }
}

/// Two rows of one command changed the same record. The last one won for each field, and nobody
/// learned of it.
#[tokio::test]
async fn a_record_in_two_rows_of_a_command_is_refused() {
    let (shop_db, node) = lead().await;
    let id = article(&shop_db, &node, 1).await;
    let second = RecordId(id.0 + 1);
    for (rows, named) in [
        (vec![update(id, None, "a"), update(id, None, "b")], id),
        (vec![update(id, None, "a"), leave(id, 5)], id),
        (vec![update(id, None, "a"), new_row(1, "shop.Bill", []), update(id, None, "b")], id),
        // The new row has the id that the refused commands gave back.
        (vec![new_row(1, "shop.Article", []), update(RecordId(1), None, "b")], second),
        (vec![update(RecordId(1), None, "b"), new_row(1, "shop.Article", [])], second),
        (
            vec![new_row(1, "shop.Settings", []), update(RecordId(65_600), None, "b")],
            RecordId(65_600),
        ),
    ] {
        let refused = rejected(&node, cud(WS, rows.clone(), shop_db.soon())).await;
        assert_eq!(refused.kind, RejectionKind::Invalid, "{rows:?}: {refused}");
        let why = format!(
            "record {} is in two rows that are written together, and it is not clear which counts: \
             send all its fields in one row, and add up its numbers",
            named.0
        );
        assert_eq!(refused.message, why, "{rows:?}");
    }
    let both = vec![leave(id, 3), new_row(1, "shop.Article", [("name", text("b"))])];
    node.commands.run(cud(WS, both, shop_db.soon())).await.unwrap();
    assert_eq!(left(&node, id).await, Some(Value::Int64(3)), "other records do not count");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A sale has the same article on two lines. Its handler read the article before both writes, and
/// wrote twice that nothing is left: the only article was sold to two buyers.
///
/// A handler that writes after each line reads its own writes, and one that writes all lines
/// together is refused.
#[tokio::test]
async fn a_sale_with_the_same_article_on_two_lines_never_sells_it_twice() {
    let (shop_db, node) = lead().await;
    let id = article(&shop_db, &node, 1).await;
    let other = article(&shop_db, &node, 2).await;
    let sell = |command: &str, ids: &[RecordId]| {
        let ids: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
        Command::new(WsId(WS), qname(command), shop_db.soon()).with_params(ids.join(" "))
    };
    let refused = rejected(&node, sell("shop.Sell", &[id, id])).await;
    assert_eq!(refused.message, format!("article {} is sold out", id.0));
    let refused = rejected(&node, sell("shop.SellAtTheEnd", &[id, id])).await;
    assert!(refused.message.starts_with(&format!("record {} is in two rows", id.0)), "{refused}");
    let refused = rejected(&node, sell("shop.SellAtTheEnd", &[other, other])).await;
    assert_eq!(refused.kind, RejectionKind::Invalid, "also if there are enough");
    for (article, before) in [(id, 1), (other, 2)] {
        assert_eq!(left(&node, article).await, Some(Value::Int64(before)), "nothing is sold");
    }
    node.commands.run(sell("shop.Sell", &[other, id, other])).await.unwrap();
    for article in [id, other] {
        assert_eq!(left(&node, article).await, Some(Value::Int64(0)), "all are sold");
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
