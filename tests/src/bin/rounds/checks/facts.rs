//! What all checks know of a history: the commands with their tries and events, and the versions of
//! the records. A check run finds these facts once.

use std::collections::{BTreeMap, HashMap};

use super::versions::{self, RecordVersions};
use crate::history::{
    Change, CommandId, Event, FinalState, History, Operation, Outcome, Part, RecordKey, Request,
    Row, SentRow, Written,
};

/// The facts of a history, or of a part of its operations.
pub(crate) struct Facts<'h> {
    pub(super) operations: Vec<&'h Operation>,
    pub(super) end: &'h FinalState,
    pub(super) commands: BTreeMap<CommandId<'h>, Command<'h>>,
    /// The commands of events, by workspace and offset.
    pub(super) of_event: HashMap<(u64, u64), CommandId<'h>>,
    pub(super) records: BTreeMap<RecordKey, RecordVersions<'h>>,
    logs: HashMap<u64, LogPlaces>,
    /// For each workspace, when events were known to be applied, by the places of the events in the
    /// log.
    known: HashMap<u64, Vec<Known>>,
}

/// When a client knew that an event is applied, from the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) at: u64,
    pub(super) operation: u64,
}

/// The places of the events in the log of a workspace.
struct LogPlaces {
    /// By the offsets of the events. A log with an offset twice has the first place.
    of_offset: HashMap<u64, usize>,
    /// All events up to this offset are in the history.
    dense_until: u64,
    /// The highest offset.
    end: u64,
}

impl LogPlaces {
    fn of(log: &[Event]) -> LogPlaces {
        let mut of_offset = HashMap::new();
        for (place, event) in log.iter().enumerate() {
            of_offset.entry(event.wlog).or_insert(place);
        }
        let dense = (1..).zip(log).take_while(|(offset, event)| event.wlog == *offset);
        let dense_until = dense.map(|(offset, _)| offset).last().unwrap_or(0);
        let end = log.iter().map(|event| event.wlog).max().unwrap_or(0);
        LogPlaces { of_offset, dense_until, end }
    }
}

/// A command with all its tries.
pub(super) struct Command<'h> {
    pub(super) ws: u64,
    pub(super) has_key: bool,
    pub(super) change: &'h Change,
    pub(super) rows: &'h [SentRow],
    pub(super) tries: Vec<&'h Operation>,
    /// The events with their workspaces. One, if the node is right.
    pub(super) events: Vec<(u64, &'h Event)>,
}

/// When an event happened, as far as its clients know.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTime {
    /// When the first try that was not refused was sent.
    pub(super) begin: u64,
    /// When the first answer came. [`u64::MAX`] if none came.
    pub(super) end: u64,
    /// The number of the operation that ended then, or of a try without an answer.
    pub(super) operation: u64,
}

impl<'h> Facts<'h> {
    pub(crate) fn of(history: &'h History) -> Facts<'h> {
        Facts::of_part(history.operations.iter().collect(), &history.end)
    }

    pub(crate) fn of_part(operations: Vec<&'h Operation>, end: &'h FinalState) -> Facts<'h> {
        let commands = commands(&operations);
        let logs = end.logs.iter().map(|(ws, log)| (*ws, LogPlaces::of(log))).collect();
        let known = known(&operations, end, &logs);
        let (of_event, records) = (HashMap::new(), BTreeMap::new());
        let mut facts = Facts { operations, end, commands, of_event, records, logs, known };
        facts.add_events();
        facts.records = versions::records(&facts);
        facts
    }

    /// The time of an event, if a client sent its command.
    pub(super) fn time_of(&self, ws: u64, event: &Event) -> Option<EventTime> {
        let command = self.of_event.get(&(ws, event.wlog))?;
        Some(self.commands.get(command)?.time())
    }

    /// When an event was first known to be applied: by its own answer, by that of a later event, or
    /// by a read of the log. `None` if no client ever knew.
    pub(super) fn known_by(&self, ws: u64, event: &Event) -> Option<Known> {
        let place = *self.logs.get(&ws)?.of_offset.get(&event.wlog)?;
        self.known.get(&ws)?.get(place).copied().filter(|known| known.at < u64::MAX)
    }

