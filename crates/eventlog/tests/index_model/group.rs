//! The groups of commands: what each command reads, how it is judged, and how it is
//! answered.

use std::collections::BTreeMap;

use crate::{
    commands::Command,
    decide::{self, Before, UniqueChange},
    defect::Defect,
    leader::{Leader, Step},
    mistaken::{self, EventChange},
    rows::{Change, Content, Definition, Equal, Key, LogEntry, Record, RecordId, Value, Version},
    world::{Checked, World},
};

/// An event of the group, with what was known of its records.
#[derive(Clone, Debug)]
pub(crate) struct GroupEvent {
    pub(crate) entry: LogEntry,
    pub(crate) changes: Vec<EventChange>,
}

/// A command that is refused because of a unique field.
#[derive(Clone, Debug)]
struct Refusal {
    /// The refusal rests on this many events of the group.
    rests_on: usize,
    ws: u8,
    changes: Vec<EventChange>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    commands: Vec<Command>,
    /// The records that were read, and those that the group wrote.
    read: BTreeMap<RecordId, (Record, Version)>,
    written: BTreeMap<RecordId, (Record, Version)>,
    /// The ids that may hold a key; `None` if a row of the key cannot be read.
    candidates: BTreeMap<(u32, Equal), Option<Vec<u64>>>,
    pub(crate) events: Vec<GroupEvent>,
    refusals: Vec<Refusal>,
    not_found: u64,
    /// The entries of the group are in the call of its events.
    pub(crate) shares_call: bool,
    /// The events that a partial write left out of the log.
    pub(crate) uncommitted: Vec<GroupEvent>,
}

impl Group {
    fn record(&self, id: RecordId) -> Option<(Record, Version)> {
        self.written.get(&id).or_else(|| self.read.get(&id)).copied()
    }
}

impl World {
    /// Begins a group, or writes a fencing entry.
    pub(crate) fn begin_work(&mut self, leader: &mut Leader) {
        if self.rng.u32(0..self.plan.idle) > 0 {
            return;
        }
        let must_fence = !leader.is_fenced && self.plan.shape.lands_late();
        if must_fence && self.rng.bool() {
            leader.group = Some(Group::default());
            leader.groups_begun += 1;
            self.plan_commit(leader);
            return;
        }
        let commands = (0..self.rng.usize(1..=4)).map(|_| self.command()).collect();
        self.begin_group(leader, commands);
    }

    pub(crate) fn begin_group(&mut self, leader: &mut Leader, commands: Vec<Command>) {
        self.note(|| format!("group {commands:?}"));
        leader.group = Some(Group { commands, ..Group::default() });
        leader.groups_begun += 1;
        leader.steps.extend([
            Step::ReadRecords,
            Step::ReadCandidates,
            Step::ReadHolders,
            Step::Judge,
        ]);
    }

    pub(crate) fn read_records(&mut self, leader: &mut Leader) {
        let Some(group) = &mut leader.group else { return };
        for command in &group.commands {
            for id in command.ids() {
                if let Some(found) = self.store.record(id) {
                    group.read.insert(id, found);
                }
            }
        }
    }

    /// Reads the holders of all keys that the group may take: those that its commands name, and
    /// those of the records that it read.
    pub(crate) fn read_candidates(&mut self, leader: &mut Leader) {
        let maintained = leader.maintained();
        let Some(group) = &mut leader.group else { return };
        let of_records = group.read.iter().filter_map(|(id, (record, _))| Some((id.ws, record.u?)));
        let of_commands = group.commands.iter().flat_map(Command::unique_keys);
        let keys: Vec<Equal> = of_records.chain(of_commands).collect();
        for (number, _) in maintained.iter().filter(|(_, kind)| *kind == Definition::Unique) {
            for key in &keys {
                let ids = self.holders(*number, *key);
                group.candidates.insert((*number, *key), ids);
            }
        }
    }

