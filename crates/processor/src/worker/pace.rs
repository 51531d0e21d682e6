//! The pace of a partition: how long its last groups took.

use std::time::Duration;

/// Adding commands to a group takes at most one part in `SHARE_OF_TIME` of the time that is left to
/// its commands. The rest is for writing them.
pub(super) const SHARE_OF_TIME: u32 = 4;

/// The number of groups that tell how long a group takes. The shortest of them counts, so that one
/// slow group does not make the partition refuse commands that it can do.
const GROUPS: usize = 3;

/// The duration of the last groups that were written one after another.
///
/// Two parts of a group count: the call that reads ahead for several commands, and the write.
/// Without the read, commands would be admitted with time for the write only, and overload would
/// not end. Handlers and the extra reads of one large command do not count.
#[derive(Debug, Default)]
pub(crate) struct GroupPace {
    groups: [Duration; GROUPS],
    /// The duration of the read ahead for the group that is being formed.
    read: Duration,
}

impl GroupPace {
    pub(super) fn note_read(&mut self, commands: usize, took: Duration) {
        self.read = if commands > 1 { took } else { Duration::ZERO };
    }

    pub(crate) fn note_write(&mut self, took: Duration) {
        self.groups.rotate_right(1);
        self.groups[0] = self.read + took;
    }

    /// Forgets all durations. No command waits, so there is no overload, and past groups say
    /// nothing about a later one.
    pub(crate) fn forget(&mut self) {
        *self = GroupPace::default();
    }

    /// The time that a command must have left when its group begins: the shortest of the last
    /// groups, plus a third of it for running the commands.
    pub(super) fn needed(&self) -> Duration {
        let least = self.groups.into_iter().min().unwrap_or_default();
        least * SHARE_OF_TIME / (SHARE_OF_TIME - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a pace from groups that read ahead for several commands. Each pair is the time of
    /// the read and of the write, in milliseconds.
    fn after<const GROUPS: usize>(groups: [(u64, u64); GROUPS]) -> GroupPace {
        let mut pace = GroupPace::default();
        for (read, write) in groups {
            pace.note_read(2, Duration::from_millis(read));
            pace.note_write(Duration::from_millis(write));
        }
        pace
    }

    /// After a pause of the storage the partition would refuse all commands that waited for the end
    /// of the pause.
    #[test]
    fn one_slow_group_among_others_does_not_count() {
        let ms = Duration::from_millis;
        assert_eq!(after([]).needed(), ms(0));
        assert_eq!(after([(45, 45), (45, 6_000), (45, 60)]).needed(), ms(120));
        assert_eq!(after([(0, 2_100), (0, 3_000), (0, 2_500)]).needed(), ms(2_800), "all are slow");
        let quick_again = after([(0, 2_100), (0, 3_000), (0, 2_500), (0, 90)]);
        assert_eq!(quick_again.needed(), ms(120));
    }

    /// A command of 4,096 rows makes 128 calls before it runs. After three such commands, commands
    /// that need one call were refused.
    #[test]
    fn calls_for_one_command_do_not_count() {
        let ms = Duration::from_millis;
        let mut pace = after([(6_000, 30); 3]);
        assert_eq!(pace.needed(), ms(8_040));
        pace.note_read(1, ms(6_000));
        pace.note_write(ms(30));
        assert_eq!(pace.needed(), ms(40));
    }

    /// Three groups were slow, and then the partition was idle. It refused commands that it could
    /// do, no matter how much later they came.
    #[test]
    fn slow_groups_before_a_pause_do_not_count() {
        let mut pace = after([(0, 2_000); 3]);
        pace.forget();
        assert_eq!(pace.needed(), Duration::ZERO);
    }
}
