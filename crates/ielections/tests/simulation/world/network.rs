//! The network between the nodes and the store.

use std::time::Duration;

use clock::Instant;
use ielections::engine::{StoreAnswer, StoreCall};

use super::{EXPIRY_DELAY, Event, LEASE, Lead, MILLI, World};
use crate::{defect::Defect, invariants::Fact, store::Judge};

impl World {
    pub(super) fn call(&mut self, process: usize, step: u64, op: StoreCall, deadline: Instant) {
        let writes = !matches!(op, StoreCall::Look | StoreCall::ReadEpoch(_));
        if let (StoreCall::Release { .. }, Some(lead)) = (&op, &self.processes[process].lead) {
            let Lead { is_working, unanswered, .. } = *lead;
            self.observe(Fact::Releases { process, is_working, unanswered });
        }
        if let StoreCall::Take { lease, over, .. } = &op {
            self.record(process, *lease, *over);
            self.claim(process, *lease, *over);
            // A process may be killed at any moment of its start.
            if self.perhaps(20) {
                let dies = self.now + self.between(Duration::ZERO, 60 * MILLI);
                self.at(dies, Event::Crash { process });
            }
        }
        let expired = self.expired(process, &op);
        let node = self.processes[process].node;
        if !self.has(Defect::NoCallTimeout) {
            let at = self.nodes[node].clock.truth(deadline);
            self.at(at, Event::Deadline { process, step, writes });
        }
        if self.nodes[node].cut_off_until > self.now || self.perhaps(self.weather.lost) {
            return;
        }
        let slowest = match () {
            () if self.perhaps(self.weather.late) => 2 * LEASE,
            () if self.perhaps(self.weather.slow) => 2 * self.budget.timing().call_timeout,
            () => 15 * MILLI,
        };
        let arrives = self.now + self.between(MILLI, slowest);
        self.at(arrives, Event::Arrives { process, step, op, expired });
    }

    pub(super) fn arrives(
        &mut self,
        process: usize,
        step: u64,
        op: StoreCall,
        expired: Option<u64>,
    ) {
        let node = self.processes[process].node;
        if self.defect.is_some_and(|defect| defect.forces(&op)) {
            let answer = self.store.force(&op, self.now);
            return self.reply(process, step, &op, answer);
        }
        let judge = self.judge(node, &op, expired);
        if self.has(Defect::GetThenPut) && !matches!(op, StoreCall::Look | StoreCall::ReadEpoch(_))
        {
            match self.store.would_refuse(&op, judge) {
                Some(answer) => self.reply(process, step, &op, answer),
                None => {
                    let puts = self.now + self.between(MILLI, 20 * MILLI);
                    self.at(puts, Event::Forced { process, step, op });
                }
            }
            return;
        }
        let late = EXPIRY_DELAY - self.budget.timing().clock_skew;
        let rounding =
            if self.expires_late { self.between(Duration::ZERO, late) } else { Duration::ZERO };
        let answer = self.store.apply(&op, judge, rounding);
        self.reply(process, step, &op, answer);
    }

    fn judge(&mut self, node: usize, op: &StoreCall, expired: Option<u64>) -> Judge {
        if self.has(Defect::ClientClocks) {
            Judge::Clock(self.now + self.nodes[node].wall_ahead)
        } else if !self.nodes_watch {
            Judge::Clock(self.now + self.between(Duration::ZERO, self.budget.timing().clock_skew))
        } else if self.has(Defect::ReplacesAnyVersion) && expired.is_some() {
            let there = self.store.shows(op).first().map(|shown| shown.version);
            Judge::Node { expired: there }
        } else {
            Judge::Node { expired }
        }
    }

    pub(super) fn reply(&mut self, process: usize, step: u64, op: &StoreCall, answer: StoreAnswer) {
        let node = self.processes[process].node;
        if self.nodes[node].cut_off_until > self.now || self.perhaps(self.weather.lost) {
            return;
        }
        let comes = self.now + self.between(MILLI, 15 * MILLI);
        let shown = self.store.shows(op);
        self.at(comes, Event::Reply { process, step, answer, shown });
    }
}
