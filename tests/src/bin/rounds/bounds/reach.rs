//! What the faults of a round leave of a cluster.

use std::collections::BTreeSet;

use crate::faults::{Fault, FaultEffect, FaultKind};

/// The least number of servers that can lose one: the others are a quorum.
const SERVERS_OF_QUORUM: usize = 3;

/// The nodes that cannot work for a while, or that clients or other nodes cannot reach. A clock
/// holds no node up, and neither does a bad link to one of several servers.
pub(super) fn hit(faults: &[Fault]) -> BTreeSet<usize> {
    use FaultKind::{Clock, KillServer, PauseServer};
    let is_hit = |fault: &&Fault| {
        !matches!(fault.kind(), Clock | KillServer | PauseServer) && !fault.leaves_other_servers()
    };
    faults.iter().filter(is_hit).map(|fault| fault.target).collect()
}

/// Whether a node still works with its storage: at most one server has failed or has a bad link to
/// the node, and the driver goes on with the others.
pub(super) fn keeps_storage(faults: &[Fault], node: usize, servers: usize) -> bool {
    let mut lost = BTreeSet::new();
    for fault in faults {
        let server = match fault.effect {
            FaultEffect::KillServer | FaultEffect::PauseServer if servers < SERVERS_OF_QUORUM => {
                return false;
            }
            FaultEffect::KillServer | FaultEffect::PauseServer => fault.target,
            FaultEffect::StorageLink { server, .. } if fault.target == node => match server {
                Some(server) => server,
                None => return false,
            },
            _ => continue,
        };
        lost.insert(server);
    }
    lost.len() <= 1
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{fault, storage_link_to},
        *,
    };

    #[test]
    fn a_node_goes_on_without_one_of_three_servers() {
        let link = |server| storage_link_to(server, 0);
        for kind in [FaultKind::KillServer, FaultKind::PauseServer] {
            let failed = fault(kind, 1);
            assert!(keeps_storage(&[failed], 0, 3), "{kind}");
            for few in [1, 2] {
                assert!(!keeps_storage(&[failed], 0, few), "{kind} of {few}");
            }
            assert!(keeps_storage(&[failed, link(1)], 0, 3), "it is the same server");
            assert!(!keeps_storage(&[failed, link(2)], 0, 3), "node 1 lost two servers");
            assert!(keeps_storage(&[failed, link(2)], 1, 3), "node 2 lost one");
        }
        let all = fault(FaultKind::StorageLink, 0);
        assert!(!keeps_storage(&[all], 0, 3) && keeps_storage(&[all], 1, 3));
    }

    #[test]
    fn a_clock_and_a_bad_link_to_one_server_hit_no_node() {
        use FaultKind::{ClientLink, Clock, Kill, PauseServer, PeerLink, StorageLink};
        let link = storage_link_to(1, 2);
        assert!(hit(&[fault(Clock, 0), fault(PauseServer, 1), link]).is_empty());
        let faults = [fault(Kill, 0), fault(ClientLink, 1), fault(PeerLink, 2)];
        assert_eq!(hit(&faults), [0, 1, 2].into());
        assert_eq!(hit(&[fault(StorageLink, 1)]), [1].into());
    }
}
