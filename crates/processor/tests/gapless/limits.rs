//! Counters that cannot go on, and definitions that do not fit the counter record.

use eventlog::{RecordId, Value, WsId};
use isequencer::WsKind;
use processor::{
    Application, Declarations, Rejection, RejectionKind, SeriesPolicy,
    docnumbers::{Definition, Overflow, Reset, Series},
};
use shop::ShopNode;

use crate::{
    peeks::no_number,
    rules::rejected,
    scene::{COUNTER, Scene, WS, invoice},
};

/// An application whose invoices have numbers of this series.
pub(crate) fn application(definition: Definition, field_of: &str) -> Application {
    let schema = format!(
        "[tables.\"shop.Invoice\"]\nkind = \"WDoc\"\nfields = {{ name = \"string\" }}\n\
         numbers = {{ number = \"{field_of}\" }}"
    );
    let shop = Declarations::new(schema.parse().unwrap()).unwrap();
    let shop = shop.with_workspaces("Shop", WsKind(1), []).unwrap();
    let gapless = SeriesPolicy::Gapless { counter: COUNTER };
    Application::new(shop.with_series(Series::new(definition).unwrap(), gapless).unwrap())
}

fn daily(zone: &str) -> Definition {
    let zone = zone.to_owned();
    let template = "A{date:yyyy-MM-dd}-{counter:1}";
    Definition { reset: Reset::Day, zone, ..Definition::new("a", template) }
}

/// Stops a leader, and starts another one with another application.
async fn change(scene: &mut Scene, node: &ShopNode, application: Application) -> ShopNode {
    scene.stop(node).await;
    scene.shop_db.application = std::sync::Arc::new(application);
    scene.lead_in(&[]).await
}

#[tokio::test]
async fn a_full_counter_refuses_commands_until_the_next_period() {
    let definition = Definition {
        overflow: Overflow::Error,
        start: 6,
        step: 2,
        reset: Reset::Year,
        ..Definition::new("a", "A{date:yyyy}-{counter:1}")
    };
    let scene = Scene::of(application(definition, "a")).await;
    let node = scene.lead_in(&[WS]).await;
    for number in ["A2026-6", "A2026-8"] {
        assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), [number]);
    }
    for _ in 0..2 {
        let refused = no_number(&scene, &node).await;
        assert_eq!(refused.kind, RejectionKind::NoNumber);
        assert!(refused.message.contains("10 needs more than 1 digits"), "{refused}");
    }
    scene.manual.step_wall(365 * crate::scene::DAY);
    assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["A2027-6"]);
}

#[tokio::test]
async fn a_counter_has_a_last_value() {
    let last = i64::MAX.unsigned_abs() - 1;
    let definition = Definition { start: last, ..Definition::new("a", "A{counter:1}") };
    let scene = Scene::of(application(definition, "a")).await;
    let node = scene.lead_in(&[WS]).await;
    let written = scene.write(&node, WS, vec![invoice(1)]).await;
    assert_eq!(written.unwrap(), ["A9223372036854775806"]);
    let refused = no_number(&scene, &node).await;
    assert_eq!(refused.kind, RejectionKind::NoNumber);
    assert!(refused.message.contains("no next value"), "{refused}");
}

/// A time zone that another zone replaced puts the present moment into an earlier day.
#[tokio::test]
async fn a_period_before_that_of_the_last_number_is_refused() {
    let mut scene = Scene::of(application(daily("Pacific/Kiritimati"), "a")).await;
    let mut node = scene.lead_in(&[WS]).await;
    let written = scene.write(&node, WS, vec![invoice(1)]).await;
    assert_eq!(written.unwrap(), ["A2026-01-01-0"]);
    node = change(&mut scene, &node, application(daily("Pacific/Niue"), "a")).await;
    let refused = no_number(&scene, &node).await;
    assert_eq!(refused.kind, RejectionKind::NoNumber);
    assert!(refused.message.contains("counts the period 2026-01-01"), "{refused}");
    node = change(&mut scene, &node, application(daily("Pacific/Kiritimati"), "a")).await;
    let written = scene.write(&node, WS, vec![invoice(1)]).await;
    assert_eq!(written.unwrap(), ["A2026-01-01-1"]);
    let stored = scene.shop_db.reader().record(WsId(WS), COUNTER).await.unwrap().unwrap();
    assert_eq!(stored.record.fields["next"], Value::Int64(2));
}

#[tokio::test]
async fn a_period_of_another_reset_is_refused() {
    let yearly = || Definition { reset: Reset::Year, ..daily("UTC") };
    for (first, other) in [(daily("UTC"), yearly()), (yearly(), daily("UTC"))] {
        let mut scene = Scene::of(application(first, "a")).await;
        let mut node = scene.lead_in(&[WS]).await;
        scene.write(&node, WS, vec![invoice(1)]).await.unwrap();
        node = change(&mut scene, &node, application(other, "a")).await;
        let refused = no_number(&scene, &node).await;
        assert_eq!(refused.kind, RejectionKind::NoNumber);
        assert!(refused.message.contains("counts the period 2026"), "{refused}");
    }
}

#[tokio::test]
async fn a_counter_record_belongs_to_one_series() {
    let mut scene = Scene::of(application(daily("UTC"), "a")).await;
    let node = scene.lead_in(&[WS]).await;
    scene.write(&node, WS, vec![invoice(1)]).await.unwrap();
    let other = Definition { id: "b".to_owned(), ..daily("UTC") };
    let node = change(&mut scene, &node, application(other, "b")).await;
    let Rejection { kind, message } = no_number(&scene, &node).await;
    assert_eq!(kind, RejectionKind::Internal);
    assert!(message.contains("counts the series `a`"), "{message}");
}

#[tokio::test]
async fn a_field_of_an_unknown_series_makes_no_row() {
    let scene = Scene::of(application(daily("UTC"), "none")).await;
    let node = scene.lead_in(&[WS]).await;
    let refused = rejected(scene.write(&node, WS, vec![invoice(1)]).await);
    assert_eq!(refused.kind, RejectionKind::Internal);
    assert!(refused.message.contains("unknown series `none`"), "{refused}");
    let reader = scene.shop_db.reader();
    let row = reader.record(WsId(WS), RecordId(322_680_000_131_072)).await;
    assert_eq!(row.unwrap(), None);
}
