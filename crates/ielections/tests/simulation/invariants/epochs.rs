//! Each leadership of a slot has a higher epoch than all before it.

use std::{collections::HashMap, time::Duration};

use ielections::{Epoch, Slot};

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct Epochs {
    last: HashMap<Slot, Epoch>,
}

impl Invariant for Epochs {
    fn name(&self) -> &'static str {
        "epochs"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        if let Fact::Leads { slot, epoch, .. } = *fact {
            let last = self.last.insert(slot, epoch);
            if let Some(last) = last.filter(|last| *last >= epoch) {
                return Err(format!("slot {slot} is led in epoch {epoch} after epoch {last}"));
            }
        }
        Ok(())
    }
}
