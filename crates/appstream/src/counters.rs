//! The counters and ranges of a stream, and their order.

use std::collections::HashSet;

use docnumbers::CounterKey;
use sha2::{Digest, Sha256};

/// The counters before a line.
///
/// Invariant: a counter comes once, after all its ranges, and is not lower than their ends. So a
/// node that starts after the import reserves no counter a second time, and no two rows of the
/// stream have the same key.
#[derive(Debug, Default)]
pub(crate) struct CountersSoFar {
    /// The digest of each counter. A digest takes 16 bytes, so a stream with a million counters
    /// takes some 40 MiB: the only memory of the check that grows with the stream.
    seen: HashSet<u128>,
    /// The counter of the ranges before the line, and their last row.
    open: Option<OpenLedger>,
}

/// The ranges of a counter that has not come yet.
#[derive(Debug)]
struct OpenLedger {
    of: CounterKey,
    /// The first counter of the last range.
    first: u64,
    /// The highest end of the ranges.
    end: u64,
}

impl CountersSoFar {
    /// Takes a range. Ranges may overlap: a node may have given a range back while the export read
    /// the ledger.
    pub(crate) fn range(
        &mut self,
        of: &CounterKey,
        first: u64,
        until: u64,
    ) -> Result<(), &'static str> {
        match &mut self.open {
            Some(open) if open.of == *of => {
                if first <= open.first {
                    return Err("the stream has the range twice, or not in the order of ranges");
                }
                (open.first, open.end) = (first, until.max(open.end));
            }
            Some(_) => return Err(NO_COUNTER),
            None => {
                if self.seen.contains(&digest(of)) {
                    return Err("the counter of the range is before it");
                }
                self.open = Some(OpenLedger { of: of.clone(), first, end: until });
            }
        }
        Ok(())
    }

    /// Takes a counter.
    pub(crate) fn counter(&mut self, of: &CounterKey, next: u64) -> Result<(), &'static str> {
        let end = match self.open.take() {
            Some(open) if open.of == *of => open.end,
            Some(_) => return Err(NO_COUNTER),
            None => 0,
        };
        if !self.seen.insert(digest(of)) {
            return Err("the stream has the counter twice");
        }
        match next < end {
            true => Err("the counter is lower than the end of its ranges"),
            false => Ok(()),
        }
    }

    /// Takes the end of the stream.
    pub(crate) fn end(&self) -> Result<(), &'static str> {
        if self.open.is_some() { Err(NO_COUNTER) } else { Ok(()) }
    }
}

const NO_COUNTER: &str = "the ranges before it have no counter after them";

fn digest(CounterKey { series, period, ws }: &CounterKey) -> u128 {
    let ws = ws.map(|ws| ws.0);
    let digest: [u8; 32] = Sha256::digest(format!("{series} {period} {ws:?}")).into();
    digest.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}