    /// The event of the final log of a workspace at an offset.
    pub(super) fn event_at(&self, ws: u64, offset: u64) -> Option<&'h Event> {
        let place = *self.logs.get(&ws)?.of_offset.get(&offset)?;
        self.end.logs.get(&ws)?.get(place)
    }

    /// The highest offset of the events of a final log. 0 if there are none.
    pub(super) fn log_end(&self, ws: u64) -> u64 {
        self.logs.get(&ws).map_or(0, |log| log.end)
    }

    /// Whether the history has all of the log of a workspace.
    pub(super) fn has_log(&self, ws: u64) -> bool {
        self.end.is_whole(Part::Log(ws))
    }

    /// Whether the history has all events of a workspace up to an offset: its log is whole, or the
    /// events follow each other from the first one on.
    pub(super) fn has_log_until(&self, ws: u64, offset: u64) -> bool {
        self.has_log(ws) || self.logs.get(&ws).is_some_and(|log| log.dense_until >= offset)
    }

    fn add_events(&mut self) {
        let mut by_request: HashMap<&str, Vec<CommandId<'h>>> = HashMap::new();
        for id in self.commands.keys() {
            by_request.entry(id.request).or_default().push(*id);
        }
        let end: &'h FinalState = self.end;
        for (ws, events) in &end.logs {
            for event in events {
                let ids = by_request.get(&*event.request).map_or(&[][..], Vec::as_slice);
                let Some(id) = self.sender_of(ids, event) else { continue };
                self.of_event.insert((*ws, event.wlog), id);
                if let Some(command) = self.commands.get_mut(&id) {
                    command.events.push((*ws, event));
                }
            }
        }
    }

    /// The command of an event, of the commands with its request id. The commands of a batch differ
    /// in what they send.
    fn sender_of(&self, ids: &[CommandId<'h>], event: &Event) -> Option<CommandId<'h>> {
        if let [id @ CommandId { place: None, .. }] = ids {
            return Some(*id);
        }
        let fits = |id: &&CommandId<'h>| {
            self.commands.get(id).is_some_and(|command| command.could_make(event))
        };
        let is_free = |id: &&CommandId<'h>| {
            self.commands.get(id).is_some_and(|command| command.events.is_empty())
        };
        let free = ids.iter().filter(is_free).find(fits);
        free.or_else(|| ids.iter().find(fits)).copied()
    }
}

/// The first moments of all workspaces, by the places of the events in the logs.
///
/// A leader answers a command, and shows an event of a log, when it has applied the event and all
/// events before it. So what a client saw of an event holds for the events before it, too. This
/// counts only if the final log has the event that was seen. At level 2 the event of a former
/// leader may be lost, and nothing follows from its answer for the event that took its place. An
/// event that stayed was applied at any level: by its own leader, or by a later one before that
/// leader took commands.
fn known(
    operations: &[&Operation],
    end: &FinalState,
    logs: &HashMap<u64, LogPlaces>,
) -> HashMap<u64, Vec<Known>> {
    let mut known: HashMap<u64, Vec<Option<Known>>> = HashMap::new();
    for operation in operations {
        let (wlog, version) = match &operation.outcome {
            Outcome::Written(written) => (written.wlog, written.version),
            Outcome::Events { events } => match events.last() {
                Some(event) => (event.wlog, event.version),
                None => continue,
            },
            _ => continue,
        };
        let ws = &operation.ws;
        let (Some(log), Some(places)) = (end.logs.get(ws), logs.get(ws)) else { continue };
        let Some(place) = places.of_offset.get(&wlog).copied() else { continue };
        if log[place].version != version {
            continue;
        }
        let known = known.entry(*ws).or_insert_with(|| vec![None; log.len()]);
        let this = Known { at: operation.end, operation: operation.number };
        if known[place].is_none_or(|known| known.at > this.at) {
            known[place] = Some(this);
        }
    }
    known.into_iter().map(|(ws, known)| (ws, first_from_end(&known))).collect()
}

/// For each place, the first moment of this or any later place.
fn first_from_end(known: &[Option<Known>]) -> Vec<Known> {
    let mut first = Known { at: u64::MAX, operation: 0 };
    let mut from_end: Vec<Known> = known
        .iter()
        .rev()
        .map(|known| {
            first = known.filter(|known| known.at < first.at).unwrap_or(first);
            first
        })
        .collect();
    from_end.reverse();
    from_end
}

