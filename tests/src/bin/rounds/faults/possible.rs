//! The faults that a run can have.

use clap::ValueEnum;

use super::FaultKind;
use crate::storage::StorageKind;

/// Without a compiler there is no library for the nodes.
const NO_COMPILER: &str = "this machine has no C compiler";

/// What decides which faults a run can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) storage: StorageKind,
    pub(crate) nodes: usize,
    /// Whether the nodes reach the storage over links of this program.
    pub(crate) has_storage_link: bool,
    /// Whether clocks and disks can be faulty.
    pub(crate) has_shim: bool,
    /// Whether a server that is killed keeps everything that it has acknowledged.
    pub(crate) has_durable_servers: bool,
}

impl FaultKind {
    /// Why a run cannot have this fault. `None` if it can.
    fn hindrance(self, setting: &Setting) -> Option<&'static str> {
        let Setting { storage, nodes, has_storage_link, has_shim, .. } = *setting;
        let is_redb = storage == StorageKind::Redb;
        match self {
            FaultKind::Kill | FaultKind::Pause | FaultKind::Stop | FaultKind::ClientLink => None,
            FaultKind::StepDown | FaultKind::Drain => {
                is_redb.then_some("a node with redb has no cluster")
            }
            FaultKind::PeerLink => (is_redb || nodes < 2).then_some("there is no other node"),
            FaultKind::StorageLink if is_redb => Some("redb is a file"),
            FaultKind::StorageLink if has_storage_link => None,
            FaultKind::StorageLink if !has_shim => Some(NO_COMPILER),
            FaultKind::StorageLink => Some("the servers are not all named by an IPv4 address"),
            FaultKind::KillServer | FaultKind::PauseServer if is_redb => Some("redb has no server"),
            FaultKind::KillServer if storage == StorageKind::Dynamodb => {
                Some("DynamoDB Local keeps its tables in its memory")
            }
            FaultKind::KillServer => (!setting.has_durable_servers).then_some(
                "a server does not sync its commit log before it acknowledges a write \
                 (commitlog_sync: batch), so it loses writes when it is killed",
            ),
            FaultKind::PauseServer => None,
            FaultKind::FullDisk if !is_redb => {
                Some("only redb keeps its data on a disk of the node")
            }
            FaultKind::FullDisk | FaultKind::Clock => (!has_shim).then_some(NO_COMPILER),
        }
    }
}

/// Returns the faults of a run, and lines that say what is left out. Without a choice, these are
/// all faults that the run can have.
///
/// # Errors
/// A fault that was asked for, and the run cannot have.
pub(crate) fn choose(
    asked: &[FaultKind],
    setting: &Setting,
) -> Result<(Vec<FaultKind>, Vec<String>), String> {
    let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
    let all = if asked.is_empty() { FaultKind::value_variants() } else { asked };
    for kind in all {
        match kind.hindrance(setting) {
            None => chosen.push(*kind),
            Some(why) if asked.is_empty() => left_out.push(format!("without {kind}: {why}")),
            Some(why) => return Err(format!("this run cannot have the fault {kind}: {why}")),
        }
    }
    Ok((chosen, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(storage: StorageKind) -> Setting {
        let nodes = if storage == StorageKind::Redb { 1 } else { 3 };
        let is_cassandra =
            matches!(storage, StorageKind::Cassandra | StorageKind::CassandraCluster);
        Setting {
            storage,
            nodes,
            has_storage_link: storage != StorageKind::Redb,
            has_shim: true,
            has_durable_servers: is_cassandra,
        }
    }

    fn left_out(setting: &Setting) -> Vec<FaultKind> {
        let (chosen, lines) = choose(&[], setting).unwrap();
        let all = FaultKind::value_variants().iter().copied();
        let left: Vec<FaultKind> = all.filter(|kind| !chosen.contains(kind)).collect();
        assert_eq!(lines.len(), left.len(), "each has a line with its reason");
        left
    }

    #[test]
    fn a_run_has_all_faults_that_its_storage_can_have() {
        use FaultKind::{
            Clock, Drain, FullDisk, KillServer, PauseServer, PeerLink, StepDown, StorageLink,
        };
        let of_cluster = [StepDown, Drain, StorageLink, PeerLink, KillServer, PauseServer];
        assert_eq!(left_out(&setting(StorageKind::Redb)), of_cluster);
        assert_eq!(left_out(&setting(StorageKind::Cassandra)), [FullDisk]);
        assert_eq!(left_out(&setting(StorageKind::CassandraCluster)), [FullDisk]);
        assert_eq!(left_out(&setting(StorageKind::Dynamodb)), [KillServer, FullDisk]);
        let cassandra = setting(StorageKind::Cassandra);
        let loses = Setting { has_durable_servers: false, ..cassandra };
        assert_eq!(left_out(&loses), [KillServer, FullDisk]);
        assert_eq!(left_out(&Setting { nodes: 1, ..cassandra }), [PeerLink, FullDisk]);
        assert_eq!(left_out(&Setting { has_shim: false, ..cassandra }), [FullDisk, Clock]);
        let without_links =
            Setting { has_storage_link: false, ..setting(StorageKind::CassandraCluster) };
        assert_eq!(left_out(&without_links), [StorageLink, FullDisk]);
        let without_shim = Setting { has_shim: false, ..without_links };
        assert_eq!(left_out(&without_shim), [StorageLink, FullDisk, Clock]);
    }

    #[test]
    fn a_fault_that_was_asked_for_is_never_left_out() {
        let redb = setting(StorageKind::Redb);
        let asked = [FaultKind::Kill, FaultKind::FullDisk];
        assert_eq!(choose(&asked, &redb), Ok((asked.to_vec(), Vec::new())));
        let refused = choose(&[FaultKind::Kill, FaultKind::Drain], &redb).unwrap_err();
        assert!(refused.contains("drain: a node with redb has no cluster"), "{refused}");
        let cluster = Setting { has_storage_link: false, ..setting(StorageKind::CassandraCluster) };
        for (has_shim, why) in [(false, NO_COMPILER), (true, "not all named by an IPv4 address")] {
            let setting = Setting { has_shim, ..cluster };
            let refused = choose(&[FaultKind::StorageLink], &setting).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
