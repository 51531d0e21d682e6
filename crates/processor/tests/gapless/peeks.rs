//! Peeks: the number that a command would draw.

use eventlog::WsId;
use processor::{Busy, Refused, Rejection, SeriesPolicy, docnumbers::DocNumber};
use shop::ShopNode;

use crate::{
    rules::rejected,
    scene::{DAY, LEVELS, Scene, WS, invoice, wrong_row},
};

/// Peeks into the series of the invoices.
async fn peek(scene: &Scene, node: &ShopNode) -> Result<DocNumber, Refused> {
    let series = scene.shop_db.application.declarations().series();
    let mut gapless = series.filter_map(|declared| match declared.policy {
        SeriesPolicy::Gapless { counter } => Some((&declared.series, counter)),
        SeriesPolicy::Fast(_) => None,
    });
    let (series, counter) = gapless.next().unwrap();
    scene.in_time(node.commands.peek_number(WsId(WS), series, counter)).await
}

/// Peeks twice, and then draws the number.
async fn peek_and_draw(scene: &Scene, node: &ShopNode, number: &str) {
    for _ in 0..2 {
        assert_eq!(peek(scene, node).await.unwrap().text, number, "peeked");
    }
    assert_eq!(scene.write(node, WS, vec![invoice(1)]).await.unwrap(), [number], "drawn");
}

/// The rejection of a command that draws a number. A peek is refused for the same reason.
pub(crate) async fn no_number(scene: &Scene, node: &ShopNode) -> Rejection {
    let peeked = rejected(peek(scene, node).await);
    let drawn = rejected(scene.write(node, WS, vec![invoice(1)]).await);
    assert_eq!(peeked, drawn);
    drawn
}

/// The clock went back after an event of the next year. The peek showed the first number of the
/// year before, and commands drew numbers of the next year.
#[tokio::test]
async fn a_peek_has_the_time_of_the_next_event() {
    for level in LEVELS {
        let scene = Scene::new(level, 0).await;
        let mut node = scene.lead_in(&[WS]).await;
        peek_and_draw(&scene, &node, "INV2026-0001").await;
        scene.manual.step_wall(365 * DAY);
        peek_and_draw(&scene, &node, "INV2027-0001").await;
        scene.manual.step_wall(-300 * DAY);
        peek_and_draw(&scene, &node, "INV2027-0002").await;
        // The next leader has a clock that is behind.
        scene.stop(&node).await;
        scene.manual.step_wall(-20 * DAY);
        node = scene.lead_in(&[]).await;
        peek_and_draw(&scene, &node, "INV2027-0003").await;
        // A command that fails makes no event, and later events are not before its time.
        scene.manual.step_wall(800 * DAY);
        scene.write(&node, WS, vec![wrong_row(1)]).await.unwrap_err();
        scene.manual.step_wall(-800 * DAY);
        peek_and_draw(&scene, &node, "INV2028-0001").await;
        scene.end(&node).await;
    }
}

/// A peek before the end of the recovery would show a number that an event of the log has.
#[tokio::test]
async fn a_peek_waits_for_the_recovery() {
    let scene = Scene::new(LEVELS[0], 0).await;
    let node = scene.lead();
    let early = peek(&scene, &node).await;
    assert!(matches!(early, Err(Refused::Busy(Busy::Recovering(_)))), "{early:?}");
    scene.in_time(node.ready()).await;
    assert_eq!(peek(&scene, &node).await.unwrap().text, "INV2026-0001");
    scene.end(&node).await;
}
