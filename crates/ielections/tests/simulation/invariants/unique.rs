//! No two leaderships of a slot share an epoch, even if clocks stop.

use std::{collections::HashSet, time::Duration};

use ielections::{Epoch, Slot};

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct Unique {
    seen: HashSet<(Slot, Epoch)>,
}

impl Invariant for Unique {
    fn name(&self) -> &'static str {
        "unique"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::Leads { slot, epoch, .. } if !self.seen.insert((slot, epoch)) => {
                Err(format!("slot {slot} is led a second time in epoch {epoch}"))
            }
            _ => Ok(()),
        }
    }
}
