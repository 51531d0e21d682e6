//! The build of an index for existing records, beside the commands.

use std::collections::{BTreeSet, VecDeque};

use crate::{
    decide::{self, Progress},
    defect::Defect,
    leader::Leader,
    mistaken,
    rows::{Definition, Key, LogEntry, RecordId, RecordPlace, Value, Version},
    store::{Outcome, Put, Write},
    world::{Checked, Sent, World},
};

#[derive(Clone, Debug)]
pub(crate) enum BuildStep {
    ReadProgress,
    /// Reads the next entries of the log.
    ReadEntries,
    /// Reads a record. If the build takes the log for the records, this is the record of the log.
    ReadRecord(RecordId, Option<(Version, Option<RecordPlace>)>),
    PutEntry(Put),
    /// Waits until this many groups have ended.
    Wait(u64),
    ReadCandidates(RecordId, RecordPlace),
    ReadHolders(RecordId, RecordPlace, Vec<u64>),
    /// All of the part is written: the next step stores the progress.
    EndPart(u64),
    PutProgress(Put, Progress),
}

/// A pass over the log, for one index.
#[derive(Debug)]
pub(crate) struct Build {
    pub(crate) number: u32,
    definition: Definition,
    progress: Progress,
    /// The log that the recovery has read ends here.
    end: u64,
    steps: VecDeque<BuildStep>,
    /// The records whose keys must be compared with those of others.
    to_compare: Vec<(RecordId, RecordPlace)>,
    found_duplicates: bool,
}

impl Build {
    /// What a leader that stands still now may send when it goes on.
    pub(crate) fn about_to_send(&self) -> Option<Write> {
        match self.steps.front() {
            Some(BuildStep::PutEntry(put) | BuildStep::PutProgress(put, _)) => {
                Some(Write::of(vec![put.clone()]))
            }
            _ => None,
        }
    }
}

impl World {
    /// Does the next step of the build of the leader.
    pub(crate) fn step_build(&mut self) -> Checked {
        let Some(mut leader) = self.leader.take() else { return Ok(()) };
        let survives = !leader.is_ready || self.build_on(&mut leader);
        self.leader = Some(leader);
        if !survives {
            self.end_leader(false);
        }
        self.judge_if_idle()
    }

    fn build_on(&mut self, leader: &mut Leader) -> bool {
        let Some(mut build) = leader.build.take() else {
            self.begin_build(leader);
            return true;
        };
        let Some(step) = build.steps.pop_front() else { return true };
        let (number, again) = (build.number, step.clone());
        let sent = match step {
            BuildStep::PutEntry(put) | BuildStep::PutProgress(put, _) => {
                self.send(&Write::of(vec![put]))
            }
            _ => {
                let goes_on = self.build_step(leader, &mut build, step);
                leader.build = goes_on.then_some(build);
                return true;
            }
        };
        match (sent, again) {
            (Sent::Crashed, _) => return false,
            (Sent::Unanswered, again) => build.steps.push_front(again),
            (Sent::Answered(Outcome::Damaged(key)), _) => {
                self.note_damage(leader, key);
                return true;
            }
            (Sent::Answered(_), BuildStep::PutProgress(_, progress)) => {
                self.note(|| format!("progress of {number}: {progress:?}"));
                leader.progress.insert(number, progress);
                if progress == Progress::Complete {
                    self.report.builds += 1;
                }
                if progress == Progress::Complete || progress == Progress::BEGIN {
                    return true;
                }
                (build.progress, build.found_duplicates) = (progress, false);
                build.steps.push_back(BuildStep::ReadEntries);
            }
            _ => {}
        }
        leader.build = Some(build);
        true
    }

    fn begin_build(&mut self, leader: &mut Leader) {
        let is_fenced =
            leader.is_fenced || !self.plan.shape.lands_late() || self.has(Defect::BuildBeforeFence);
        let mut waiting = leader.maintained();
        waiting.retain(|(number, definition)| {
            leader.progress.get(number) != Some(&Progress::Complete)
                && (is_fenced || *definition == Definition::Index)
        });
        if waiting.is_empty() {
            return;
        }
        let (number, definition) = waiting[self.rng.usize(0..waiting.len())];
        leader.build = Some(Build {
            number,
            definition,
            progress: Progress::BEGIN,
            end: leader.first,
            steps: VecDeque::from([BuildStep::ReadProgress]),
            to_compare: Vec::new(),
            found_duplicates: false,
        });
    }

