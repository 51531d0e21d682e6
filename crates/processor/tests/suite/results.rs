//! The most bytes of the result of a command.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{Offset, TrustLevel, WsId};
use isequencer::WsKind;
use processor::{
    Application, Command, CommandContext, Declarations, Handler, HandlerError, MOST_RESULT_BYTES,
    PartitionEnd, Refused, RejectionKind, RowChange,
};
use shop::{ShopDatabase, ShopNodeSettings, create_workspace, qname};

const PARTITION: u16 = 1;
const WS: u64 = 1;

/// Returns as many bytes as its params say.
#[derive(Debug)]
struct ResultHandler;

#[async_trait]
impl Handler for ResultHandler {
    async fn run(
        &self,
        params: &Bytes,
        _: Vec<RowChange>,
        _: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let bytes = std::str::from_utf8(params).unwrap().parse().unwrap();
        Ok(vec![b'1'; bytes].into())
    }
}

/// The answers of a batch were as large as all largest results together, and a sender had no way to
/// lower the limit.
#[tokio::test]
async fn a_sender_lowers_the_limit_of_a_result_and_never_raises_it() {
    let mut shop_db = ShopDatabase::in_memory().await;
    let tables = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\n";
    let declared = Declarations::new(tables.parse().unwrap()).unwrap();
    let declared = declared.with_workspaces("Shop", WsKind(1), []).unwrap();
    let application = Application::new(declared);
    let application = application.with_command(qname("shop.Result"), ResultHandler).unwrap();
    shop_db.application = Arc::new(application);
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    node.commands.run(create_workspace(WS, shop_db.soon())).await.unwrap();
    let largest = MOST_RESULT_BYTES;
    for (most, bytes, room) in [
        (None, largest, None),
        (None, largest + 1, Some(largest)),
        (Some(10), 10, None),
        (Some(10), 11, Some(10)),
        (Some(0), 0, None),
        (Some(0), 1, Some(0)),
        (Some(usize::MAX), largest, None),
        (Some(usize::MAX), largest + 1, Some(largest)),
    ] {
        let command = Command::new(WsId(WS), qname("shop.Result"), shop_db.soon());
        let mut command = command.with_params(bytes.to_string());
        if let Some(most) = most {
            command.most_result_bytes = most;
        }
        match (node.commands.run(command).await, room) {
            (Ok(done), None) => assert_eq!(done.answer.result.len(), bytes, "{most:?}"),
            (Err(Refused::Rejected(refused)), Some(room)) => {
                assert_eq!(refused.kind, RejectionKind::ResultTooLarge);
                let why = format!("has {bytes} bytes, and at most {room} are allowed here");
                assert_eq!(refused.message, format!("the result of shop.Result {why}"));
            }
            (answered, _) => panic!("{most:?}, {bytes} bytes: {answered:?}"),
        }
    }
    // The workspace and the commands that were not refused.
    assert_eq!(node.commands.applied().unwrap(), Offset(1 + 1 + 4));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
