//! What goes wrong with nodes, and how it ends.

use std::time::Duration;

use super::{Event, LEASE, MILLI, STORM, World};
use crate::invariants::Fact;

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
        match self.rng.u32(0..6) {
            0 => self.dies(process, long),
            1 | 2 => self.nodes[node].cut_off_until = self.now + long,
            3 => self.stand_still(process, long),
            4 => {
                // Somebody starts a second process beside one that stands still.
                self.stand_still(process, long);
                let starts = self.now + self.between(MILLI, long);
                self.at(starts, Event::Restart { node });
            }
            _ => {
                let term = self.processes[process].term;
                if self.processes[process].lead.as_ref().is_some_and(|lead| lead.is_working) {
                    self.processes[process].is_leaving = true;
                    let stops = self.now + self.between(MILLI, 100 * MILLI);
                    self.at(stops, Event::WorkStops { process, term });
                }
            }
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
        let waiting = self.nodes.len();
        self.tell(Fact::Calm { slots: self.slots.get(), waiting });
        // What was under way may end, what was late may land, and then somebody leads.
        let ends = self.now + 2 * LEASE + self.budget.stop_bound() + self.budget.failover_bound();
        self.at(ends, Event::CalmEnds);
    }
}
