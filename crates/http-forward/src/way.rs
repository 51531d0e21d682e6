//! The way of one try to the owner of a partition.

use std::sync::Arc;

use http_server::limits::{Asker, Full, Need, Permit, take};
use vvm::sysvvm::ownership::{Owner, OwnerRow};

use crate::{
    limits::{HeldOfPartition, HeldOfPeer, PartitionLimits},
    log::LogPermits,
    peer::Peer,
};

/// The way of one try to the owner of a partition: the owner, and what the try holds.
pub(crate) struct Way<'w> {
    pub(crate) peer: &'w Arc<Peer>,
    pub(crate) owner: Owner,
    /// The ownership row that named the owner.
    pub(crate) seen: OwnerRow,
    pub(crate) partition: Arc<PartitionLimits>,
    /// What the request keeps over its tries.
    pub(crate) held: &'w mut HeldOfPartition,
    /// The permits of a log.
    pub(crate) log: Option<LogPermits>,
    /// The memory for the numbers of a draw.
    pub(crate) drawn: Option<Permit>,
    pub(crate) can_be_sent_twice: bool,
}

impl Way<'_> {
    /// Takes everything that a try needs on its way, with a body of this many bytes.
    ///
    /// # Errors
    /// The limit that refuses the request, or [has no room in time](Full::is_late) for it.
    pub(crate) async fn enter(&mut self, who: Asker<'_>, bytes: usize) -> Result<HeldOfPeer, Full> {
        let Way { peer, partition, held, log, .. } = self;
        let connection = log.as_mut().and_then(LogPermits::take_connection);
        let mut entered = HeldOfPeer { connection, ..HeldOfPeer::default() };
        let needs = &mut [
            Need { limit: &partition.requests, units: 1, held: &mut held.requests },
            Need { limit: &partition.bytes, units: bytes, held: &mut held.bytes },
            Need { limit: &peer.limits.requests, units: 1, held: &mut entered.requests },
            Need { limit: &peer.limits.bytes, units: bytes, held: &mut entered.bytes },
            Need { limit: &partition.tries, units: 1, held: &mut held.tries },
            Need { limit: &peer.limits.connections, units: 1, held: &mut entered.connection },
        ];
        // A follower of a log has a connection of its own, and stays for long.
        let needed = if needs[5].held.is_some() { 4 } else { 6 };
        take(who, &mut needs[..needed]).await?;
        Ok(entered)
    }
}
