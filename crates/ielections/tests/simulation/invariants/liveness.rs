//! If nothing fails, every seat with a candidate has a leader within the printed bound.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use ielections::Seat;

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct Liveness {
    leaders: HashMap<usize, Seat>,
    expected: usize,
}

impl Invariant for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::Leads { process, seat, .. } => {
                self.leaders.insert(process, seat);
            }
            Fact::Lost { process } | Fact::Died { process } => {
                self.leaders.remove(&process);
            }
            Fact::Expected { leaders } => self.expected = leaders,
            Fact::Due => {
                let led: HashSet<Seat> = self.leaders.values().copied().collect();
                if led.len() < self.expected {
                    return Err(format!(
                        "{} seats are led where {} should be by now",
                        led.len(),
                        self.expected
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
