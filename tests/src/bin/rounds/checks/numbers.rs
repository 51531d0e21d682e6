//! Numbers of documents: unique, and without gaps where that is promised.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::{Facts, Found};
use crate::history::{Outcome, Request};

/// The fields of the demo application that the node fills in new rows with a number without gaps:
/// from a gapless series, or from a sequence.
pub(super) const GAPLESS: [(&str, &str); 2] =
    [("shop.Bill", "number"), ("shop.Delivery", "number")];

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = drawn_twice(facts);
    for (ws, events) in &facts.end.logs {
        let mut known = HashSet::new();
        let mut last: BTreeMap<(&str, String), u64> = BTreeMap::new();
        let mut records: HashMap<(&str, String, u64), u64> = HashMap::new();
        for event in events {
            for row in &event.rows {
                let field = GAPLESS.iter().find(|(table, _)| *table == row.table);
                let Some((table, field)) = field.filter(|_| known.insert(row.id)) else { continue };
                let value = &row.fields[*field];
                let Some((period, counter)) = split(value) else {
                    let text =
                        format!("record {} of workspace {ws} has the number {value}", row.id);
                    found.push((text, Vec::new()));
                    continue;
                };
                let first = *records.entry((*table, period.clone(), counter)).or_insert(row.id);
                let last = last.entry((*table, period)).or_default();
                // The numbers before this one may lie in a part that the history does not have.
                let is_wrong = match facts.has_log_until(*ws, event.wlog) {
                    true => counter != *last + 1,
                    false => first != row.id,
                };
                if is_wrong {
                    let text = format!(
                        "{table} {} of workspace {ws} has the number {value} after the counter {last}",
                        row.id
                    );
                    found.push((text, Vec::new()));
                }
                *last = counter;
            }
        }
    }
    found
}

/// The period and the counter of a number such as `INV2026-0042` or 42.
fn split(number: &Value) -> Option<(String, u64)> {
    if let Some(counter) = number.as_u64() {
        return Some((String::new(), counter));
    }
    let (period, counter) = split_text(number.as_str()?)?;
    Some((period.to_owned(), counter))
}

/// The period and the counter of a number such as `INV2026-0042`.
pub(super) fn split_text(number: &str) -> Option<(&str, u64)> {
    let (period, counter) = number.rsplit_once('-')?;
    Some((period, counter.parse().ok()?))
}

fn drawn_twice(facts: &Facts<'_>) -> Found {
    let mut drawn: BTreeMap<(u64, &str, &str), u64> = BTreeMap::new();
    let mut found = Found::new();
    for operation in &facts.operations {
        let (Request::Draw { series, .. }, Outcome::Drawn { numbers }) =
            (&operation.request, &operation.outcome)
        else {
            continue;
        };
        for number in numbers {
            if let Some(first) = drawn.insert((operation.ws, series, number), operation.number) {
                let text = format!("{number} of series {series} was drawn twice");
                found.push((text, vec![first, operation.number]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        checks::testing::{FIRST_ID, Scene, texts},
        history::Row,
    };

    fn bill(scene: &mut Scene, id: u64, number: Value) {
        let fields = json!({"number": number});
        let (id, table) = (FIRST_ID + id, "shop.Bill".into());
        let row = Row { id, table, is_active: true, parent: None, fields };
        scene.event_of("bill", row);
    }

    #[test]
    fn a_gap_and_a_number_twice_are_found() {
        for (second, is_right) in
            [("INV2026-0002", true), ("INV2026-0003", false), ("INV2026-0001", false)]
        {
            let mut scene = Scene::new();
            bill(&mut scene, 0, json!("INV2026-0001"));
            bill(&mut scene, 1, json!(second));
            bill(&mut scene, 1, json!(second));
            assert_eq!(find(&Facts::of(&scene.history)).is_empty(), is_right, "{second}");
        }
    }

    #[test]
    fn without_the_whole_log_only_a_number_twice_is_found() {
        for (second, is_right) in [("INV2026-0003", true), ("INV2026-0002", false)] {
            let mut scene = Scene::new();
            bill(&mut scene, 0, json!("INV2026-0001"));
            bill(&mut scene, 1, json!("INV2026-0002"));
            bill(&mut scene, 2, json!(second));
            scene.log().remove(0);
            scene.unmark();
            assert_eq!(find(&Facts::of(&scene.history)).is_empty(), is_right, "{second}");
        }
    }

    #[test]
    fn a_new_period_begins_again() {
        let mut scene = Scene::new();
        bill(&mut scene, 0, json!("INV2026-0001"));
        bill(&mut scene, 1, json!("INV2027-0001"));
        assert_eq!(find(&Facts::of(&scene.history)), []);
        bill(&mut scene, 2, Value::Null);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("null"));
    }

    #[test]
    fn a_number_that_is_drawn_twice_is_found() {
        let mut scene = Scene::new();
        let mut draw = |number: &str| {
            let request = Request::Draw { series: "order".into(), count: 1 };
            scene.operation(request, Outcome::Drawn { numbers: vec![number.into()] });
            find(&Facts::of(&scene.history))
        };
        assert_eq!(draw("1"), []);
        assert_eq!(draw("2"), []);
        assert_eq!(draw("1")[0].1, [0, 2]);
    }
}
