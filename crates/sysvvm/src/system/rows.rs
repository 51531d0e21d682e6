//! The calls on single rows of the system keyspace.

use std::time::Duration;

use bytes::Bytes;
use clock::Instant;
use istorage::{
    AppStorageExt, Conditional, ErrorKind, Key, Outcome,
    settle::{SettleLimits, write_if_settled},
};

use super::System;
use crate::Result;

/// The longest time of one call. The deadline of the caller bounds all calls together.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of tries to read a row while the storage is unavailable. If one server of a database
/// hangs, one try fails, and afterwards the driver avoids that server.
const READ_TRIES: usize = 3;

impl System {
    pub(super) async fn get(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        let mut tries = 1..READ_TRIES;
        loop {
            let deadline = deadline.min(self.clock.now() + CALL_TIMEOUT);
            match self.storage.get_linearizable(key, deadline).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && tries.next().is_some() => {}
                read => return Ok(read?),
            }
        }
    }

    pub(super) async fn write(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        // A call may take half of the time left, so that a second call can settle an attempt
        // without an answer.
        let call_timeout = CALL_TIMEOUT.min((deadline - self.clock.now()) / 2);
        let limits = SettleLimits { call_timeout, until: deadline };
        Ok(write_if_settled(&*self.storage, &self.clock, pkey, ops, limits).await?)
    }

    /// Returns the bytes of a row. If there is no row, the call writes `ours`. If several nodes
    /// call at once, exactly one of them writes the row.
    pub(super) async fn get_or_insert(
        &self,
        key: Key,
        ours: Bytes,
        deadline: Instant,
    ) -> Result<Bytes> {
        if let Some(there) = self.get(&key, deadline).await? {
            return Ok(there);
        }
        let insert = Conditional::Insert { ccols: key.ccols, value: ours.clone(), ttl: None };
        match self.write(key.pkey, vec![insert], deadline).await? {
            Outcome::Applied => Ok(ours),
            Outcome::NotApplied(mut conflicts) => {
                Ok(conflicts.pop().and_then(|conflict| conflict.actual).unwrap_or_default())
            }
        }
    }
}
