//! The writing of a group: the call with its events, and the rows that follow from them.

use crate::{
    decide,
    defect::Defect,
    group::GroupEvent,
    leader::{Leader, Step, without},
    mistaken,
    rows::{Content, Key, LogEntry, Value, Version},
    store::{Outcome, Put, Write},
    world::{Checked, Sent, World, violation},
};

impl World {
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
        let empties_first = self.has(Defect::EmptyBeforeLive);
        decide::to_send(
            puts,
            |put| (put.key, put.order),
            |put| matches!(put.value, Value::Empty | Value::Holder(None)) == empties_first,
        )
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
}

fn record_puts(event: &GroupEvent) -> Vec<Put> {
    let changes = event.entry.changes().iter();
    changes.map(|change| mistaken::record_put(&event.entry, change)).collect()
}
