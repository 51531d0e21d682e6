//! Answered commands are done once, refused ones never, and others at most once.

use std::collections::BTreeMap;

use super::Found;
use crate::history::{Event, History, Outcome, Request, Written};

/// The tries of a command.
#[derive(Default)]
struct Tries<'h> {
    ws: u64,
    answers: Vec<&'h Written>,
    is_open: bool,
    operations: Vec<u64>,
}

pub(super) fn find(history: &History) -> Found {
    let events = history.events_by_request();
    let tries = tries(history);
    let mut found = Found::new();
    for (id, tries) in &tries {
        let done = events.get(id).map_or(&[][..], Vec::as_slice);
        for text in disagreements(id, tries, done) {
            found.push((text, tries.operations.clone()));
        }
    }
    for (id, done) in events.iter().filter(|(id, _)| !tries.contains_key(*id)) {
        let (ws, event) = done[0];
        let text =
            format!("no client sent command {id:?} of event {} of workspace {ws}", event.wlog);
        found.push((text, Vec::new()));
    }
    found
}

fn tries(history: &History) -> BTreeMap<&str, Tries<'_>> {
    let mut commands: BTreeMap<&str, Tries<'_>> = BTreeMap::new();
    for operation in &history.operations {
        let Request::Write { id, .. } = &operation.request else { continue };
        let tries = commands.entry(id).or_default();
        tries.ws = operation.ws;
        tries.operations.push(operation.number);
        match &operation.outcome {
            Outcome::Written(written) => tries.answers.push(written),
            Outcome::Refused { .. } => {}
            _ => tries.is_open = true,
        }
    }
    commands
}

fn disagreements(id: &str, tries: &Tries<'_>, done: &[(u64, &Event)]) -> Vec<String> {
    let mut wrong = Vec::new();
    if done.len() > 1 {
        wrong.push(format!("command {id:?} has {} events", done.len()));
    }
    if let Some((ws, _)) = done.iter().find(|(ws, _)| *ws != tries.ws) {
        wrong.push(format!(
            "command {id:?} of workspace {} has an event in workspace {ws}",
            tries.ws
        ));
    }
    if tries.answers.is_empty() && !tries.is_open && !done.is_empty() {
        wrong.push(format!("command {id:?} was refused, and has an event"));
    }
    for written in &tries.answers {
        let is_named = |(_, event): &(u64, &Event)| {
            event.wlog == written.wlog && event.version == written.version
        };
        if !done.iter().any(is_named) {
            wrong
                .push(format!("command {id:?} was answered as {written:?}, and has no such event"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{Scene, texts};

    #[test]
    fn right_answers_are_accepted() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.refused("b");
        scene.unknown("c", true);
        scene.unknown("d", false);
        assert_eq!(find(&scene.history), []);
    }

    #[test]
    fn an_acknowledged_command_without_an_event_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("lost");
        scene.log().pop();
        assert!(texts(find(&scene.history))[0].contains("has no such event"));
    }

    #[test]
    fn a_command_that_was_applied_twice_is_found() {
        for id in ["acknowledged", "open"] {
            let mut scene = Scene::new();
            match id {
                "open" => scene.unknown(id, true),
                _ => drop(scene.create(id)),
            }
            let again = scene.log()[0].clone();
            scene.append(again);
            assert!(texts(find(&scene.history))[0].contains("has 2 events"));
        }
    }

    #[test]
    fn a_refused_command_with_an_event_is_found() {
        let mut scene = Scene::new();
        scene.unknown("refused", true);
        scene.history.operations.clear();
        scene.refused("refused");
        assert!(texts(find(&scene.history))[0].contains("was refused, and has an event"));
    }

    #[test]
    fn an_event_that_nobody_sent_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.history.operations.clear();
        assert!(texts(find(&scene.history))[0].contains("no client sent"));
    }
}
