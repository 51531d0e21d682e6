//! What may happen in a history.

use fastrand::Rng;

use crate::defect::Defect;

/// What a storage can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One process, one file: each call is atomic, and nothing lands late.
    Redb,
    /// A group is one atomic call, and the entries are calls of their own. Writes may land late.
    Dynamo,
    /// The events are one call, and each other row is a call of its own. Writes may land late.
    Cassandra,
    /// As redb, without files to damage, back up or restore.
    Memory,
}

impl Shape {
    pub(crate) const ALL: [Shape; 4] =
        [Shape::Redb, Shape::Dynamo, Shape::Cassandra, Shape::Memory];

    pub(crate) fn writes_groups_atomically(self) -> bool {
        self != Shape::Cassandra
    }

    pub(crate) fn lands_late(self) -> bool {
        matches!(self, Shape::Dynamo | Shape::Cassandra)
    }
}

/// A history has only some kinds of faults, so that each of them meets all parts of the design.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) level: u8,
    pub(crate) steps: u32,
    pub(crate) workspaces: u8,
    pub(crate) expired_rows_reject: bool,
    /// Calls without an answer, in thousandths.
    pub(crate) lost: u32,
    pub(crate) late: u32,
    pub(crate) crash: u32,
    pub(crate) partial: u32,
    pub(crate) takeover: bool,
    /// A thread stands still between its look at the lease and its write, even at level 2.
    pub(crate) stalls_at_level_2: bool,
    pub(crate) time: bool,
    pub(crate) foreign: bool,
    pub(crate) damage: bool,
    pub(crate) rebuild: bool,
    pub(crate) lower: bool,
    pub(crate) mark: bool,
    pub(crate) backup: bool,
    pub(crate) import: bool,
    pub(crate) set_level: bool,
    /// The indexes are declared when there are records.
    pub(crate) deploys_later: bool,
    /// Commands mostly change the newest records, so that a build meets each old one once.
    pub(crate) favours_new: bool,
    /// An idle leader begins something in one of so many steps.
    pub(crate) idle: u32,
    /// How often builds and readers do a step, in hundredths.
    pub(crate) build_share: u32,
    pub(crate) reader_share: u32,
    /// One of the nodes has a program that declares no index.
    pub(crate) two_programs: bool,
}

impl Plan {
    pub(crate) fn of(rng: &mut Rng, defect: Option<Defect>) -> Plan {
        let mut one_in = |times: u32| rng.u32(0..times) == 0;
        let mut plan = Plan {
            shape: Shape::Redb,
            level: 0,
            steps: 0,
            workspaces: if one_in(3) { 2 } else { 1 },
            expired_rows_reject: one_in(2),
            lost: if one_in(2) { 30 } else { 0 },
            late: if one_in(2) { 50 } else { 0 },
            crash: if one_in(2) { 15 } else { 0 },
            partial: if one_in(3) { 150 } else { 0 },
            takeover: one_in(2),
            stalls_at_level_2: one_in(2),
            time: one_in(3),
            foreign: one_in(6),
            damage: one_in(6),
            rebuild: one_in(6),
            lower: one_in(4),
            mark: one_in(5),
            backup: one_in(8),
            import: one_in(10),
            set_level: one_in(6),
            deploys_later: one_in(2),
            favours_new: one_in(2),
            idle: 0,
            build_share: 0,
            reader_share: 0,
            two_programs: one_in(3),
        };
        plan.idle = rng.u32(1..5);
        plan.build_share = rng.u32(10..50);
        plan.reader_share = rng.u32(3..20);
        plan.shape = Shape::ALL[rng.usize(0..4)];
        plan.level = rng.u8(0..3);
        plan.steps = rng.u32(80..400);
        if plan.shape == Shape::Memory {
            (plan.damage, plan.backup) = (false, false);
        }
        plan.favour(defect);
        plan
    }

    /// Leaders end often, and nothing else happens.
    fn only_takeovers(&mut self) {
        (self.takeover, self.late, self.crash) = (true, 50, 15);
        (self.time, self.foreign, self.damage, self.lower) = (false, false, false, false);
        self.rebuild = false;
        (self.mark, self.backup, self.import, self.set_level) = (false, false, false, false);
    }

    /// A history of a mistake has what the mistake needs.
    fn favour(&mut self, defect: Option<Defect>) {
        let Some(defect) = defect else { return };
        match defect {
            Defect::EntriesInLateCall
            | Defect::SharedLateCall
            | Defect::StraysByLog
            | Defect::TrustsStrays => {
                self.only_takeovers();
                (self.shape, self.level, self.stalls_at_level_2) = (Shape::Dynamo, 2, true);
            }
            Defect::EntriesWithoutLease => {
                self.only_takeovers();
                (self.shape, self.level, self.stalls_at_level_2) = (Shape::Cassandra, 2, true);
            }
            Defect::EntriesOfUncommitted | Defect::RefusesByUncommitted => {
                (self.shape, self.partial) = (Shape::Cassandra, 150);
                self.level = self.level.min(1);
            }
            Defect::MarkerKeepsProgress | Defect::BuildFromLog | Defect::BuildSkipsMarkers => {
                self.mark = true;
                self.deploys_later = defect != Defect::MarkerKeepsProgress;
            }
            Defect::EntryFailsCommand | Defect::BrokenInMemory | Defect::UniqueSkipsDamaged => {
                self.damage = true
            }
            Defect::RecoveryObeysProgress
            | Defect::PlainProgress
            | Defect::BuildBeforeFence
            | Defect::BuildLooksAtOnce
            | Defect::DuplicatesInMemory => self.favour_builds(defect),
            Defect::DeclaredOnly | Defect::ListOfNodeStart => {
                (self.two_programs, self.takeover, self.deploys_later) = (true, true, true);
            }
            Defect::OneRowPerKey | Defect::OneRowNeverFreed => {
                (self.deploys_later, self.favours_new) = (true, true)
            }
            Defect::ListsBeforeFence => {
                self.only_takeovers();
                (self.shape, self.idle) = (Shape::Dynamo, 6);
                self.level = self.level.min(1);
            }
            Defect::RebuildDropsFirst => {
                self.only_takeovers();
                self.rebuild = true;
            }
            Defect::PageDoesNotWait => {
                self.only_takeovers();
                (self.deploys_later, self.takeover, self.crash) = (false, false, 0);
                (self.workspaces, self.build_share, self.reader_share) = (1, 10, 40);
                self.late = 0;
                if !self.shape.lands_late() {
                    self.shape = Shape::Dynamo;
                }
            }
            _ => {}
        }
    }

    /// Leaders end often while indexes are built.
    fn favour_builds(&mut self, defect: Defect) {
        self.only_takeovers();
        (self.deploys_later, self.favours_new) = (true, true);
        (self.crash, self.build_share, self.steps) = (25, 40, self.steps + 200);
        match defect {
            Defect::PlainProgress => (self.mark, self.crash, self.late) = (true, 60, 100),
            Defect::BuildBeforeFence => self.idle = 12,
            Defect::BuildLooksAtOnce => (self.idle, self.crash) = (1, 15),
            _ => {}
        }
        if defect != Defect::DuplicatesInMemory && !self.shape.lands_late() {
            self.shape = Shape::Cassandra;
        }
    }
}
