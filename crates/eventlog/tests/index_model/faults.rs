//! What happens to a partition from outside.

use crate::{
    decide::{self, Place, Progress},
    defect::Defect,
    rows::{Content, Definition, Key, RecordId, RecordPlace, Value},
    store::{Put, Write},
    world::{Checked, World},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Takeover,
    Time,
    Deploy,
    Foreign,
    Damage,
    Heal,
    Replace,
    Rebuild,
    Retire,
    Lower,
    Mark,
    Backup,
    Restore,
    Import,
    SetLevel,
}

impl World {
    pub(crate) fn fault(&mut self) -> Checked {
        let plan = self.plan;
        let possible = [
            (plan.takeover, Fault::Takeover),
            (plan.time, Fault::Time),
            (plan.deploys_later, Fault::Deploy),
            (plan.foreign, Fault::Foreign),
            (plan.damage, Fault::Damage),
            (plan.damage, Fault::Heal),
            (plan.foreign || plan.damage, Fault::Replace),
            (plan.rebuild, Fault::Rebuild),
            (plan.rebuild, Fault::Retire),
            (plan.lower, Fault::Lower),
            (plan.mark, Fault::Mark),
            (plan.backup, Fault::Backup),
            (plan.backup, Fault::Restore),
            (plan.import, Fault::Import),
            (plan.set_level, Fault::SetLevel),
        ];
        let possible: Vec<Fault> =
            possible.into_iter().filter(|(is, _)| *is).map(|(_, fault)| fault).collect();
        if possible.is_empty() {
            return Ok(());
        }
        match possible[self.rng.usize(0..possible.len())] {
            Fault::Takeover => self.take_over(),
            Fault::Time => {
                let days = self.rng.u64(1..10);
                self.note(|| format!("{days} days pass"));
                self.store.today += days;
            }
            Fault::Deploy => {
                if self.store.list().is_empty() && self.rng.u32(0..3) == 0 {
                    self.declare();
                }
            }
            Fault::Foreign => self.write_foreign(),
            Fault::Damage => self.damage(),
            Fault::Heal => self.heal(),
            Fault::Replace => self.replace_unusable(),
            Fault::Rebuild => self.rebuild(),
            Fault::Retire => self.retire(),
            Fault::Lower => self.lower_offset(),
            Fault::Mark => self.mark(),
            Fault::Backup => self.back_up(),
            Fault::Restore => self.restore(),
            Fault::Import => self.import(),
            Fault::SetLevel => self.set_level(),
        }
        Ok(())
    }

    /// The key of an entry of an index that is on.
    fn some_entry(&mut self) -> Option<Key> {
        let of_index = self.store.keys().filter(|key| matches!(key, Key::Entry(..)));
        let existing: Vec<Key> = of_index.copied().collect();
        if !existing.is_empty() && self.rng.bool() {
            return Some(existing[self.rng.usize(0..existing.len())]);
        }
        let list = self.store.list();
        let index = list.get(self.rng.usize(0..list.len().max(1)))?;
        let order = if index.definition == Definition::Index { self.rng.u8(0..3) } else { 0 };
        let equal = (self.rng.u8(1..=self.plan.workspaces), self.rng.u8(0..3));
        let place: RecordPlace = Place { equal, order };
        Some(Key::Entry(index.number, place, self.rng.u64(1..5)))
    }

    /// Another program writes or deletes an entry.
    fn write_foreign(&mut self) {
        let Some(key) = self.some_entry() else { return };
        let is_there = self.store.row(&key).is_some();
        if is_there && !self.plan.shape.lands_late() {
            // The drivers refuse it.
            return;
        }
        let Key::Entry(number, ..) = key else { return };
        let live = self.rng.bool();
        self.note(|| format!("foreign row: {key:?}"));
        self.store.force(key, if live { Value::Live } else { Value::Foreign });
        self.tainted.insert(number);
        self.is_promised = false;
    }

    fn damage(&mut self) {
        if self.damaged.is_some() {
            return;
        }
        let Some(key) = self.some_entry() else { return };
        self.note(|| format!("damaged: {key:?}"));
        let before = self.store.row(&key).cloned();
        self.store.force(key, Value::Damaged);
        self.damaged = Some((key, before));
    }

    /// The damaged row is as it was before.
    pub(crate) fn heal(&mut self) {
        if let Some((key, before)) = self.damaged.take() {
            self.note(|| format!("healed: {key:?}"));
            self.store.restore(key, before);
        }
    }

