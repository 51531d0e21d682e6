//! The plan of a history, as its seed decides.

use std::{num::NonZeroUsize, time::Duration};

use eventlog::TrustLevel;
use processor::PartitionSettings;
use shop::{ShopNodeSettings, WriteSteps};
use tck::storage::FaultRates;

use crate::{call_turns::Dice, defects::Defect};

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) settings: ShopNodeSettings,
    pub(crate) rates: FaultRates,
    /// The steps of writing a group; `None` if all rows can be written atomically.
    pub(crate) narrow: Option<WriteSteps>,
    /// Whether leaders may begin before the leaders before them have noticed their end.
    pub(crate) overlaps: bool,
    /// The time between a leader and the next one, as a lease makes the next one wait. A write may
    /// land this long after it was sent.
    pub(crate) lease_left: Duration,
    /// Whether events of a leader that had lost its leadership may be lost, and leave rows behind.
    pub(crate) may_lose: bool,
    /// The number of events that fit into the nearly full storage partition, if the history
    /// begins with one.
    pub(crate) past: Option<u64>,
    /// Whether calls of earlier leaders mostly wait while calls of later leaders wait too.
    pub(crate) old_wait: bool,
    /// Of this many chances to change the leader, one is taken.
    pub(crate) calm: u64,
    pub(crate) steps: u64,
    /// Of this many messages to one of three replicas, one is lost or late. `None` if the database
    /// has no replicas.
    pub(crate) replicas_lose_one_in: Option<u64>,
    /// Of this many conditional writes, one is accepted and committed later, if at all.
    pub(crate) one_open_in: Option<u64>,
    /// Whether operators write rows of records again, so that the rows hide ordered writes.
    pub(crate) has_repairs: bool,
    /// Whether a row is in the place of a new one at the end.
    pub(crate) has_obstacle: bool,
    /// Whether the history begins with a write that lands after the next leader has begun.
    pub(crate) begins_late: bool,
}

impl Plan {
    pub(crate) fn of(seed: u64, dice: &Dice, defect: Option<Defect>) -> Plan {
        let fence_is_wrong = defect == Some(Defect::TwoLead);
        let needs_reading_back = defect.is_some_and(Defect::is_of_reading_back);
        let level = match seed % 3 {
            _ if fence_is_wrong || defect == Some(Defect::AdoptedNotWritten) => TrustLevel::Two,
            _ if needs_reading_back || defect == Some(Defect::Phantoms) => TrustLevel::Zero,
            // At level 0 a row that is not replaced is read back, and the partition only waits.
            _ if defect == Some(Defect::HidingNotReported) => TrustLevel::One,
            0 => TrustLevel::Zero,
            1 => TrustLevel::One,
            _ => TrustLevel::Two,
        };
        let is_trusted = level == TrustLevel::Two;
        // At trust level 2 no condition stops a former leader after the first event of the next
        // one. So a history has all promises only without overlaps, and if the next leader waits
        // for late writes. With overlaps, or late writes, events may be lost, and fewer promises
        // are checked.
        let (overlaps, is_late, is_waited_for) =
            match (is_trusted && !fence_is_wrong, dice.below(4)) {
                (false, _) => (true, true, false),
                (true, 0) if defect.is_none() => (true, false, false),
                (true, 1) if defect.is_none() => (true, true, false),
                (true, 2) => (false, true, true),
                (true, _) => (false, false, false),
            };
        let steps =
            [WriteSteps::Of, WriteSteps::Of, WriteSteps::OneByOne, WriteSteps::BeyondAtomic];
        let needs_replicas = defect.is_some_and(Defect::is_of_replicas);
        let needs_steps = needs_reading_back || needs_replicas;
        let narrow = dice.below(3) > 0 || needs_steps;
        let kinds = if needs_steps { 3 } else { 4 };
        let narrow = narrow.then(|| steps[within(dice, kinds)](1 + within(dice, 6)));
        let rate = [0, 10, 30, 80][within(dice, 4)];
        let rates = FaultRates {
            applied_but_error: rate,
            not_applied_but_error: rate,
            applied_late: match is_late {
                // The rate is higher, because only few writes belong to leaders that die before
                // they know the outcome.
                true if is_waited_for => 100 + rate,
                true => rate,
                false => 0,
            },
            unavailable: rate / 2,
            hang: rate / 2,
            slow: rate,
            reply_after_deadline: rate / 2,
            delay: Duration::from_millis(1 + dice.below(400)),
        };
        let reads_back = reads_back(level, narrow);
        // A storage whose conditional writes stay open writes no groups atomically. At level 2 an
        // open write is a late write, and the next leader would have to wait for it.
        let may_be_open = !is_trusted && narrow.is_some();
        let one_open_in = match defect {
            Some(Defect::OlderWrittenConditionally) => Some(2),
            _ => dice.one_in(2).then_some(8),
        };
        let has_replicas = has_steps(narrow) && (dice.one_in(2) || needs_replicas);
        let lost_one_in = losses(defect)[within(dice, 3)];
        let is_lost = overlaps || is_late && !is_waited_for;
        Plan {
            settings: settings(level, dice),
            lease_left: if is_waited_for { rates.delay } else { Duration::ZERO },
            rates,
            narrow,
            overlaps,
            may_lose: is_trusted && !fence_is_wrong && is_lost,
            past: dice.one_in(40).then(|| dice.below(8)),
            old_wait: dice.one_in(2),
            calm: 1 + dice.below(10),
            steps: 100 + dice.below(500),
            replicas_lose_one_in: has_replicas.then_some(lost_one_in),
            one_open_in: one_open_in.filter(|_| may_be_open),
            has_repairs: dice.below(3) > 0,
            has_obstacle: dice.one_in(2) && reads_back,
            begins_late: !is_trusted && seed % 8 == 4,
        }
    }

