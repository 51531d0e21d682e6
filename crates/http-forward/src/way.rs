//! The way of one try to the owner of a partition.

use std::sync::Arc;

use http_server::limits::Permit;
use vvm::sysvvm::ownership::{Owner, OwnerRow};

use crate::{log::LogPlace, parking::ParkedPartition, peer::Peer};

/// The way of one try to the owner of a partition: the owner, and what the try holds.
pub(crate) struct Way<'w> {
    pub(crate) peer: &'w Arc<Peer>,
    pub(crate) owner: Owner,
    /// The ownership row by which the owner was found.
    pub(crate) seen: OwnerRow,
    pub(crate) parked: Arc<ParkedPartition>,
    /// The place of a log.
    pub(crate) log: Option<LogPlace>,
    /// The memory for the numbers of a draw.
    pub(crate) drawn: Option<Permit>,
    /// The place of a read among those of its principal.
    pub(crate) _read: Option<Permit>,
    pub(crate) can_be_sent_twice: bool,
}
