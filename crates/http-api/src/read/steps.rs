//! The steps of a read that computes for long.

use tokio::task::yield_now;

use super::record::STEP_BYTES;

/// The number of records that one step examines.
const STEP_RECORDS: usize = 100;

/// Ends the step of a read after some records or bytes, so that the other requests on the same
/// thread get their turn.
#[derive(Debug, Default)]
pub(super) struct ReadSteps {
    records: usize,
    bytes: usize,
}

impl ReadSteps {
    /// Notes that a record was examined and added this many bytes to the answer.
    pub(super) async fn examined(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes;
        if self.records == STEP_RECORDS || self.bytes >= STEP_BYTES {
            *self = ReadSteps::default();
            yield_now().await;
        }
    }
}
