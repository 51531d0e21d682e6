//! What must hold. The judge knows the whole storage and all answers.

use std::collections::BTreeMap;

use crate::{
    commands::{Command, VALUES, no_edit},
    decide,
    defect::Defect,
    leader::Leader,
    mistaken::EventChange,
    rows::{Content, Definition, Equal, Key, Record, RecordId},
    world::{Checked, World, violation},
};

/// The rows of a page.
const PAGE: usize = 2;

impl World {
    /// No command is under way: the records are as the answers say, except for strays.
    pub(crate) fn settle(&mut self, leader: &Leader) {
        let known = self.store.records().filter(|(id, ..)| self.is_in_log(leader, *id));
        self.settled = known.map(|(id, record, _)| (id, record)).collect();
    }

    /// Whether the row of a record follows from an event that the leader knows.
    pub(crate) fn is_in_log(&self, leader: &Leader, id: RecordId) -> bool {
        let Some((_, version)) = self.store.record(id) else { return false };
        version.epoch == leader.epoch || leader.entry_at(version).is_some()
    }

    /// Whether the judge counts the row of a record. Nothing is promised for a stray of level 2
    /// until it is changed.
    pub(crate) fn counts(&self, leader: &Leader, id: RecordId) -> bool {
        let Some((_, version)) = self.store.record(id) else { return false };
        self.is_in_log(leader, id) || !self.is_epoch_of_level_2(version.epoch)
    }

    /// The indexes whose lists the leader serves, and whose rows no other program wrote.
    pub(crate) fn readable(&self, leader: &Leader, of: Definition) -> Vec<u32> {
        // A record of an event that landed late may lack its entries until the leader meets the
        // event.
        if !leader.is_fenced && self.plan.shape.lands_late() && !self.has(Defect::ListsBeforeFence)
        {
            return Vec::new();
        }
        let damaged = self.damaged.as_ref().and_then(|(key, _)| match key {
            Key::Entry(number, ..) | Key::Holder(number, _) => Some(*number),
            _ => None,
        });
        let readable = leader.list.iter().filter(|index| {
            let progress = leader.progress.get(&index.number);
            index.is_on
                && index.definition == of
                && progress.is_some_and(|progress| progress.may_be_read())
                && !self.tainted.contains(&index.number)
                && damaged != Some(index.number)
        });
        readable.map(|index| index.number).collect()
    }

    pub(crate) fn judge_if_idle(&mut self) -> Checked {
        let Some(leader) = self.leader.take() else { return Ok(()) };
        let is_new = self.judged_writes != self.store.writes;
        let judged = match leader.is_idle() && is_new {
            true => self.judge_lists(&leader),
            false => Ok(()),
        };
        self.leader = Some(leader);
        judged
    }

    /// Each list that can be read equals a scan, and no two active records have one unique key.
    pub(crate) fn judge_lists(&mut self, leader: &Leader) -> Checked {
        self.judged_writes = self.store.writes;
        for number in self.readable(leader, Definition::Index) {
            for ws in 1..=self.plan.workspaces {
                for a in 0..VALUES {
                    self.judge_list(leader, number, (ws, a))?;
                }
            }
        }
        let is_complete = !self.readable(leader, Definition::Unique).is_empty();
        self.is_promised |= is_complete;
        self.is_promised &= !leader.list.iter().any(|index| leader.is_broken(index.number));
        if !is_complete && !self.is_promised {
            return Ok(());
        }
        match self.duplicate(|id| self.counts(leader, id)) {
            None => Ok(()),
            Some((one, other, key)) => {
                violation("unique", format!("{one:?} and {other:?} have {key:?}, which is unique"))
            }
        }
    }

    fn judge_list(&self, leader: &Leader, number: u32, wanted: Equal) -> Checked {
        let known = |id| self.counts(leader, RecordId { ws: wanted.0, id });
        let candidates = self.store.candidates(number, wanted);
        let mut rows = self.listed(wanted, &candidates);
        rows.retain(|(_, id)| known(*id));
        let places = self.store.records().filter_map(|(id, record, _)| {
            let place = Definition::Index.place(id.ws, &record)?;
            (place.equal == wanted).then_some((place.order, id.id))
        });
        let mut scan: Vec<(u8, u64)> = places.filter(|(_, id)| known(*id)).collect();
        scan.sort_unstable();
        if rows != scan {
            let what = format!("the list {wanted:?} of {number} is {rows:?}, and a scan {scan:?}");
            return violation("list", what);
        }
        let mut paged = self.paged(wanted, &candidates);
        paged.retain(|(_, id)| known(*id));
        match paged == scan {
            true => Ok(()),
            false => violation("list", format!("the pages of {wanted:?} are {paged:?}: {scan:?}")),
        }
    }

