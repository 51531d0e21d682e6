//! Taking units of several limits.

use std::sync::Arc;

use super::limit::{Asker, Full, Limit, Permit};

/// One thing that a request needs.
#[derive(Debug)]
pub struct Need<'n> {
    /// The limit.
    pub limit: &'n Arc<Limit>,
    /// The number of units.
    pub units: usize,
    /// What the request already holds of the limit, if anything.
    pub held: &'n mut Option<Permit>,
}

/// Takes what a request does not hold yet, in the order of the needs. A permit that this call took
/// stays held, even if the next limit refuses or this future is dropped; a share without its units
/// does not. Units that were held before may be given back for a wait: such a permit has only its
/// share until `take` is called again.
///
/// Invariant: the request has its principal's share of all these limits before it waits for units
/// of all, and it waits for those in order. While it waits for a share it holds no units, because
/// its principal may hold the share for long, and all others would wait for these units. It keeps
/// the shares that it has: only requests of its own principal wait for those. So requests never
/// wait in a circle if all of them name their needs in the same order.
///
/// A simpler version keeps the units of the shares that the request has. Two principals read from a
/// partition without an owner, and hold all its tries; the owner comes; both wait for their shares
/// of the connections, which they use for other partitions; so all other requests for the partition
/// wait for a try, and nobody is on the way to its owner.
///
/// # Errors
/// If a limit refuses the request.
pub async fn take(who: Asker<'_>, needs: &mut [Need<'_>]) -> Result<(), Full> {
    // 1. The shares.
    let mut shares = Vec::with_capacity(needs.len());
    for at in 0..needs.len() {
        let Need { limit, units, held } = &needs[at];
        let (limit, units) = (*limit, *units);
        shares.push(match held {
            Some(_) => None,
            None => match limit.try_share(who.principal(), units) {
                Ok(share) => share,
                Err(_) => {
                    for Need { held, .. } in &mut *needs {
                        held.take_if(|permit| !permit.keep_only_share());
                    }
                    limit.share(who, units).await?
                }
            },
        });
    }
    debug_assert!(waits_in_order(needs), "a request waits for a limit before one that it holds");
    // 2. The units.
    for (Need { limit, units, held }, share) in needs.iter_mut().zip(shares) {
        match held {
            Some(permit) => permit.take_units_again(who, *units).await?,
            None => **held = Some(limit.units(share, who, *units).await?),
        }
    }
    Ok(())
}

/// Whether the request holds no units after the first limit that it waits for: see the invariant of
/// [`limits`](super).
fn waits_in_order(needs: &[Need<'_>]) -> bool {
    let has_units = |need: &Need<'_>| need.held.as_ref().is_some_and(|held| held.units() > 0);
    let mut from_wait = needs.iter().skip_while(|need| has_units(need) || !need.limit.waits());
    !from_wait.any(has_units)
}

#[cfg(test)]
mod tests;
