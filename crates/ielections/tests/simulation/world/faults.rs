//! The faults of nodes, and their ends.

use std::{cmp::Reverse, time::Duration};

use super::{Event, LEASE, MILLI, STORM, World};
use crate::invariants::Fact;

/// How long work takes to stop, at most, when its node leaves.
const LEAVES_WITHIN: Duration = Duration::from_millis(100);

/// The longest time until another node leads, if all calls are answered within 30 ms. A standby
/// looks at least every 240 ms.
const FOLLOWS_WITHIN: Duration = Duration::from_millis(240 + 6 * 30);

impl World {
    pub(super) fn fault(&mut self) {
        if self.is_calm() {
            return;
        }
        let next = self.now + self.between(50 * MILLI, LEASE);
        self.at(next, Event::Fault);
        let node = self.rng.usize(0..self.nodes.len());
        let Some(process) =
            self.nodes[node].process.filter(|process| self.processes[*process].is_alive)
        else {
            return;
        };
        let long = self.between(10 * MILLI, 2 * LEASE).min(STORM - self.now).max(MILLI);
        match self.rng.u32(0..8) {
            0 => self.dies(process, long),
            1 | 2 => self.nodes[node].cut_off_until = self.now + long,
            3 => self.stand_still(process, long),
            4 => {
                // A second process starts beside a process that stands still.
                self.stand_still(process, long);
                let starts = self.now + self.between(MILLI, long);
                self.at(starts, Event::Restart { node });
            }
            // A node that watches leases needs a clock that does not jump.
            5 if !self.nodes_watch => self.jump(node, long),
            6 if self.clocks_stop => self.sleep(node, long),
            _ => self.leave(process),
        }
    }

    /// Stops the work of a process, which then releases its lease.
    fn leave(&mut self, process: usize) {
        let term = self.processes[process].term;
        if self.processes[process].lead.as_ref().is_some_and(|lead| lead.is_working) {
            self.processes[process].is_leaving = true;
            let stops = self.now + self.between(MILLI, LEAVES_WITHIN);
            self.at(stops, Event::WorkStops { process, term });
        }
    }

    /// Lets the clock of a node jump ahead.
    fn jump(&mut self, node: usize, by: Duration) {
        self.nodes[node].clock.ahead += by;
        let now = self.now;
        self.move_timers(node, |at| at.saturating_sub(by).max(now));
    }

    /// Lets a machine sleep. Its clock stops meanwhile.
    fn sleep(&mut self, node: usize, long: Duration) {
        let of_node = |process: &usize| self.processes[*process].node == node;
        let processes: Vec<usize> = (0..self.processes.len()).filter(of_node).collect();
        if processes.iter().any(|process| self.processes[*process].stands_still_until > self.now) {
            return;
        }
        for process in processes {
            self.stand_still(process, long);
        }
        self.nodes[node].clock.ahead -= long;
        self.move_timers(node, |at| at + long);
    }

    /// Moves the events that wait for a time of a node's clock, because that clock has changed.
    fn move_timers(&mut self, node: usize, to: impl Fn(Duration) -> Duration) {
        for Reverse((at, number)) in std::mem::take(&mut self.queue) {
            let timer = self.events.get(&number).filter(|event| event.is_timer());
            let is_here = timer
                .and_then(World::process_of)
                .is_some_and(|process| self.processes[process].node == node);
            self.queue.push(Reverse((if is_here { to(at) } else { at }, number)));
        }
    }

    pub(super) fn stand_still(&mut self, process: usize, long: Duration) {
        let process = &mut self.processes[process];
        process.stands_still_until = process.stands_still_until.max(self.now + long);
        process.resumed = process.stands_still_until;
    }

    pub(super) fn calm(&mut self) {
        for node in 0..self.nodes.len() {
            self.nodes[node].cut_off_until = Duration::ZERO;
            let process = self.nodes[node].process;
            if process.is_none_or(|process| !self.processes[process].is_alive) {
                self.restart(node);
            }
        }
        let settled =
            self.now + 2 * LEASE + self.budget.stop_bound() + self.budget.failover_bound();
        self.at(settled, Event::Settled);
    }

    /// Checks that every seat has a leader. Then ends one leadership, if another node is there to
    /// follow. The history ends when that node must lead.
    pub(super) fn settled(&mut self) {
        let wanted = self.last_seat.get() as usize;
        self.observe(Fact::Expected { leaders: wanted.min(self.nodes.len()) });
        self.observe(Fact::Due);
        let leaders =
            (0..self.processes.len()).filter(|process| self.processes[*process].is_working());
        let leaders: Vec<usize> = leaders.collect();
        let (Some(leader), true) = (self.rng.choice(leaders), self.nodes.len() > wanted) else {
            return self.at(self.now, Event::End);
        };
        let due = if self.rng.bool() {
            self.dies(leader, 10 * LEASE);
            self.budget.failover_bound()
        } else {
            self.leave(leader);
            LEAVES_WITHIN + FOLLOWS_WITHIN
        };
        self.at(self.now + due, Event::End);
    }
}