    /// The ids that may hold a unique key; `None` if a row of the key cannot be read.
    pub(crate) fn holders(&self, number: u32, key: Equal) -> Option<Vec<u64>> {
        let is_of_key = |key_of: &Key| match key_of {
            Key::Entry(of, place, _) => *of == number && place.equal == key,
            _ => false,
        };
        if self.damaged.as_ref().is_some_and(|(damaged, _)| is_of_key(damaged)) {
            let skips = self.has(Defect::UniqueSkipsDamaged);
            return skips.then(Vec::new);
        }
        Some(match self.store.get(&Key::Holder(number, key)) {
            Some(Value::Holder(id)) => id.iter().copied().collect(),
            _ => self.store.candidates(number, key).into_iter().map(|(_, id)| id).collect(),
        })
    }

    pub(crate) fn read_holders(&mut self, leader: &mut Leader) {
        let Some(group) = &mut leader.group else { return };
        for ((_, (ws, _)), ids) in &group.candidates {
            for id in ids.iter().flatten().map(|id| RecordId { ws: *ws, id: *id }) {
                if let Some(found) = self.store.record(id) {
                    group.read.entry(id).or_insert(found);
                }
            }
        }
    }

    /// Judges the commands, and makes the events of those that are accepted.
    pub(crate) fn judge_commands(&mut self, leader: &mut Leader) -> Checked {
        let mut group = leader.group.take().unwrap_or_default();
        for command in std::mem::take(&mut group.commands) {
            let Some(event) = self.event_of(leader, &group, &command) else {
                group.not_found += 1;
                continue;
            };
            let changes = &event.changes;
            let refusal = self.refusal(leader, &group, command.ws, changes);
            if refusal {
                self.note(|| format!("refuses {command:?}"));
                let rests_on = group.events.len();
                group.refusals.push(Refusal { rests_on, ws: command.ws, changes: event.changes });
                continue;
            }
            let version = event.entry.version;
            for change in changes {
                let id = RecordId { ws: command.ws, id: change.id };
                group.written.insert(id, (change.after, version));
            }
            group.events.push(event);
        }
        leader.group = Some(group);
        self.plan_commit(leader);
        Ok(())
    }

    /// The event of a command; `None` if the command names what does not exist.
    fn event_of(&self, leader: &Leader, group: &Group, command: &Command) -> Option<GroupEvent> {
        let ws = command.ws;
        let plog = leader.next_offset() + group.events.len() as u64;
        let version = Version { epoch: leader.epoch, plog };
        let of_log = leader.log.iter().filter(|entry| entry.ws == ws);
        let of_group = group.events.iter().map(|event| &event.entry);
        let drawn = of_log.chain(of_group.filter(|entry| entry.ws == ws));
        let mut last = drawn.filter_map(|entry| entry.drawn).max().unwrap_or(0);
        let last_drawn = last;
        let (mut made, mut changes, mut written) = (None, Vec::new(), Vec::new());
        for change in &command.changes {
            let id = change.id.unwrap_or_else(|| {
                last += 1;
                made = Some(last);
                last
            });
            // A record with an id that no event has drawn is a stray.
            let row = change
                .id
                .filter(|id| *id <= last_drawn)
                .and_then(|id| group.record(RecordId { ws, id }));
            if change.id.is_some() && row.is_none() {
                return None;
            }
            let after = change.applied_to(row.map(|(record, _)| record));
            let is_doubtful = row.is_some_and(|(_, version)| self.is_doubtful(leader, version));
            let record = row.map(|(record, _)| record);
            let before = if is_doubtful { Before::Doubtful(record) } else { Before::Known(record) };
            changes.push(EventChange { id, before, after });
            written.push(Change { id, replaces: row.map(|(_, version)| version), record: after });
        }
        let content = Content::Event(written);
        Some(GroupEvent { entry: LogEntry { version, ws, drawn: made, content }, changes })
    }

