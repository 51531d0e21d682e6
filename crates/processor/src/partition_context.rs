//! The state of a partition that its groups share.

use std::sync::Arc;

use clock::{Clock, WallTime};
use eventlog::{Log, Offset, WsId};
use isequencer::WsKind;

use crate::{
    Application,
    group::ReadAheadRows,
    recent::Recent,
    state::{GroupView, LogEnd, Overlay},
};

/// The state of a partition that its groups share.
#[derive(Debug)]
pub(crate) struct PartitionContext {
    pub(crate) application: Arc<Application>,
    pub(crate) log: Arc<Log>,
    pub(crate) clock: Clock,
    /// The kinds of workspaces that have a stored descriptor.
    pub(crate) kinds: Recent<WsId, WsKind>,
    /// The time of the last event.
    pub(crate) time: WallTime,
    /// The end of the log as this node knows it.
    pub(crate) log_end: LogEnd,
    /// The offset up to which the replay looks for events that rows named and that this node had
    /// not seen.
    pub(crate) searched_to: Offset,
}

impl PartitionContext {
    /// The view of a group with these changes and these rows that were read ahead.
    pub(crate) fn view<'g>(
        &'g self,
        overlay: &'g Overlay,
        ahead: &'g ReadAheadRows,
    ) -> GroupView<'g> {
        GroupView { overlay, ahead, reader: self.log.reader(), log_end: self.log_end }
    }
}
