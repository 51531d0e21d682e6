//! A handler that drops the future of a write.

use eventlog::{RecordId, WsId};
use processor::{
    Command, CommandContext, Handler, HandlerError, RejectionKind, RowChange, async_trait,
    bytes::Bytes, docnumbers::Definition,
};
use shop::{qname, update};

use crate::{
    limits::application,
    rules::rejected,
    scene::{Scene, WS, invoice},
};

/// The first row of the workspace.
const FIRST: RecordId = RecordId(322_680_000_131_072);

/// Writes a new row and changes another one. If the write does not end soon, the handler drops it
/// and goes on.
#[derive(Debug)]
struct DroppingHandler;

#[async_trait]
impl Handler for DroppingHandler {
    async fn run(
        &self,
        _params: &Bytes,
        _rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let soon = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            written = context.write(vec![invoice(1), update(FIRST, None, "Ben")]) => drop(written?),
            () = soon => {}
        }
        Ok(Bytes::new())
    }
}

/// The event of such a command would have a part of its rows: here the first row with its number,
/// and not the change of the second one.
#[tokio::test]
async fn a_command_fails_if_its_handler_drops_a_write() {
    let shop = application(Definition::new("a", "A{counter:1}"), "a");
    let scene = Scene::of(shop.with_command(qname("shop.Drop"), DroppingHandler).unwrap()).await;
    let node = scene.lead_in(&[WS]).await;
    assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["A0"]);
    let drops = || Command::new(WsId(WS), qname("shop.Drop"), scene.shop_db.soon());
    // The counter record is in memory, and the read of the second row hangs.
    scene.faults.crash_after(0, 0);
    let refused = rejected(scene.run(&node, drops()).await);
    assert!(scene.faults.has_crashed(), "no read hung");
    assert_eq!(refused.kind, RejectionKind::Internal, "{refused}");
    assert!(refused.message.contains("went on after rows could not be written"), "{refused}");
    scene.faults.crash_after(u64::MAX, 0);
    scene.run(&node, drops()).await.unwrap();
    let written = scene.write(&node, WS, vec![invoice(1)]).await.unwrap();
    assert_eq!(written, ["A2"], "the command that failed drew no number");
    let changed = scene.shop_db.reader().record(WsId(WS), FIRST).await.unwrap().unwrap();
    assert_eq!(changed.record.fields["name"], shop::text("Ben"));
}