    /// Whether all rows but those of the log are put and read back, and written conditionally only
    /// if something is odd.
    pub(crate) fn reads_back(&self) -> bool {
        reads_back(self.settings.level, self.narrow)
    }
}

/// One of this many messages to a replica is lost. For one defect, fewer losses seldom leave a row
/// to one replica, and with more losses leaders hardly work.
fn losses(defect: Option<Defect>) -> [u64; 3] {
    match defect {
        Some(Defect::AdoptedNotWritten) => [4; 3],
        _ => [2, 4, 8],
    }
}

fn reads_back(level: TrustLevel, narrow: Option<WriteSteps>) -> bool {
    level == TrustLevel::Zero && has_steps(narrow)
}

/// Whether the storage writes no group atomically, of any size.
fn has_steps(narrow: Option<WriteSteps>) -> bool {
    matches!(narrow, Some(WriteSteps::Of(_) | WriteSteps::OneByOne(_)))
}

fn within(dice: &Dice, end: u64) -> usize {
    usize::try_from(dice.below(end)).unwrap()
}

fn settings(level: TrustLevel, dice: &Dice) -> ShopNodeSettings {
    let mut partition = PartitionSettings::new("simulated");
    partition.queue = 1 + within(dice, 8);
    partition.group_commands = 1 + within(dice, 8);
    partition.group_time = Duration::from_millis(1 + dice.below(100));
    partition.workspaces = 1 + within(dice, 3);
    partition.sequencer.max_unflushed = NonZeroUsize::new(1 + within(dice, 60)).unwrap();
    partition.sequencer.cached_numbers = 1 + within(dice, 20);
    partition.sequencer.flush_delay = Duration::from_millis(dice.below(30));
    partition.sequencer.retry_after = Duration::from_millis(20);
    ShopNodeSettings {
        timeout: Duration::from_millis(90),
        apply_for: Duration::from_millis(dice.below(400)),
        in_view: dice.one_in(3),
        partition,
        ..ShopNodeSettings::at(level)
    }
}
