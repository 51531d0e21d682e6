//! A client that reads a list while commands are written.

use std::collections::BTreeMap;

use crate::{
    commands::VALUES,
    decide,
    defect::Defect,
    leader::Leader,
    mistaken,
    rows::{Definition, Equal, RecordId, RecordPlace},
    world::{Checked, World, violation},
};

/// A list that is being read.
#[derive(Debug)]
pub(crate) struct Reader {
    number: u32,
    wanted: Equal,
    step: ReaderStep,
    /// The rows of a page; `None` reads all in one page.
    page: Option<usize>,
    /// The last candidate of the page before.
    after: Option<(u8, u64)>,
    shown: Vec<(u8, u64)>,
    /// The places that each record had since the entries were read, and before the command that was
    /// under way then.
    seen: BTreeMap<RecordId, Vec<Option<RecordPlace>>>,
}

#[derive(Debug)]
enum ReaderStep {
    ReadEntries,
    /// Reads the records of these candidates. Others may follow.
    ReadRecords {
        candidates: Vec<(u8, u64)>,
        others_follow: bool,
    },
    /// Waits until this many groups have ended, and then goes on or ends.
    Wait {
        groups: u64,
        others_follow: bool,
    },
}

impl World {
    /// Notes the places of the records for the reader.
    pub(crate) fn observe(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        for (id, record, _) in self.store.records() {
            let place = Definition::Index.place(id.ws, &record);
            let seen = reader.seen.entry(id).or_insert_with(|| vec![None]);
            if seen.last() != Some(&place) {
                seen.push(place);
            }
        }
    }

    pub(crate) fn step_reader(&mut self) -> Checked {
        let Some(leader) = self.leader.take() else { return Ok(()) };
        let done = match self.reader.take() {
            _ if !leader.is_ready => Ok(()),
            Some(reader) => self.read_on(&leader, reader),
            None => {
                self.begin_list(&leader);
                Ok(())
            }
        };
        self.leader = Some(leader);
        done
    }

    fn begin_list(&mut self, leader: &Leader) {
        let numbers: Vec<u32> = self.readable(leader, Definition::Index);
        let Some(number) = numbers.first() else { return };
        let ws = self.rng.u8(1..=self.plan.workspaces);
        let wanted = (ws, self.rng.u8(0..VALUES));
        let settled = self.settled.iter();
        let seen = settled.map(|(id, record)| (*id, vec![Definition::Index.place(id.ws, record)]));
        self.reader = Some(Reader {
            number: *number,
            wanted,
            step: ReaderStep::ReadEntries,
            page: self.rng.bool().then_some(1),
            after: None,
            shown: Vec::new(),
            seen: seen.collect(),
        });
        self.observe();
    }

    fn read_on(&mut self, leader: &Leader, mut reader: Reader) -> Checked {
        if !self.readable(leader, Definition::Index).contains(&reader.number) {
            return Ok(());
        }
        let wanted = reader.wanted;
        match std::mem::replace(&mut reader.step, ReaderStep::ReadEntries) {
            ReaderStep::ReadEntries => {
                let mut candidates = self.store.candidates(reader.number, wanted);
                candidates.retain(|entry| reader.after.is_none_or(|after| *entry > after));
                let most = reader.page.unwrap_or(usize::MAX);
                let others_follow = candidates.len() > most;
                candidates.truncate(most);
                self.note(|| format!("reads entries of {wanted:?}: {candidates:?}"));
                reader.step = ReaderStep::ReadRecords { candidates, others_follow };
            }
            ReaderStep::ReadRecords { candidates, others_follow } => {
                let last = candidates.last().copied().filter(|_| others_follow);
                let all = self.listed(wanted, &candidates);
                let rows = decide::page(all.clone(), reader.after, last);
                self.note(|| format!("the page of {wanted:?} is {rows:?}, of {all:?}"));
                let must_wait = decide::must_wait(&all, last);
                reader.shown.extend(rows);
                reader.after = last;
                let groups = match must_wait && !self.has(Defect::PageDoesNotWait) {
                    true => leader.groups_begun,
                    false => 0,
                };
                reader.step = ReaderStep::Wait { groups, others_follow };
            }
            ReaderStep::Wait { groups, others_follow } => {
                if leader.groups_ended < groups {
                    reader.step = ReaderStep::Wait { groups, others_follow };
                } else if !others_follow {
                    return self.judge_read(leader, &reader);
                }
            }
        }
        self.reader = Some(reader);
        Ok(())
    }

    /// Each record that had the key all the time is in the list, and each record in the list had
    /// its place there. Over several pages, a record that moves may be shown twice, and one that
    /// moves towards the front may be left out.
    fn judge_read(&mut self, leader: &Leader, reader: &Reader) -> Checked {
        self.report.lists += 1;
        let (wanted, rows) = (reader.wanted, &reader.shown);
        let is_paged = reader.page.is_some();
        if !is_paged && rows.iter().zip(rows.iter().skip(1)).any(|(one, next)| one >= next) {
            return violation("list", format!("the list of {wanted:?} is not in order: {rows:?}"));
        }
        for (id, seen) in reader.seen.iter().filter(|(id, _)| id.ws == wanted.0) {
            if !self.counts(leader, *id) {
                continue;
            }
            let shown: Vec<u8> =
                rows.iter().filter(|(_, row)| *row == id.id).map(|(order, _)| *order).collect();
            let orders: Vec<u8> = seen
                .iter()
                .flatten()
                .filter(|place| place.equal == wanted)
                .map(|place| place.order)
                .collect();
            let had_key = orders.len() == seen.len();
            let must_be_shown = had_key && (!is_paged || orders.is_sorted());
            let is_right = shown.iter().all(|order| orders.contains(order))
                && (shown.len() <= 1 || is_paged)
                && !(shown.is_empty() && must_be_shown);
            if !is_right {
                let what = format!("a list of {wanted:?} is {rows:?}, but {id:?} was {seen:?}");
                return violation("list", what);
            }
        }
        Ok(())
    }

    /// The rows of a list, from the candidates.
    pub(crate) fn listed(&self, wanted: Equal, candidates: &[(u8, u64)]) -> Vec<(u8, u64)> {
        let record = |id| Some(self.store.record(RecordId { ws: wanted.0, id })?.0);
        let now = |id| {
            let record = record(id)?;
            Some((record, Definition::Index.place(wanted.0, &record)?))
        };
        let is_active = |id| record(id).is_some_and(|record| record.is_active);
        mistaken::listed(self.defect, wanted, candidates, now, is_active)
    }
}
