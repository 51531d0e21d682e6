//! A counter that a node holds.

use clock::Instant;
use futures::future::{BoxFuture, Shared};

use super::{held::HeldRanges, reserve::KnownRows};
use crate::{CounterKey, DocNumberError, Period, Series, WsId};

/// A task that uses the rows of a counter. All draws that need the rows wait for the same task.
pub(crate) type RowsTask = Shared<BoxFuture<'static, Result<(), DocNumberError>>>;

/// The name of a counter of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CounterName {
    pub(crate) period: Period,
    /// `None` if the application has one counter.
    pub(crate) ws: Option<WsId>,
}

impl CounterName {
    /// The name of the stored rows.
    pub(crate) fn key(self, series: &Series) -> CounterKey {
        CounterKey { series: series.id().clone(), period: self.period, ws: self.ws }
    }
}

/// A counter with ranges that the node holds.
#[derive(Debug)]
pub(crate) struct HeldCounter {
    pub(crate) ranges: HeldRanges,
    pub(crate) rows: RowsState,
    /// After a failed reservation: the moment before which no other reservation begins, and the
    /// error.
    pub(crate) failed: Option<(Instant, DocNumberError)>,
}

/// The user of the rows of a held counter.
#[derive(Debug)]
pub(crate) enum RowsState {
    /// No task uses the rows.
    Idle(KnownRows),
    /// A task reserves a range. It takes what is known of the rows when it begins.
    Refilling(RowsTask, Option<KnownRows>),
}

impl HeldCounter {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.rows, RowsState::Idle(_))
    }
}