    /// A list that is read in pages.
    fn paged(&self, wanted: Equal, candidates: &[(u8, u64)]) -> Vec<(u8, u64)> {
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let behind =
                candidates.iter().filter(|entry| after.is_none_or(|after| **entry > after));
            let of_page: Vec<(u8, u64)> = behind.copied().take(PAGE).collect();
            let last = of_page.last().copied().filter(|_| of_page.len() == PAGE);
            let rows = decide::page(self.listed(wanted, &of_page), after, last);
            let is_short = rows.len() < PAGE && self.has(Defect::ShortPageIsLast);
            all.extend(rows);
            match last {
                Some(last) if !is_short => after = Some(last),
                _ => return all,
            }
        }
    }

    /// Two active records of a workspace that have one unique key.
    fn duplicate(&self, counts: impl Fn(RecordId) -> bool) -> Option<(RecordId, RecordId, Equal)> {
        let mut holders: BTreeMap<Equal, RecordId> = BTreeMap::new();
        for (id, record, _) in self.store.records() {
            let Some(place) = Definition::Unique.place(id.ws, &record) else { continue };
            if counts(id)
                && let Some(other) = holders.insert(place.equal, id)
            {
                return Some((other, id, place.equal));
            }
        }
        None
    }

    /// A command was refused because of a unique field: it would have made a second holder.
    pub(crate) fn judge_refusal(
        &self,
        view: &BTreeMap<RecordId, Record>,
        ws: u8,
        changes: &[EventChange],
    ) -> Checked {
        let mut after = view.clone();
        // The group has read all records that it names. Nobody else changes the others.
        for (id, record, _) in self.store.records() {
            after.entry(id).or_insert(record);
        }
        for change in changes {
            after.insert(RecordId { ws, id: change.id }, change.after);
        }
        let key = |id: &RecordId, record: &Record| Definition::Unique.place(id.ws, record);
        let is_held = |change: &EventChange| {
            let id = RecordId { ws, id: change.id };
            let place = key(&id, &change.after);
            place.is_some()
                && after.iter().any(|(other, record)| *other != id && key(other, record) == place)
        };
        match changes.iter().any(is_held) {
            true => Ok(()),
            false => violation("refusal", format!("{changes:?} is refused without need")),
        }
    }

    /// Each acknowledged event is in the log, and each record is as the log says.
    pub(crate) fn judge_log(&self, leader: &Leader) -> Checked {
        for entry in &self.acknowledged {
            let there = leader.log.get(entry.version.plog as usize - 1);
            let is_there = there.is_some_and(|there| {
                there == entry || (there.is_marker() && there.version == entry.version)
            });
            if !is_there {
                return violation("log", format!("{entry:?} is lost; there is {there:?}"));
            }
        }
        let mut records = BTreeMap::new();
        for entry in &leader.log {
            let (Content::Event(changes) | Content::Marker(changes)) = &entry.content else {
                continue;
            };
            for change in changes {
                let id = RecordId { ws: entry.ws, id: change.id };
                records.insert(id, (change.record, entry.version));
            }
        }
        for (id, of_log) in records {
            let row = self.store.record(id);
            if row != Some(of_log) && (row.is_none() || self.is_in_log(leader, id)) {
                return violation("log", format!("{id:?} is {row:?}, and the log says {of_log:?}"));
            }
        }
        Ok(())
    }

    /// The end of the history.
    pub(crate) fn judge_at_rest(&mut self) -> Checked {
        let Some(leader) = self.leader.take() else { return Ok(()) };
        self.judge_log(&leader)?;
        self.judge_lists(&leader)?;
        self.leader = Some(leader);
        Ok(())
    }

    /// Clients resolve the duplicates that existed before the unique field.
    pub(crate) fn free_duplicates(&mut self) -> Checked {
        for _ in 0..3000 {
            if !self.leader.as_ref().is_some_and(Leader::is_idle) {
                self.tick()?;
                continue;
            }
            // A record with an id that no event has drawn cannot be changed.
            let log = self.store.log(1);
            let is_drawn = |id: RecordId| {
                log.iter().any(|entry| entry.ws == id.ws && entry.drawn >= Some(id.id))
            };
            let Some((one, other, _)) = self.duplicate(is_drawn) else { return Ok(()) };
            let Some(mut leader) = self.leader.take() else { continue };
            let id = if self.rng.bool() { one } else { other };
            let edit = crate::commands::Edit { u: Some(None), ..no_edit(Some(id.id)) };
            self.begin_group(&mut leader, vec![Command { ws: id.ws, changes: vec![edit] }]);
            self.leader = Some(leader);
        }
        violation("liveness", "duplicates cannot be resolved".to_owned())
    }
}