    /// A step that writes nothing. Returns whether the build goes on.
    fn build_step(&mut self, leader: &mut Leader, build: &mut Build, step: BuildStep) -> bool {
        match step {
            BuildStep::ReadProgress => {
                build.progress = self.store.progress(build.number);
                leader.progress.insert(build.number, build.progress);
                leader.known_progress.insert(build.number);
                if !matches!(build.progress, Progress::Building { .. }) {
                    return false;
                }
                build.steps.push_back(BuildStep::ReadEntries);
            }
            BuildStep::ReadEntries => self.read_entries(leader, build),
            BuildStep::ReadRecord(id, of_log) => self.read_record(leader, build, id, of_log),
            BuildStep::Wait(groups) => {
                if leader.groups_ended < groups && !self.has(Defect::BuildLooksAtOnce) {
                    build.steps.push_front(BuildStep::Wait(groups));
                }
            }
            BuildStep::ReadCandidates(id, place) => {
                // A key that cannot be read now is read later.
                build.steps.push_front(match self.holders(build.number, place.equal) {
                    Some(ids) => BuildStep::ReadHolders(id, place, ids),
                    None => BuildStep::ReadCandidates(id, place),
                });
            }
            BuildStep::ReadHolders(id, place, ids) => {
                let now = |other| {
                    let (record, _) = self.store.record(RecordId { ws: id.ws, id: other })?;
                    Some(build.definition.place(id.ws, &record)?.equal)
                };
                // The record may have left its key.
                if now(id.id) == Some(place.equal)
                    && decide::has_duplicate(id.id, &place.equal, &ids, now)
                {
                    self.note(|| format!("{id:?} has a duplicate among {ids:?}"));
                    build.found_duplicates = true;
                }
            }
            BuildStep::EndPart(next) => self.end_part(leader, build, next),
            BuildStep::PutEntry(_) | BuildStep::PutProgress(..) => {}
        }
        true
    }

    fn read_entries(&mut self, leader: &mut Leader, build: &mut Build) {
        let Progress::Building { mut next, .. } = build.progress else { return };
        if self.has(Defect::BuildFromStoredOffset) {
            next = next.max(self.store.stored_offset());
        }
        let part = next..build.end.min(next + self.rng.u64(1..=8));
        let end = part.end.max(next);
        if self.has(Defect::ProgressBeforeEntries) {
            self.store_progress(leader, build, end);
        }
        // The last entry of a part that names a record is enough.
        let mut seen = BTreeSet::new();
        for entry in part.rev().filter_map(|offset| self.store.entry(offset)) {
            let marked = entry.is_marker().then(|| entry.drawn.unwrap_or(0));
            let written: Vec<u64> = entry.changes().iter().map(|change| change.id).collect();
            let ids = match self.has(Defect::BuildSkipsMarkers) {
                true => written,
                false => decide::ids_to_read(&written, marked),
            };
            for id in ids {
                let of_log = self.record_of_log(build, entry, id);
                let id = RecordId { ws: entry.ws, id };
                if seen.insert(id) {
                    build.steps.push_back(BuildStep::ReadRecord(id, of_log));
                }
            }
        }
        if !self.has(Defect::ProgressBeforeEntries) || end >= build.end {
            build.steps.push_back(BuildStep::EndPart(end));
        }
    }

    fn record_of_log(
        &self,
        build: &Build,
        entry: &LogEntry,
        id: u64,
    ) -> Option<(Version, Option<RecordPlace>)> {
        if !self.has(Defect::BuildFromLog) {
            return None;
        }
        let change = entry.changes().iter().find(|change| change.id == id);
        let place = change.and_then(|it| build.definition.place(entry.ws, &it.record));
        Some((entry.version, place))
    }

    fn read_record(
        &mut self,
        leader: &Leader,
        build: &mut Build,
        id: RecordId,
        of_log: Option<(Version, Option<RecordPlace>)>,
    ) {
        let of_row = || {
            let (record, version) = self.store.record(id)?;
            Some((version, build.definition.place(id.ws, &record)))
        };
        let Some((version, Some(place))) = of_log.or_else(of_row) else { return };
        let (key, value) = match mistaken::has_one_row(self.defect, build.definition) {
            true => (Key::Holder(build.number, place.equal), Value::Holder(Some(id.id))),
            false => (Key::Entry(build.number, place, id.id), Value::Live),
        };
        let order = match self.defect {
            Some(Defect::BuildWithoutOrders) => None,
            Some(Defect::BuildWithLeaderOrder) => Some((leader.epoch, build.end - 1)),
            _ => Some(World::order_of(version)),
        };
        build.steps.push_front(BuildStep::PutEntry(Put { key, value, order, days: None }));
        if build.definition == Definition::Unique {
            build.to_compare.push((id, place));
        }
    }

    /// All entries of the part are acknowledged.
    fn end_part(&mut self, leader: &mut Leader, build: &mut Build, next: u64) {
        let to_compare = std::mem::take(&mut build.to_compare);
        if to_compare.is_empty() {
            self.store_progress(leader, build, next);
            return;
        }
        build.steps.push_back(BuildStep::Wait(leader.groups_begun));
        let looks = to_compare.into_iter();
        build.steps.extend(looks.map(|(id, place)| BuildStep::ReadCandidates(id, place)));
        build.steps.push_back(BuildStep::EndPart(next));
    }

    fn store_progress(&mut self, leader: &mut Leader, build: &mut Build, next: u64) {
        let progress = build.progress.after(next, build.found_duplicates, build.end);
        let before = leader.progress.insert(build.number, progress);
        let mut put = self.progress_put(leader, build.number);
        leader.progress.insert(build.number, before.unwrap_or(Progress::BEGIN));
        if self.has(Defect::DuplicatesInMemory)
            && let Progress::Building { next, .. } = progress
        {
            let stored = Progress::Building { next, has_duplicates: false };
            put.value = Value::Progress(stored);
        }
        build.steps.push_back(BuildStep::PutProgress(put, progress));
    }
}
