//! A client that reads a list while commands are written.

use std::collections::BTreeMap;

use crate::{
    decide::Progress,
    leader::Leader,
    mistaken,
    rows::{Definition, Equal, RecordId, RecordPlace},
    world::{Checked, World, violation},
};

/// A list whose entries are read, and whose records are not.
#[derive(Debug)]
pub(crate) struct Reader {
    number: u32,
    wanted: Equal,
    candidates: Vec<(u8, u64)>,
    /// The places that each record had since the entries were read, and before the command that was
    /// under way then.
    seen: BTreeMap<RecordId, Vec<Option<RecordPlace>>>,
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
            Some(reader) => self.end_list(&leader, &reader),
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
        let wanted = (ws, self.rng.u8(0..crate::commands::VALUES));
        let candidates = self.store.candidates(*number, wanted);
        let seen = self.settled.iter().map(|(id, record)| {
            (*id, vec![Definition::Index.place(id.ws, record)])
        });
        let seen = seen.collect();
        self.note(|| format!("reads entries of {wanted:?}: {candidates:?}"));
        self.reader = Some(Reader { number: *number, wanted, candidates, seen });
        self.observe();
    }

    fn end_list(&mut self, leader: &Leader, reader: &Reader) -> Checked {
        if leader.progress.get(&reader.number) != Some(&Progress::Complete) {
            return Ok(());
        }
        self.report.lists += 1;
        let wanted = reader.wanted;
        let rows = self.listed(wanted, &reader.candidates);
        self.note(|| format!("the list of {wanted:?} is {rows:?}"));
        if rows.iter().zip(rows.iter().skip(1)).any(|(one, next)| one >= next) {
            return violation("list", format!("the list of {wanted:?} is not in order: {rows:?}"));
        }
        for (id, seen) in reader.seen.iter().filter(|(id, _)| id.ws == wanted.0) {
            if !self.is_known(leader, *id) {
                continue;
            }
            let shown: Vec<u8> =
                rows.iter().filter(|(_, row)| *row == id.id).map(|(order, _)| *order).collect();
            let fits = |place: &Option<RecordPlace>| {
                place.is_some_and(|place| place.equal == wanted)
            };
            let is_right = match shown.as_slice() {
                [] => !seen.iter().all(fits),
                [order] => seen.iter().flatten().any(|place| {
                    place.equal == wanted && place.order == *order
                }),
                _ => false,
            };
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
