//! Judges the rows of answers and the attempts of conditional writes by the [leases](crate::lease)
//! that this node has seen.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Instant;
use istorage::{Conditional, Error, FoundRow, Result};

use crate::{
    layout::{self, Item, ItemContent, ItemExpiry},
    lease::{AttemptTerms, RowId, StoredLease},
    table::KeyspaceTable,
    time::ServiceTime,
};

/// How long a row still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowLife {
    Expired,
    Left(Duration),
    /// The row does not expire.
    Unlimited,
}

/// The times of a read and of its answer. All rows of the answer are judged by these times.
///
/// A version that the answer shows was still there when the read was sent. It may have been
/// replaced before the answer was looked at: a process may stand still in between.
#[derive(Debug)]
pub(crate) struct AnswerTime {
    table: KeyspaceTable,
    sent: Instant,
    came: Instant,
    time: ServiceTime,
}

impl AnswerTime {
    pub(crate) fn row_life(&self, pkey: &Bytes, ccols: &Bytes, stored: &ItemContent) -> RowLife {
        let left = match stored.expiry {
            ItemExpiry::Watched(lease) => {
                let row = row_id(&self.table, pkey, ccols);
                self.table.connection.watch().record(row, lease, self.came).left(self.sent)
            }
            ItemExpiry::At(expires) => layout::time_left(expires, self.time),
            ItemExpiry::Never => return RowLife::Unlimited,
        };
        left.map_or(RowLife::Expired, RowLife::Left)
    }

    /// The row of an item, if it lives.
    pub(crate) fn live_row(
        &self,
        pkey: &Bytes,
        ccols: &Bytes,
        item: Option<Item>,
    ) -> Result<Option<FoundRow>> {
        let Some(mut item) = item else { return Ok(None) };
        let stored = ItemContent::read(&mut item)?;
        let lives = self.row_life(pkey, ccols, &stored) != RowLife::Expired;
        let hides_ordered = stored.rank.is_none();
        Ok(lives.then_some(FoundRow { value: stored.value, hides_ordered }))
    }
}

/// The leases among the rows of a table.
pub(crate) struct TableLeases<'t>(pub(crate) &'t KeyspaceTable);

impl TableLeases<'_> {
    /// Takes the times that judge the rows of an answer. Call this when the answer has come to a
    /// read that was sent at `sent` or later.
    pub(crate) fn answer_time(&self, sent: Instant) -> Result<AnswerTime> {
        let (came, time) = (self.0.connection.clock().now(), self.0.connection.service_time()?);
        Ok(AnswerTime { table: self.0.clone(), sent, came, time })
    }

    /// The terms of one attempt of a conditional write.
    pub(crate) fn attempt_terms(&self, pkey: &Bytes, op: &Conditional) -> AttemptTerms {
        let clock = self.0.connection.clock();
        let at = clock.now();
        let expired = self.0.connection.watch().expired(&row_id(self.0, pkey, op.ccols()), at);
        let lease = op.ttl().map(|ttl| StoredLease::new(clock.random().max(1), ttl));
        AttemptTerms { at, expired, lease }
    }

    /// Notes that an attempt was applied.
    pub(crate) fn record_applied(&self, pkey: &Bytes, op: &Conditional, terms: AttemptTerms) {
        let (row, watch) = (row_id(self.0, pkey, op.ccols()), self.0.connection.watch());
        match terms.lease {
            Some(lease) => drop(watch.record(row, lease, self.0.connection.clock().now())),
            None => watch.forget(&row),
        }
    }

    /// The value of the row that refused an attempt; `None` if there is no row.
    ///
    /// # Errors
    /// `Unavailable` if an insert was refused although no row is there. No condition of an insert
    /// has that result.
    pub(crate) fn present_value(
        &self,
        pkey: &Bytes,
        op: &Conditional,
        item: Option<Item>,
        terms: AttemptTerms,
    ) -> Result<Option<Bytes>> {
        let stored = item.map(|mut item| ItemContent::read(&mut item)).transpose()?;
        let row = row_id(self.0, pkey, op.ccols());
        let lives = |stored: &ItemContent| {
            let ItemExpiry::Watched(lease) = stored.expiry else { return true };
            let now = self.0.connection.clock().now();
            self.0.connection.watch().record(row, lease, now).left(terms.at).is_some()
        };
        let there = stored.filter(lives).map(|stored| stored.value);
        match (op.expected(), &there) {
            (None, None) => Err(refused_without_item()),
            _ => Ok(there),
        }
    }
}

fn row_id(table: &KeyspaceTable, pkey: &Bytes, ccols: &Bytes) -> RowId {
    (Arc::clone(&table.name), pkey.clone(), ccols.clone())
}

/// The error for a write that the service refused because of an item that it did not show.
pub(crate) fn refused_without_item() -> Error {
    Error::unavailable("DynamoDB refused a write because of a row that it did not show")
}
