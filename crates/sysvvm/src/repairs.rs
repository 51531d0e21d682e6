//! The table of repairs: the rows that operators changed.

use std::time::Duration;

use bytes::Bytes;
use clock::{Instant, WallTime};
use futures::{StreamExt, TryStreamExt};
use istorage::{AppStorageExt, Range, SharedStorage};

use crate::{AppNumber, Result, layout};

/// The repairs of an application. The newest repair of each partition comes first.
#[derive(Clone, Debug)]
pub struct RepairRows {
    storage: SharedStorage,
    app: AppNumber,
}

impl RepairRows {
    pub(crate) fn new(storage: SharedStorage, app: AppNumber) -> RepairRows {
        RepairRows { storage, app }
    }

    /// Stores the description of a repair. This replaces a repair of the same partition in the same
    /// microsecond.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn put(
        &self,
        partition: u16,
        at: WallTime,
        what: Bytes,
        deadline: Instant,
    ) -> Result<()> {
        let key = layout::repair(self.app, partition, at.as_micros());
        Ok(self.storage.put(key, what, deadline).await?)
    }

    /// Reads the descriptions of the last repairs of a partition, the newest first.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn last(
        &self,
        partition: u16,
        count: usize,
        page_timeout: Duration,
    ) -> Result<Vec<Bytes>> {
        let pkey = layout::repairs(self.app, partition);
        let rows = self.storage.read_linearizable(pkey, Range::all(), page_timeout);
        Ok(rows.take(count).map_ok(|row| row.value).try_collect().await?)
    }
}
