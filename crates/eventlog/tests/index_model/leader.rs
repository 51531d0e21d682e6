//! A leader of the partition: its recovery, and the groups of commands that it writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    build::Build,
    decide::{Before, Progress},
    defect::Defect,
    group::Group,
    mistaken::{self, EventChange},
    rows::{Content, Definition, IndexList, Key, LogEntry, Value, Version},
    store::{Outcome, Put, Write},
    world::{Checked, Sent, World},
};

/// What a leader does next. Each step is at most one call of the storage.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    ReadList,
    ReadLog,
    /// A write beside the log.
    Put(Put),
    /// Several rows in one atomic call.
    PutAll(Vec<Put>),
    /// The progress of an index, as it is when the step is taken.
    PutProgress(u32),
    Recovered,
    ReadRecords,
    ReadCandidates,
    ReadHolders,
    Judge,
    /// The call with the events of the group.
    Commit(Write),
    Committed,
    Answer,
    EndGroup,
}

pub(crate) struct Leader {
    pub(crate) epoch: u32,
    pub(crate) node: usize,
    pub(crate) declares: bool,
    pub(crate) list: IndexList,
    pub(crate) steps: VecDeque<Step>,
    pub(crate) is_ready: bool,
    /// The log as the leader knows it. The entry with the offset 1 comes first.
    pub(crate) log: Vec<LogEntry>,
    /// The offset after the log that the last recovery has read.
    pub(crate) first: u64,
    pub(crate) is_fenced: bool,
    pub(crate) group: Option<Group>,
    pub(crate) groups_begun: u64,
    pub(crate) groups_ended: u64,
    pub(crate) build: Option<Build>,
    /// The last progress of each index that the leader knows.
    pub(crate) progress: BTreeMap<u32, Progress>,
    /// The indexes whose progress the leader has read or written.
    pub(crate) known_progress: BTreeSet<u32>,
    pub(crate) progress_writes: u64,
    /// Whether an earlier attempt of the first step had no answer.
    pub(crate) was_unanswered: bool,
}

impl Leader {
    pub(crate) fn new(epoch: u32, node: usize, declares: bool) -> Leader {
        Leader {
            epoch,
            node,
            declares,
            list: IndexList::new(),
            steps: VecDeque::from([Step::ReadList, Step::ReadLog]),
            is_ready: false,
            log: Vec::new(),
            first: 1,
            is_fenced: false,
            group: None,
            groups_begun: 0,
            groups_ended: 0,
            build: None,
            progress: BTreeMap::new(),
            known_progress: BTreeSet::new(),
            progress_writes: 0,
            was_unanswered: false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.is_ready && self.steps.is_empty()
    }

    /// Whether nothing is under way, and each index that is on can be read.
    pub(crate) fn is_complete(&self) -> bool {
        let is_complete = |number| self.progress.get(&number) == Some(&Progress::Complete);
        self.is_idle() && self.list.iter().all(|index| !index.is_on || is_complete(index.number))
    }

    pub(crate) fn is_broken(&self, number: u32) -> bool {
        self.progress.get(&number) == Some(&Progress::Broken)
    }

    /// The indexes that the leader maintains.
    pub(crate) fn maintained(&self) -> Vec<(u32, Definition)> {
        let on = self.list.iter().filter(|index| index.is_on && !self.is_broken(index.number));
        on.map(|index| (index.number, index.definition)).collect()
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.log.len() as u64 + 1
    }

    pub(crate) fn entry_at(&self, version: Version) -> Option<&LogEntry> {
        self.log.get(version.plog as usize - 1).filter(|entry| entry.version == version)
    }

    /// The writes that a leader which stands still now may send when it goes on.
    pub(crate) fn about_to_send(&self) -> Vec<Write> {
        let of_log = match self.steps.front() {
            Some(Step::Put(put)) => Some(Write::of(vec![put.clone()])),
            Some(Step::PutAll(puts)) => Some(Write::of(puts.clone())),
            Some(Step::Commit(write)) => Some(write.clone()),
            _ => None,
        };
        let of_build = self.build.as_ref().and_then(Build::about_to_send);
        of_log.into_iter().chain(of_build).collect()
    }
}

impl World {
    /// Does the next step of the leader.
    pub(crate) fn step_leader(&mut self) -> Checked {
        let Some(mut leader) = self.leader.take() else { return Ok(()) };
        if leader.is_idle() {
            self.begin_work(&mut leader);
            self.leader = Some(leader);
            return Ok(());
        }
        let Some(step) = leader.steps.pop_front() else { return Ok(()) };
        let survives = self.step(&mut leader, step)?;
        if survives {
            self.leader = Some(leader);
        } else {
            self.note(|| "the leader ends".to_owned());
            self.leader = Some(leader);
            self.end_leader(false);
        }
        self.judge_if_idle()
    }

