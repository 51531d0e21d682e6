//! Forming a group: the commands that are refused, the commands that are added, and the end of the
//! group.

use std::{mem, time::Duration};

use clock::Instant;
use isequencer::Transaction;

use super::GroupRunner;
use crate::{Busy, queue::QueuedCommand};

/// Adding commands to a group takes at most one part in `SHARE_OF_TIME` of the time that is left to
/// its commands. The rest is for writing them.
const SHARE_OF_TIME: u32 = 4;

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
    fn note_read(&mut self, commands: usize, took: Duration) {
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
    fn needed(&self) -> Duration {
        let least = self.groups.into_iter().min().unwrap_or_default();
        least * SHARE_OF_TIME / (SHARE_OF_TIME - 1)
    }
}

impl GroupRunner {
    /// Takes commands from the queue. A command that has less time left than a group needs is
    /// refused: it would be done too late, and commands that can be done in time would wait for it.
    /// If there is no other command, the last of the late commands is tried, so that the partition
    /// notices when groups become quick again.
    fn fill(&mut self) {
        let now = self.partition.clock.now();
        let in_time = now + self.pace.needed();
        let mut before = mem::take(&mut self.waiting);
        let mut late: Option<QueuedCommand> = None;
        while self.group.waiting() + self.waiting.len() < self.limits.commands
            && let Some(queued) = before.pop_front().or_else(|| self.queue.try_recv().ok())
        {
            let deadline = queued.command.deadline;
            if !queued.reply.is_awaited() {
                continue;
            }
            let Some(queued) = self.refuse_if_wrote_too_much(queued, now) else { continue };
            if deadline >= in_time && deadline > now {
                self.waiting.push_back(queued);
            } else if deadline <= now {
                queued.reply.refuse(&Busy::TimedOut);
            } else if let Some(former) = late.replace(queued) {
                former.reply.refuse(&Busy::TimedOut);
            }
        }
        self.waiting.append(&mut before);
        match late {
            Some(late) if self.waiting.is_empty() && self.group.waiting() == 0 => {
                self.waiting.push_back(late);
            }
            Some(late) => late.reply.refuse(&Busy::TimedOut),
            None => {}
        }
    }

    /// Refuses a command if the commands of its sender wrote too much. Otherwise returns it.
    fn refuse_if_wrote_too_much(
        &self,
        queued: QueuedCommand,
        now: Instant,
    ) -> Option<QueuedCommand> {
        match self.partition.write_allowance.pause(&queued.command.principal, now) {
            Some(pause) => {
                queued.reply.refuse(&Busy::WroteTooMuch(pause));
                None
            }
            None => Some(queued),
        }
    }

    /// Runs waiting commands one after another, until the group is full or its time is over. Rows
    /// are read ahead for many commands at once. Reads one by one could take longer than the first
    /// command can wait.
    pub(super) async fn form(&mut self, transaction: &mut Transaction<'_>) {
        let start = self.partition.clock.now();
        let mut earliest = Instant::FAR_FUTURE;
        loop {
            self.fill();
            let filled = self.partition.clock.now();
            let commands =
                self.group.read_ahead(&mut self.partition, transaction, &self.waiting).await;
            self.waiting.iter_mut().take(commands).for_each(|queued| queued.was_read_ahead = true);
            // The rows that were read for a command are used, if running the commands does not take
            // long.
            let read = self.partition.clock.now();
            if self.group.waiting() == 0 {
                self.pace.note_read(commands, read - filled);
            }
            let mut now = read;
            for _ in 0..commands {
                let Some(queued) = self.waiting.pop_front() else { return };
                // The sender may have used up its allowance with the commands before.
                let Some(queued) = self.refuse_if_wrote_too_much(queued, now) else { continue };
                let (since, deadline) = (queued.since, queued.command.deadline);
                if deadline <= now {
                    queued.reply.refuse(&Busy::TimedOut);
                    continue;
                }
                let before = self.group.waiting();
                // The other commands of the group would have to wait for a slow handler. A handler
                // that runs past `until` is dropped, and run again as the first of the next group.
                let until = match before {
                    0 => deadline,
                    _ => self.until(now, earliest),
                };
                let added = self.group.add(&mut self.partition, transaction, queued, until).await;
                if let Some(back) = added {
                    self.waiting.push_front(back);
                    return;
                }
                // Some commands arrive while the group is being formed. Their waiting time counts
                // as zero.
                self.shared.meters.waited(start - since);
                if self.group.waiting() > before {
                    earliest = earliest.min(deadline);
                }
                now = self.partition.clock.now();
                if self.is_full() || now >= self.until(read, earliest) {
                    return;
                }
            }
            if commands == 0 || now >= self.until(start, earliest) {
                return;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.group.has_failed_read
            || self.group.waiting() >= self.limits.commands
            || self.group.bytes >= self.limits.bytes
    }

    /// The time until which commands are added to a group, counted from `from`. One command of the
    /// group must be answered at `earliest`.
    fn until(&self, from: Instant, earliest: Instant) -> Instant {
        from + self.limits.time.min((earliest - from) / SHARE_OF_TIME)
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