fn commands<'h>(operations: &[&'h Operation]) -> BTreeMap<CommandId<'h>, Command<'h>> {
    let mut commands: BTreeMap<CommandId<'h>, Command<'h>> = BTreeMap::new();
    for operation in operations {
        let Request::Write { id, has_key, place, change, rows } = &operation.request else {
            continue;
        };
        let command = CommandId { request: id, place: *place };
        let command = commands.entry(command).or_insert_with(|| Command {
            ws: operation.ws,
            has_key: *has_key,
            change,
            rows,
            tries: Vec::new(),
            events: Vec::new(),
        });
        command.tries.push(operation);
    }
    commands
}

impl<'h> Command<'h> {
    /// The numbers of the tries.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.tries.iter().map(|operation| operation.number).collect()
    }

    /// The tries that were answered as done.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&'h Operation, &'h Written)> {
        self.tries.iter().filter_map(|operation| match &operation.outcome {
            Outcome::Written(written) => Some((*operation, written)),
            _ => None,
        })
    }

    /// A refused try has no effect, so an effect begins with another try at the earliest.
    fn time(&self) -> EventTime {
        let refused = |of: &&&Operation| matches!(of.outcome, Outcome::Refused { .. });
        let begin = self.tries.iter().filter(|of| !refused(of)).map(|of| of.begin).min();
        let first = self.tries.iter().map(|of| of.begin).min();
        let answered = self.answers().map(|(of, _)| (of.end, of.number)).min();
        let (end, operation) =
            answered.unwrap_or((u64::MAX, self.tries.first().map_or(0, |of| of.number)));
        EventTime { begin: begin.or(first).unwrap_or(0), end, operation }
    }

    /// Whether an event has rows for everything that the command sent.
    fn could_make(&self, event: &Event) -> bool {
        self.rows.iter().all(|sent| event.rows.iter().any(|row| could_be(sent, row)))
    }
}

/// Whether a row has what a sent row has.
pub(super) fn could_be(sent: &SentRow, row: &Row) -> bool {
    let is_of = if sent.is_new() { sent.table == row.table } else { sent.id == row.id };
    let has = |(name, value): (&String, &serde_json::Value)| {
        value.is_null() || row.fields[name.as_str()] == *value
    };
    is_of
        && sent.is_active.is_none_or(|is_active| is_active == row.is_active)
        && sent.fields.as_object().is_none_or(|fields| fields.iter().all(has))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        answers,
        testing::{FIRST_ID, Scene, WS, article, create, texts},
    };

    /// A batch of two commands without an answer, with the events of some of them.
    fn batch(events: &[&str]) -> Scene {
        let mut scene = Scene::new();
        for (number, name) in ["first", "second"].iter().enumerate() {
            let mut request = create(name, true);
            let Request::Write { id, place, .. } = &mut request else { unreachable!() };
            (*id, *place) = ("batch".to_owned(), Some(number as u32));
            scene.operation(request, Outcome::Unknown { why: "cut".into() });
        }
        for (id, name) in (FIRST_ID..).zip(events) {
            scene.event_of("batch", article(id, name));
        }
        scene
    }

    #[test]
    fn each_event_of_a_batch_is_of_the_command_that_sent_its_values() {
        for events in [&["second", "first"][..], &["second"], &[]] {
            let scene = batch(events);
            let facts = Facts::of(&scene.history);
            assert_eq!(facts.of_event.len(), events.len());
            if !events.is_empty() {
                assert_eq!(facts.of_event[&(WS, 1)].place, Some(1));
            }
            assert_eq!(answers::find(&facts), []);
        }
    }

    #[test]
    fn events_of_a_batch_that_came_twice_or_were_not_sent_are_found() {
        let scene = batch(&["first", "first"]);
        assert!(texts(answers::find(&Facts::of(&scene.history)))[0].contains("has 2 events"));
        let scene = batch(&["first", "torn"]);
        assert!(texts(answers::find(&Facts::of(&scene.history)))[0].contains("no client sent"));
    }
}
