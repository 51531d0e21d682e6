//! No two leaders of a seat write at the same time, and no write of an earlier leader lands after a
//! later leader began.

use std::{collections::HashMap, time::Duration};

use ielections::{Epoch, Seat};

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct Exclusive {
    seats: HashMap<Seat, Writes>,
}

#[derive(Default)]
struct Writes {
    highest: Option<Epoch>,
    on_their_way: HashMap<Epoch, usize>,
}

impl Invariant for Exclusive {
    fn name(&self) -> &'static str {
        "exclusive"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::WriteSent { seat, epoch } => {
                let writes = self.seats.entry(seat).or_default();
                if let Some(highest) = writes.highest.filter(|highest| *highest > epoch) {
                    return Err(format!(
                        "in seat {seat} epoch {epoch} wrote when {highest} had written already"
                    ));
                }
                let others =
                    writes.on_their_way.iter().find(|(other, n)| **other != epoch && **n > 0);
                if let Some((other, _)) = others {
                    return Err(format!(
                        "in seat {seat} epoch {epoch} wrote when a write of {other} could still land"
                    ));
                }
                writes.highest = Some(epoch);
                *writes.on_their_way.entry(epoch).or_default() += 1;
            }
            Fact::WriteLanded { seat, epoch } => {
                let writes = self.seats.entry(seat).or_default();
                *writes.on_their_way.entry(epoch).or_default() -= 1;
            }
            _ => {}
        }
        Ok(())
    }
}
