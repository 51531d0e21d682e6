//! Each leadership of a seat has a higher epoch than all before it.

use std::{collections::HashMap, time::Duration};

use ielections::{Epoch, Seat};

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct Epochs {
    last: HashMap<Seat, Epoch>,
}

impl Invariant for Epochs {
    fn name(&self) -> &'static str {
        "epochs"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        if let Fact::Leads { seat, epoch, .. } = *fact {
            let last = self.last.insert(seat, epoch);
            if let Some(last) = last.filter(|last| *last >= epoch) {
                return Err(format!("seat {seat} is led in epoch {epoch} after epoch {last}"));
            }
        }
        Ok(())
    }
}