    /// Indexes that no build can help get new numbers.
    pub(crate) fn replace_unusable(&mut self) {
        let mut list = self.store.list();
        let unusable: Vec<u32> = list
            .iter()
            .map(|index| index.number)
            .filter(|number| {
                self.tainted.contains(number) || self.store.progress(*number) == Progress::Broken
            })
            .collect();
        unusable.iter().for_each(|number| decide::drop_index(&mut list, *number));
        self.is_promised &= unusable.is_empty();
        self.note(|| format!("drops {unusable:?}"));
        self.store.force(Key::Deployment, Value::List(list));
        if self.is_calm {
            self.declare();
        }
    }

    /// An operator builds an index anew that nothing is wrong with.
    fn rebuild(&mut self) {
        let mut list = self.store.list();
        if list.is_empty() || list.len() > 6 {
            return;
        }
        let number = list[self.rng.usize(0..list.len())].number;
        decide::rebuild(&mut list, number);
        if self.has(Defect::RebuildDropsFirst) {
            decide::drop_index(&mut list, number);
        }
        self.note(|| format!("builds {number} anew: {list:?}"));
        self.store.force(Key::Deployment, Value::List(list));
    }

    fn retire(&mut self) {
        let mut list = self.store.list();
        decide::retire(&mut list, |number| {
            self.store.progress(number) == Progress::Complete && !self.tainted.contains(&number)
        });
        self.note(|| format!("retires former numbers: {list:?}"));
        self.store.force(Key::Deployment, Value::List(list));
    }

    fn lower_offset(&mut self) {
        let offset = self.store.stored_offset();
        let lower = self.rng.u64(1..=offset);
        self.note(|| format!("the stored offset is {lower} instead of {offset}"));
        self.store.lower_offset(lower);
    }

    /// An event is damaged, and an operator marks it.
    fn mark(&mut self) {
        self.is_promised = false;
        self.end_leader(true);
        self.settle_rows();
        let log = self.store.log(1);
        let events: Vec<_> = log.into_iter().filter(|entry| !entry.changes().is_empty()).collect();
        let at = match events.len() {
            0 => return,
            len if self.rng.bool() => len - 1,
            len => self.rng.usize(0..len),
        };
        let mut entry = events[at].clone();
        let mut changes = entry.changes().to_vec();
        changes.retain(|change| {
            let row = self.store.record(RecordId { ws: entry.ws, id: change.id });
            row.is_some_and(|(_, version)| version >= entry.version)
        });
        entry.content = Content::Marker(changes);
        self.note(|| format!("marks {entry:?}"));
        self.store.replace(&Key::Plog(entry.version.plog), Value::Log(entry));
    }

    fn back_up(&mut self) {
        if self.damaged.is_none() {
            let copy = (self.store.clone(), self.acknowledged.clone(), self.tainted.clone());
            self.note(|| "backup".to_owned());
            self.backup = Some(copy);
        }
    }

    fn restore(&mut self) {
        let Some((store, acknowledged, tainted)) = self.backup.clone() else { return };
        self.note(|| "restore".to_owned());
        self.end_leader(false);
        self.pool.clear();
        let today = self.store.today;
        self.store = store;
        self.store.today = today;
        (self.acknowledged, self.tainted, self.damaged) = (acknowledged, tainted, None);
        self.is_promised = false;
        self.list_of_node = Default::default();
    }

    /// The application goes into an empty storage: its log and its list of indexes, no other rows.
    fn import(&mut self) {
        self.note(|| "export and import".to_owned());
        self.end_leader(false);
        self.pool.clear();
        let mut entries = self.store.log(1);
        for entry in &mut entries {
            if let Content::Marker(applied) = &mut entry.content {
                applied.clear();
            }
        }
        let list = self.store.list();
        let before = std::mem::take(&mut self.store);
        self.store.today = before.today;
        self.store.expired_rows_reject = before.expired_rows_reject;
        self.store.force(Key::Deployment, Value::List(list));
        let puts: Vec<Put> = Vec::new();
        self.store.apply(&Write { entries, inserts: true, ..Write::of(puts) });
        (self.damaged, self.backup, self.is_promised) = (None, None, false);
        self.tainted.clear();
        self.list_of_node = Default::default();
    }

    fn set_level(&mut self) {
        self.end_leader(true);
        let level = self.rng.u8(0..3);
        if level == 2 || self.plan.level == 2 {
            // The command waits until late writes have landed.
            self.settle_rows();
        }
        if self.plan.level == 2 {
            self.stray_before = self.epoch + 1;
        }
        self.note(|| format!("the level becomes {level}"));
        self.plan.level = level;
    }
}
