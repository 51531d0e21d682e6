//! The memory and the open files of nodes.

use std::collections::BTreeSet;

use crate::node::NodeUsage;

/// A node has at most this much resident memory, and this many open files.
const MEMORY_MAX: u64 = 256 << 20;
const FILES_MAX: usize = 300;

/// The most that a node used, and the nodes that used too much.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) memory: u64,
    pub(crate) files: usize,
    pub(crate) violations: Vec<String>,
    /// The processes with a violation, so that each has one of a kind at most.
    found: BTreeSet<(i32, &'static str)>,
}

impl Usage {
    /// Adds what the process of a node uses now.
    pub(crate) fn add(&mut self, node: &str, usage: NodeUsage) {
        let NodeUsage { pid, memory, files } = usage;
        self.memory = self.memory.max(memory);
        self.files = self.files.max(files);
        if memory > MEMORY_MAX && self.found.insert((pid, "memory")) {
            self.violations.push(format!("{node} has {} MiB of memory", memory >> 20));
        }
        if files > FILES_MAX && self.found.insert((pid, "files")) {
            self.violations.push(format!("{node} has {files} open files"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_that_uses_too_much_is_found_once() {
        let mut usage = Usage::default();
        let right = NodeUsage { pid: 1, memory: MEMORY_MAX, files: FILES_MAX };
        usage.add("node 1", right);
        assert!(usage.violations.is_empty());
        for pid in [2, 2, 3] {
            usage.add("node 2", NodeUsage { pid, memory: MEMORY_MAX + (1 << 20), ..right });
        }
        usage.add("node 2", NodeUsage { pid: 2, files: FILES_MAX + 1, ..right });
        assert_eq!(usage.violations.len(), 3, "{:?}", usage.violations);
        assert_eq!((usage.memory >> 20, usage.files), (257, 301));
    }
}
