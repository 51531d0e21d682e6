//! A lease is released only when its work has stopped and all its writes were answered.

use std::time::Duration;

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct Order;

impl Invariant for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::Releases { process, is_working: true, .. } => {
                Err(format!("process {process} gave its lease away while it worked"))
            }
            Fact::Releases { process, unanswered, .. } if unanswered > 0 => Err(format!(
                "process {process} gave its lease away with {unanswered} writes on their way"
            )),
            _ => Ok(()),
        }
    }
}
