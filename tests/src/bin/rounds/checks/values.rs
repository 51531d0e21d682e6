//! The event of a command has the values that the command sent, and the ids of its answer.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    Found,
    facts::{Command, Facts, could_be},
    numbers::GAPLESS,
};
use crate::history::{CommandId, Event, Parent, Row, SentRow};

/// The records that count gapless numbers. The system writes them.
const COUNTERS: &str = "sys.NumberCounter";

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    for (id, command) in &facts.commands {
        for (ws, event) in &command.events {
            let compared = Compared::of(command, event);
            for text in compared.differences(facts, *ws) {
                found.push((text_of(id, *ws, event, &text), command.numbers()));
            }
        }
    }
    found
}

/// The ids of the records that a command made by an event.
pub(super) fn made(command: &Command<'_>, event: &Event) -> Vec<u64> {
    let pairs = Compared::of(command, event).pairs.into_iter();
    pairs.filter_map(|(sent, row)| row.filter(|_| sent.is_new()).map(|row| row.id)).collect()
}

fn text_of(id: &CommandId<'_>, ws: u64, event: &Event, text: &str) -> String {
    format!("command {id}, event {} of workspace {ws}: {text}", event.wlog)
}

/// A command beside its event.
struct Compared<'c> {
    command: &'c Command<'c>,
    event: &'c Event,
    /// The rows that were sent, with those of the event.
    pairs: Vec<(&'c SentRow, Option<&'c Row>)>,
    /// The rows of the event that were not sent.
    others: Vec<&'c Row>,
}

impl<'c> Compared<'c> {
    /// Finds the row of each sent row: by its id, or for new rows by the table, in the order of the
    /// ids.
    fn of(command: &'c Command<'c>, event: &'c Event) -> Compared<'c> {
        let mut others: Vec<&Row> =
            event.rows.iter().filter(|row| !row.table.starts_with(COUNTERS)).collect();
        others.sort_by_key(|row| row.id);
        let mut sent: Vec<&SentRow> = command.rows.iter().collect();
        sent.sort_by_key(|sent| (sent.is_new(), sent.id));
        let mut pairs = Vec::new();
        for sent in sent {
            let is_of = |row: &&Row| match sent.is_new() {
                true => row.table == sent.table,
                false => row.id == sent.id,
            };
            let row = others.iter().position(is_of).map(|at| others.remove(at));
            pairs.push((sent, row));
        }
        Compared { command, event, pairs, others }
    }

    fn differences(&self, facts: &Facts<'_>, ws: u64) -> Vec<String> {
        let mut wrong = Vec::new();
        let new = self.pairs.iter().filter(|(sent, _)| sent.is_new());
        let ids: HashMap<u64, u64> =
            new.filter_map(|(sent, row)| Some((sent.id, (*row)?.id))).collect();
        for (sent, row) in &self.pairs {
            let Some(row) = row else {
                wrong.push(format!("it lacks the row {sent:?}"));
                continue;
            };
            // The fields that were not sent are those of the event before.
            let has_before = sent.is_new() || facts.has_log_until(ws, self.event.wlog);
            if !has_before && sent.table == row.table && could_be(sent, row) {
                continue;
            }
            let record = facts.records.get(&(ws, row.id));
            let before = record.and_then(|record| record.before(self.event.version));
            let expected = expected(sent, row.id, &ids, before.map(|(_, row)| row));
            if !is_equal(row, &expected, before.is_none()) {
                wrong.push(format!("it has {row:?} in place of {expected:?}"));
            }
        }
        wrong.extend(self.others.iter().map(|row| format!("it has {row:?}, which was not sent")));
        let mut ids: Vec<(u64, u64)> = ids.into_iter().collect();
        ids.sort_unstable();
        for (operation, written) in self.command.answers() {
            if written.ids != ids {
                wrong.push(format!(
                    "the answer of operation {} names the ids {:?}, and the new records are {ids:?}",
                    operation.number, written.ids
                ));
            }
        }
        wrong
    }
}

/// The row that a sent row makes of the record before it.
fn expected(sent: &SentRow, id: u64, ids: &HashMap<u64, u64>, before: Option<&Row>) -> Row {
    let mut fields = before.and_then(|row| row.fields.as_object()).cloned().unwrap_or_default();
    for (name, value) in sent.fields.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    let parent = sent.parent.clone().map(|Parent { id, container }| {
        let id = ids.get(&id).copied().unwrap_or(id);
        Parent { id, container }
    });
    Row {
        id,
        table: sent.table.clone(),
        is_active: sent.is_active.unwrap_or_else(|| before.is_none_or(|row| row.is_active)),
        parent: parent.or_else(|| before.and_then(|row| row.parent.clone())),
        fields: Value::Object(fields),
    }
}

/// Whether a row is the expected one. A new row also has the fields that the node fills.
fn is_equal(row: &Row, expected: &Row, is_new: bool) -> bool {
    let mut row = row.clone();
    if let Some(fields) = row.fields.as_object_mut().filter(|_| is_new) {
        let filled = GAPLESS.iter().filter(|(table, _)| *table == expected.table);
        filled.for_each(|(_, field)| drop(fields.remove(*field)));
    }
    row == *expected
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        checks::testing::{Scene, texts},
        history::Outcome,
    };

    fn found(scene: &Scene) -> Vec<String> {
        texts(find(&Facts::of(&scene.history)))
    }

    fn changed() -> Scene {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.bill("b");
        scene.update("c", id, None);
        assert_eq!(found(&scene), [""; 0]);
        scene
    }

    #[test]
    fn a_value_that_was_not_sent_is_found() {
        for event in [0, 2] {
            let mut scene = changed();
            scene.log()[event].rows[0].fields["name"] = "torn".into();
            assert!(found(&scene)[0].contains("in place of"), "{event}");
        }
    }

    #[test]
    fn a_change_that_forgets_or_adds_a_field_is_found() {
        let mut scene = changed();
        scene.log()[2].rows[0].fields = json!({"name": "c"});
        assert!(found(&scene)[0].contains("in place of"));
        let mut scene = changed();
        scene.log()[0].rows[0].fields["number"] = 1.into();
        assert!(found(&scene)[0].contains("in place of"));
    }

    #[test]
    fn fields_of_an_event_that_the_history_does_not_have_are_not_missed() {
        let mut scene = changed();
        scene.log().remove(0);
        assert!(found(&scene)[0].contains("in place of"));
        scene.unmark();
        assert_eq!(found(&scene), [""; 0]);
        scene.log()[1].rows[0].fields["name"] = "torn".into();
        assert!(found(&scene)[0].contains("in place of"));
    }

    #[test]
    fn a_row_of_another_table_parent_or_state_is_found() {
        let mut scene = changed();
        scene.log()[0].rows[0].is_active = false;
        assert!(found(&scene)[0].contains("in place of"));
        let mut scene = changed();
        scene.log()[1].rows[2].parent = None;
        assert!(found(&scene)[0].contains("in place of"));
        let mut scene = changed();
        scene.log()[1].rows[2].table = "shop.Other".into();
        assert!(found(&scene).iter().any(|text| text.contains("it lacks the row")));
        assert!(found(&scene).iter().any(|text| text.contains("which was not sent")));
    }

    #[test]
    fn an_answer_with_other_ids_than_its_event_is_found() {
        for wrong in [vec![], vec![(1, 7)], vec![(2, 7)]] {
            let mut scene = changed();
            let Outcome::Written(written) = &mut scene.history.operations[0].outcome else {
                unreachable!()
            };
            written.ids = wrong;
            assert!(found(&scene)[0].contains("names the ids"));
        }
    }
}
