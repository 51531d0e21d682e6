//! Forming a group: which commands are refused, which are added, and when the group ends.

use std::{mem, time::Duration};

use clock::Instant;
use isequencer::Transaction;

use super::Groups;
use crate::{Busy, queue::Queued};

/// Adding others to a group takes one of so many parts of the time that is left to its commands:
/// the rest is for writing them.
const SHARE_OF_TIME: u32 = 4;

/// How many groups say how long a group takes: the shortest of them. One slow group must not make
/// the partition refuse what it can do.
const GROUPS: usize = 3;

/// How long the last groups took that were written, from their begin to their answers.
#[derive(Debug, Default)]
pub(crate) struct Pace([Duration; GROUPS]);

impl Pace {
    pub(crate) fn note(&mut self, took: Duration) {
        self.0.rotate_right(1);
        self.0[0] = took;
    }

    /// How long the next group takes at least, as far as can be known.
    fn least(&self) -> Duration {
        self.0.into_iter().min().unwrap_or_default()
    }
}

impl Groups {
    /// Takes commands from the queue. A command whose deadline is before `in_time` is refused: it
    /// would be done too late, and commands that can be done in time would wait for it. If there is
    /// no other command, the last of those is tried, so that the partition notices when groups
    /// become quick again.
    fn fill(&mut self, in_time: Instant) {
        let now = self.means.clock.now();
        let mut before = mem::take(&mut self.waiting);
        let mut late: Option<Queued> = None;
        while self.group.waiting() + self.waiting.len() < self.limits.commands
            && let Some(queued) = before.pop_front().or_else(|| self.queue.try_recv().ok())
        {
            let deadline = queued.command.deadline;
            if !queued.reply.is_awaited() {
                continue;
            }
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

    /// Runs commands that wait, one after another, until the group is full or its time is over. What
    /// they need is read ahead for many of them: read one by one, it could take longer than the
    /// first command can wait.
    pub(super) async fn form(&mut self, transaction: &mut Transaction<'_>) {
        let start = self.means.clock.now();
        let in_time = start + self.pace.least();
        let mut earliest = Instant::FAR_FUTURE;
        loop {
            self.fill(in_time);
            let ahead = self.group.read_ahead(&mut self.means, transaction, &self.waiting).await;
            self.waiting.iter_mut().take(ahead).for_each(|queued| queued.is_read_for = true);
            // What was read for a command is used, if running it does not take long.
            let read = self.means.clock.now();
            let mut now = read;
            for _ in 0..ahead {
                let Some(queued) = self.waiting.pop_front() else { return };
                let (since, deadline) = (queued.since, queued.command.deadline);
                if deadline <= now {
                    queued.reply.refuse(&Busy::TimedOut);
                    continue;
                }
                let before = self.group.waiting();
                // A handler that the others of the group would have to wait for is run again as the
                // first of the next group.
                let until = match before {
                    0 => deadline,
                    _ => self.until(now, earliest),
                };
                let added = self.group.add(&mut self.means, transaction, queued, until).await;
                if let Some(back) = added {
                    self.waiting.push_front(back);
                    return;
                }
                // Some come while the group is being formed.
                self.shared.meters.waited(start - since);
                if self.group.waiting() > before {
                    earliest = earliest.min(deadline);
                }
                now = self.means.clock.now();
                if self.is_full() || now >= self.until(read, earliest) {
                    return;
                }
            }
            if ahead == 0 || now >= self.until(start, earliest) {
                return;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.group.is_hindered
            || self.group.waiting() >= self.limits.commands
            || self.group.bytes >= self.limits.bytes
    }

    /// Until when commands are added to a group, from a moment on, one of which must be answered at
    /// the earliest deadline.
    fn until(&self, from: Instant, earliest: Instant) -> Instant {
        from + self.limits.time.min((earliest - from) / SHARE_OF_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause of the storage would make the partition refuse all that waited for its end.
    #[test]
    fn one_slow_group_among_others_does_not_count() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert_eq!(pace.least(), ms(0));
        [90, 6_000, 80].into_iter().for_each(|took| pace.note(ms(took)));
        assert_eq!(pace.least(), ms(80));
        [2_000, 3_000, 2_500].into_iter().for_each(|took| pace.note(ms(took)));
        assert_eq!(pace.least(), ms(2_000), "all are slow now");
        pace.note(ms(90));
        assert_eq!(pace.least(), ms(90));
    }
}