    /// Returns whether the leader goes on.
    fn step(&mut self, leader: &mut Leader, step: Step) -> Checked<bool> {
        let again = step.clone();
        match step {
            Step::ReadList => {
                leader.list = match self.has(Defect::ListOfNodeStart) {
                    true => self.list_of_node[leader.node].clone(),
                    false => self.store.list(),
                };
                if self.has(Defect::DeclaredOnly) && !leader.declares {
                    leader.list.clear();
                }
            }
            Step::ReadLog => self.read_log(leader),
            Step::Put(put) => return Ok(self.put_rows(leader, vec![put], again)),
            Step::PutAll(puts) => return Ok(self.put_rows(leader, puts, again)),
            Step::PutProgress(number) => {
                if self.has(Defect::BrokenInMemory) && leader.is_broken(number) {
                    return Ok(true);
                }
                let put = self.progress_put(leader, number);
                return Ok(self.put_rows(leader, vec![put], again));
            }
            Step::Recovered => {
                leader.is_ready = true;
                self.note(|| "recovered".to_owned());
                self.settle(leader);
                self.judge_log(leader)?;
            }
            Step::ReadRecords => self.read_records(leader),
            Step::ReadCandidates => self.read_candidates(leader),
            Step::ReadHolders => self.read_holders(leader),
            Step::Judge => self.judge_commands(leader)?,
            Step::Commit(write) => return self.commit(leader, write),
            Step::Committed => self.committed(leader),
            Step::Answer => self.answer(leader)?,
            Step::EndGroup => {
                leader.group = None;
                leader.groups_ended = leader.groups_begun;
                self.settle(leader);
                self.judge_log(leader)?;
            }
        }
        Ok(true)
    }

    /// Puts rows in one call. Returns whether the leader goes on.
    fn put_rows(&mut self, leader: &mut Leader, puts: Vec<Put>, again: Step) -> bool {
        match self.send(&Write::of(puts.clone())) {
            Sent::Crashed => return false,
            Sent::Unanswered => leader.steps.push_front(again),
            Sent::Answered(Outcome::Damaged(key)) => {
                self.note_damage(leader, key);
                let others = without(&puts, key);
                if !others.is_empty() {
                    leader.steps.push_front(Step::PutAll(others));
                }
            }
            Sent::Answered(_) => {}
        }
        true
    }

    /// An entry cannot be written: the index is broken in this partition. This is stored before
    /// anything else happens, because the next leader will not meet the entry again.
    pub(crate) fn note_damage(&mut self, leader: &mut Leader, key: Key) {
        if let Key::Entry(number, ..) | Key::Holder(number, _) = key {
            leader.progress.insert(number, Progress::Broken);
            leader.known_progress.insert(number);
            leader.steps.push_front(Step::PutProgress(number));
            if leader.build.as_ref().is_some_and(|build| build.number == number) {
                leader.build = None;
            }
        }
    }

    /// Reads the log, and plans the rows that follow from it.
    fn read_log(&mut self, leader: &mut Leader) {
        let from = self.store.stored_offset();
        leader.log = self.store.log(1);
        leader.first = leader.next_offset();
        (leader.is_ready, leader.is_fenced) = (false, false);
        let replayed: Vec<LogEntry> =
            leader.log.iter().filter(|entry| entry.version.plog >= from).cloned().collect();
        self.note(|| format!("replays {} from {from} to {}", replayed.len(), leader.first));
        for index in leader.list.clone() {
            let progress = self.store.progress(index.number);
            if progress == Progress::Broken || !leader.known_progress.contains(&index.number) {
                leader.progress.insert(index.number, progress);
            }
        }
        if replayed.iter().any(LogEntry::is_marker) && !self.has(Defect::MarkerKeepsProgress) {
            for (number, _) in leader.maintained() {
                let progress = leader.progress[&number].after_marker();
                leader.progress.insert(number, progress);
                leader.known_progress.insert(number);
                leader.steps.push_back(Step::PutProgress(number));
            }
            leader.build = None;
        }
        for entry in &replayed {
            self.plan_replay(leader, entry);
            if self.rng.u32(0..4) == 0 {
                leader.steps.push_back(self.offset_put(leader, entry.version.plog + 1));
            }
        }
        leader.steps.push_back(Step::Recovered);
    }

    fn plan_replay(&mut self, leader: &mut Leader, entry: &LogEntry) {
        let Content::Event(changes) = &entry.content else { return };
        let mut rows: Vec<Put> =
            changes.iter().map(|change| mistaken::record_put(entry, change)).collect();
        let known: Vec<EventChange> = changes
            .iter()
            .map(|change| {
                let replaced = change.replaces.map(|version| {
                    let there = leader.entry_at(version)?;
                    let mut before = there.changes().iter();
                    before.find(|before| before.id == change.id && there.ws == entry.ws)
                });
                let before = match replaced {
                    None => Before::Known(None),
                    Some(Some(before)) => Before::Known(Some(before.record)),
                    Some(None) => Before::Doubtful(None),
                };
                EventChange { id: change.id, before, after: change.record }
            })
            .collect();
        if !self.has(Defect::RecoveryWithoutEntries) {
            let mut maintained = leader.maintained();
            if self.has(Defect::RecoveryObeysProgress) || self.has(Defect::EntriesAfterBuild) {
                maintained
                    .retain(|(number, _)| leader.progress.get(number) == Some(&Progress::Complete));
            }
            rows.extend(mistaken::entry_puts(self.defect, entry, &known, &maintained));
        }
        match self.plan.shape.lands_late() {
            true => leader.steps.extend(rows.into_iter().map(Step::Put)),
            false => leader.steps.push_back(Step::PutAll(rows)),
        }
    }

    /// The write of the stored offset, after the numbers of the events before it.
    pub(crate) fn offset_put(&self, leader: &Leader, offset: u64) -> Step {
        let order = (leader.epoch, offset);
        Step::Put(Put::ordered(Key::StoredOffset, Value::Offset(offset), order))
    }
}

/// Returns the rows without those of the index of a damaged entry.
pub(crate) fn without(puts: &[Put], key: Key) -> Vec<Put> {
    let number_of = |key: &Key| match key {
        Key::Entry(number, ..) | Key::Holder(number, _) => Some(*number),
        _ => None,
    };
    puts.iter().filter(|put| number_of(&put.key) != number_of(&key)).cloned().collect()
}
