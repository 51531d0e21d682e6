//! Forming a group: the commands that are refused, the commands that are added, and the end of the
//! group.

use std::mem;

use clock::Instant;
use isequencer::Transaction;

use super::{pace::SHARE_OF_TIME, runner::GroupRunner};
use crate::{Busy, queue::QueuedCommand};

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
    pub(super) async fn form(&mut self, transaction: &mut Transaction<'_>, start: Instant) {
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
        self.group.unread.ends_group
            || self.group.waiting() >= self.limits.commands
            || self.group.bytes >= self.limits.bytes
    }

    /// The time until which commands are added to a group, counted from `from`. One command of the
    /// group must be answered at `earliest`.
    fn until(&self, from: Instant, earliest: Instant) -> Instant {
        from + self.limits.time.min((earliest - from) / SHARE_OF_TIME)
    }
}
