//! The time after a round, until everything works again.

use std::time::Duration;

use crate::{clients::Silent, faults::Fault};

/// How a cluster recovered from a round.
pub(super) struct Recovery {
    /// All nodes must be ready within this time.
    pub(super) within: Duration,
    /// How long it took until they were ready, or until the run gave up.
    pub(super) ready_after: Duration,
    /// The nodes that were not ready.
    pub(super) missing: Vec<String>,
    /// What did nothing afterwards.
    pub(super) silent: Silent,
    /// The names of the nodes.
    pub(super) nodes: Vec<String>,
}

impl Recovery {
    /// Whether everything works, and in time. A look at a node that hangs may end only after the
    /// time is over.
    pub(super) fn is_good(&self) -> bool {
        let is_in_time = self.ready_after <= self.within;
        is_in_time && self.missing.is_empty() && self.silent == Silent::default()
    }

    /// What did not work.
    pub(super) fn text(&self, faults: &[Fault]) -> String {
        let Recovery { within, ready_after, missing, silent, nodes } = self;
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        if missing.is_empty() && ready_after > within {
            return format!(
                "after {faults:?}, all nodes were ready only after {ready_after:.1?}, and not \
                 within {within:.1?}"
            );
        }
        let names: Vec<&String> = silent.nodes.iter().map(|node| &nodes[*node]).collect();
        let workspaces = &silent.workspaces;
        format!(
            "{within:.1?} after {faults:?}, nodes {missing:?} are not ready, nodes {names:?} do no \
             command and read, and workspaces {workspaces:?} have no command done"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovery(after: u64, missing: &[&str], silent: Silent) -> Recovery {
        Recovery {
            within: Duration::from_secs(30),
            ready_after: Duration::from_secs(after),
            missing: missing.iter().map(ToString::to_string).collect(),
            silent,
            nodes: vec!["node 1".into(), "node 2".into()],
        }
    }

    #[test]
    fn a_cluster_that_works_again_in_time_has_recovered() {
        let silent = Silent { workspaces: vec![7], nodes: vec![1] };
        assert!(recovery(30, &[], Silent::default()).is_good());
        for (bad, text) in [
            // The last look lasted for longer than the time, and the run called the cluster good.
            (recovery(31, &[], Silent::default()), "ready only after 31.0s, and not within 30.0s"),
            (recovery(30, &["node 2"], Silent::default()), "nodes [\"node 2\"] are not ready"),
            (
                recovery(9, &[], silent),
                "nodes [\"node 2\"] do no command and read, and workspaces [7]",
            ),
        ] {
            assert!(!bad.is_good(), "{text}");
            assert!(bad.text(&[]).contains(text), "{}", bad.text(&[]));
        }
    }
}
