//! No two leaderships of a seat share an epoch, even if clocks stop.

use std::{collections::HashSet, time::Duration};

use ielections::{Epoch, Seat};

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct Unique {
    seen: HashSet<(Seat, Epoch)>,
}

impl Invariant for Unique {
    fn name(&self) -> &'static str {
        "unique"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::Leads { seat, epoch, .. } if !self.seen.insert((seat, epoch)) => {
                Err(format!("seat {seat} is led a second time in epoch {epoch}"))
            }
            _ => Ok(()),
        }
    }
}
