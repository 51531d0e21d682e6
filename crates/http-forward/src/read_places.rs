//! The shares of principals in the connections to a peer.

use std::sync::Arc;

use clock::Clock;
use http_server::limits::{Limit, LimitRules, ShareRules};

use crate::quota::QuotaLimits;

/// The reads that another node does. One principal has half of them. A read whose answer finds no
/// memory holds its connection, and its principal may have used up the memory itself.
pub(crate) fn reads(
    most: usize,
    limits: QuotaLimits,
    clock: &Clock,
    code: &'static str,
    of: &'static str,
) -> Arc<Limit> {
    let share = Some(ShareRules { least: 1, waiting: limits.requests });
    Limit::new(LimitRules { most, share, code, of, ..LimitRules::default() }, clock)
}
