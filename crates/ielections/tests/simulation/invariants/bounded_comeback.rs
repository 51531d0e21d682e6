//! A node that comes back and cannot lead keeps the seat only while writes of its former process
//! may land.

use std::time::Duration;

use super::{Fact, Invariant};

#[derive(Default)]
pub(crate) struct BoundedComeback;

impl Invariant for BoundedComeback {
    fn name(&self) -> &'static str {
        "bounded_comeback"
    }

    fn on(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::ReplacedOwn { process, late } if !late.is_zero() => Err(format!(
                "process {process} replaced its own lease, sent {late:?} after former writes could land"
            )),
            _ => Ok(()),
        }
    }
}
