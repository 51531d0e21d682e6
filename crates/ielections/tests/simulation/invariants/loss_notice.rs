//! A process that does not stand still knows at the end of its leadership that the leadership is
//! over.

use std::time::Duration;

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct LossNotice;

impl Invariant for LossNotice {
    fn name(&self) -> &'static str {
        "loss_notice"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::LossNotNoticed { process, late } => {
                Err(format!("process {process} was not told {late:?} after its leadership ended"))
            }
            _ => Ok(()),
        }
    }
}
