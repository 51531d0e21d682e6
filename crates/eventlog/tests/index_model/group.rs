//! The groups of commands: what each command reads, how it is judged, and how its event and all
//! that follows from the event are written.

use std::collections::BTreeMap;

use crate::{
    commands::Command,
    decide::{self, Before, UniqueChange},
    defect::Defect,
    leader::{Leader, Step, without},
    mistaken::{self, EventChange},
    rows::{Change, Content, Definition, Equal, Key, LogEntry, Record, RecordId, Value, Version},
    store::{Outcome, Put, Write},
    world::{Checked, Sent, World, violation},
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
    events: Vec<GroupEvent>,
    refusals: Vec<Refusal>,
    not_found: u64,
    /// The entries of the group are in the call of its events.
    shares_call: bool,
    /// The events that a partial write left out of the log.
    uncommitted: Vec<GroupEvent>,
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

    /// Plans the call with the events of the group.
    pub(crate) fn plan_commit(&mut self, leader: &mut Leader) {
        let (next, is_first) = (leader.next_offset(), leader.next_offset() == leader.first);
        let Some(group) = &mut leader.group else { return };
        let lands_late = self.plan.shape.lands_late();
        let mut entries: Vec<LogEntry> =
            group.events.iter().map(|event| event.entry.clone()).collect();
        if entries.is_empty() && (leader.is_fenced || !lands_late) {
            leader.steps.extend([Step::Answer, Step::EndGroup]);
            return;
        }
        if entries.is_empty() {
            let version = Version { epoch: leader.epoch, plog: next };
            entries.push(LogEntry { version, ws: 0, drawn: None, content: Content::Fence });
        }
        let inserts = self.plan.level < 2 || is_first;
        let mut puts = Vec::new();
        if self.plan.shape.writes_groups_atomically() {
            puts.extend(group.events.iter().flat_map(record_puts));
            let shares =
                matches!(self.defect, Some(Defect::EntriesInLateCall | Defect::SharedLateCall));
            group.shares_call = !lands_late || (shares && self.plan.level == 2);
        }
        let shares_call = group.shares_call;
        let of_index = self.entries_of_group(leader, None);
        if shares_call {
            puts.extend(of_index.iter().cloned());
        }
        let unchecked = match self.has(Defect::EntriesWithoutLease) {
            true => of_index.clone(),
            false => Vec::new(),
        };
        if self.has(Defect::EntriesBeforeEvent) {
            leader.steps.extend(of_index.into_iter().map(Step::Put));
        }
        let write = Write { entries, inserts, over: Vec::new(), puts, unchecked };
        leader.steps.extend([Step::Commit(write), Step::Committed]);
    }

    /// The entries that follow from the events of the group, or from these events.
    fn entries_of_group(&self, leader: &Leader, of: Option<&[GroupEvent]>) -> Vec<Put> {
        let Some(group) = &leader.group else { return Vec::new() };
        let mut maintained = leader.maintained();
        if self.has(Defect::EntriesAfterBuild) {
            maintained.retain(|(number, _)| {
                leader.progress.get(number) == Some(&decide::Progress::Complete)
            });
        }
        let puts = of.unwrap_or(&group.events).iter().flat_map(|event| {
            mistaken::entry_puts(self.defect, &event.entry, &event.changes, &maintained)
        });
        let puts: Vec<Put> = puts.collect();
        // The last event of an entry counts. The live ones come first.
        let is_last = |(at, put): &(usize, &Put)| {
            !puts[at + 1..].iter().any(|later| later.key == put.key && later.order >= put.order)
        };
        let mut last: Vec<Put> =
            puts.iter().enumerate().filter(is_last).map(|(_, put)| put.clone()).collect();
        if !self.has(Defect::EmptyBeforeLive) {
            last.sort_by_key(|put| matches!(put.value, Value::Empty | Value::Holder(None)));
        }
        last
    }

    /// Sends the call with the events. Returns whether the leader goes on.
    pub(crate) fn commit(&mut self, leader: &mut Leader, write: Write) -> Checked<bool> {
        let is_whole = leader.was_unanswered || self.plan.shape.writes_groups_atomically();
        let may_be_partial = !is_whole && write.inserts && write.entries.len() > 1;
        if may_be_partial && self.chance(self.plan.partial) {
            return self.commit_a_part(leader, write);
        }
        match self.send(&write) {
            Sent::Crashed => return Ok(false),
            Sent::Unanswered => {
                leader.was_unanswered = true;
                leader.steps.push_front(Step::Commit(write));
                return Ok(true);
            }
            Sent::Answered(Outcome::Done) => {}
            Sent::Answered(Outcome::Damaged(key)) => {
                if self.has(Defect::EntryFailsCommand) {
                    return violation("isolation", format!("{key:?} fails a command"));
                }
                // The same call, without the entries of the broken index.
                let puts = without(&write.puts, key);
                leader.steps.push_front(Step::Commit(Write { puts, ..write }));
                self.note_damage(leader, key);
                return Ok(true);
            }
            Sent::Answered(Outcome::Refused(there)) => {
                return self.commit_refused(leader, write, there);
            }
        }
        leader.was_unanswered = false;
        Ok(true)
    }

    /// The storage writes some of the events, and says so.
    fn commit_a_part(&mut self, leader: &mut Leader, write: Write) -> Checked<bool> {
        let most = self.rng.usize(0..write.entries.len());
        let part = Write { entries: write.entries[..most].to_vec(), ..write.clone() };
        self.report.calls += 1;
        let outcome = self.store.apply(&part);
        self.note(|| format!("writes {most} of {write:?}: {outcome:?}"));
        match outcome {
            Outcome::Refused(there) => self.commit_refused(leader, write, there),
            _ => {
                if let Some(group) = &mut leader.group {
                    group.uncommitted = group.events.split_off(most);
                }
                Ok(true)
            }
        }
    }

    fn commit_refused(
        &mut self,
        leader: &mut Leader,
        mut write: Write,
        there: LogEntry,
    ) -> Checked<bool> {
        if write.entries.contains(&there) {
            // An earlier attempt has landed.
            leader.was_unanswered = false;
            return Ok(true);
        }
        if there.version.epoch >= leader.epoch {
            return Ok(false);
        }
        let plog = there.version.plog;
        let in_front = match leader.log.last() {
            _ if plog > leader.next_offset() => leader.epoch,
            last => last.map_or(0, |entry| entry.version.epoch),
        };
        let hides = self.store.row(&Key::Plog(plog)).is_some_and(|row| row.hides_ordered);
        let of_level_2 = self.is_epoch_of_level_2(there.version.epoch);
        if there.version.epoch < in_front && of_level_2 && !hides {
            self.note(|| format!("replaces the stray {there:?}"));
            write.over.push(there);
            leader.steps.push_front(Step::Commit(write));
            return Ok(true);
        }
        self.note(|| format!("meets {there:?}"));
        // The event of a former leader: the leader recovers, and nothing of the group is written.
        leader.steps.clear();
        leader.was_unanswered = false;
        leader.group = None;
        leader.steps.push_back(Step::ReadLog);
        Ok(true)
    }

    /// The events are in the log. Plans the rows that follow from them.
    pub(crate) fn committed(&mut self, leader: &mut Leader) {
        let Some(mut group) = leader.group.take() else { return };
        let lease_was_needed = group.shares_call;
        let fences = group.events.is_empty() && group.uncommitted.is_empty();
        if fences {
            let version = Version { epoch: leader.epoch, plog: leader.next_offset() };
            let content = Content::Fence;
            leader.log.push(LogEntry { version, ws: 0, drawn: None, content });
        }
        leader.is_fenced |= fences || !group.events.is_empty();
        leader.log.extend(group.events.iter().map(|event| event.entry.clone()));
        let mut with_entries = group.events.clone();
        if self.has(Defect::EntriesOfUncommitted) {
            with_entries.append(&mut group.uncommitted.clone());
        }
        let failed = !group.uncommitted.is_empty();
        group.uncommitted.clear();
        let records: Vec<Put> = group.events.iter().flat_map(record_puts).collect();
        leader.group = Some(group);
        let mut steps = Vec::new();
        if !self.plan.shape.writes_groups_atomically() {
            steps.extend(records.into_iter().map(Step::Put));
        }
        let offset = self.offset_put(leader, leader.next_offset());
        let stores_offset = !failed && self.rng.u32(0..3) == 0;
        let mut entries = self.entries_of_group(leader, Some(&with_entries));
        if lease_was_needed || self.has(Defect::EntriesBeforeEvent) {
            entries.clear();
        }
        let of_entries = entries.into_iter().map(Step::Put);
        if self.has(Defect::AnswerBeforeEntries) {
            steps.push(Step::Answer);
            steps.extend(of_entries);
        } else if self.has(Defect::OffsetBeforeEntries) {
            steps.push(offset.clone());
            steps.extend(of_entries);
            steps.push(Step::Answer);
        } else {
            steps.extend(of_entries);
            steps.push(Step::Answer);
        }
        if stores_offset && !self.has(Defect::OffsetBeforeEntries) {
            steps.push(offset);
        }
        steps.push(Step::EndGroup);
        if failed {
            // The leader cannot know what else the storage did not write.
            steps.push(Step::ReadLog);
        }
        leader.steps.extend(steps);
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

fn record_puts(event: &GroupEvent) -> Vec<Put> {
    let changes = event.entry.changes().iter();
    changes.map(|change| mistaken::record_put(&event.entry, change)).collect()
}