    /// Whether a record with this version may follow from no event of the log.
    fn is_doubtful(&self, leader: &Leader, version: Version) -> bool {
        let by_log = matches!(self.defect, Some(Defect::EntriesInLateCall | Defect::StraysByLog));
        let may_be_stray = decide::may_be_stray(
            version.epoch,
            leader.epoch,
            self.is_epoch_of_level_2(version.epoch),
            self.plan.shape.lands_late(),
        );
        may_be_stray
            && !self.has(Defect::TrustsStrays)
            && !(by_log && leader.entry_at(version).is_some())
    }

    /// Whether a command must be refused because of a unique field.
    fn refusal(&self, leader: &Leader, group: &Group, ws: u8, changes: &[EventChange]) -> bool {
        let mut unique =
            leader.list.iter().filter(|it| it.is_on && it.definition == Definition::Unique);
        unique.any(|index| {
            let key_of =
                |record: Record| Definition::Unique.place(ws, &record).map(|place| place.equal);
            let judged: Vec<UniqueChange<u64, Equal>> = changes
                .iter()
                .map(|change| {
                    let before = match change.before_in(Definition::Unique, ws) {
                        Before::Known(place) => Before::Known(place.map(|place| place.equal)),
                        Before::Doubtful(place) => Before::Doubtful(place.map(|place| place.equal)),
                    };
                    let was_inactive = matches!(
                        change.before,
                        Before::Known(Some(Record { is_active: false, .. }))
                    );
                    let after = match self.has(Defect::UniqueNotAtReactivation) && was_inactive {
                        true => None,
                        false => key_of(change.after),
                    };
                    UniqueChange { id: change.id, before, after }
                })
                .collect();
            if leader.is_broken(index.number) {
                return judged.iter().any(|change| change.taken().is_some());
            }
            let found = |key| group.candidates.get(&(index.number, key));
            if judged.iter().filter_map(UniqueChange::taken).any(|key| found(key) == Some(&None)) {
                return true;
            }
            let stored = |key| found(key).cloned().flatten().unwrap_or_default();
            let of_group = |key: Equal| {
                let written = group.written.iter().filter(|(id, _)| id.ws == ws);
                let takes = written.filter(|(_, (record, _))| key_of(*record) == Some(key));
                takes.map(|(id, _)| id.id).collect()
            };
            let now = |id| key_of(group.record(RecordId { ws, id })?.0);
            let stored_now = |id| key_of(group.read.get(&RecordId { ws, id })?.0);
            mistaken::conflict(self.defect, &judged, stored, of_group, now, stored_now)
        })
    }

    /// Answers the commands of the group.
    ///
    /// Invariant: a refusal rests only on events that are in the log. The others are answered
    /// "busy".
    pub(crate) fn answer(&mut self, leader: &mut Leader) -> Checked {
        let Some(group) = &leader.group else { return Ok(()) };
        let could_read = group.candidates.values().all(Option::is_some);
        let is_broken = leader.list.iter().any(|index| leader.is_broken(index.number));
        for refusal in &group.refusals {
            let is_answered = refusal.rests_on <= group.events.len();
            if !is_answered && !self.has(Defect::RefusesByUncommitted) {
                continue;
            }
            self.report.refused += 1;
            if could_read && !is_broken {
                let view = group.view_of(refusal.rests_on);
                self.judge_refusal(&view, refusal.ws, &refusal.changes)?;
            }
        }
        let answered = group.events.len() + group.refusals.len();
        self.report.commands += answered as u64 + group.not_found;
        self.acknowledged.extend(group.events.iter().map(|event| event.entry.clone()));
        self.note(|| "answers".to_owned());
        if self.has(Defect::AnswerBeforeEntries) {
            self.settle(leader);
            return self.judge_lists(leader);
        }
        Ok(())
    }
}

impl Group {
    /// The records as this many events of the group leave them, if they are in the log.
    fn view_of(&self, events: usize) -> BTreeMap<RecordId, Record> {
        let mut view: BTreeMap<RecordId, Record> =
            self.read.iter().map(|(id, (record, _))| (*id, *record)).collect();
        for event in self.events.iter().take(events) {
            for change in &event.changes {
                view.insert(RecordId { ws: event.entry.ws, id: change.id }, change.after);
            }
        }
        view
    }
}
