//! The limits of the system: open files and memory.

use std::fs;

use ctl::StorageTarget;
use rustix::process::{Resource, getrlimit};
use vvm::AppSettings;

use super::finding::Finding;
use crate::{config::VvmConfig, serve};

/// Files with a limit of memory for this process, in bytes: those of the versions 2 and 1 of
/// control groups, as a container sees them.
const MEMORY_LIMITS: [&str; 2] =
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

pub(super) fn check(
    config: &VvmConfig,
    target: &StorageTarget,
    apps: &[AppSettings],
) -> [Finding; 2] {
    let wanted = config.http.connections.get();
    // A node raises its own limit up to the maximum.
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let taken = serve::most_memory(config, target, wanted, apps);
    let there = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
    let limits = MEMORY_LIMITS.iter().filter_map(|file| fs::read_to_string(file).ok());
    let limits = limits.filter_map(|text| text.trim().parse().ok());
    let peers = serve::peer_connections(config, target);
    [of_files(files, wanted as u64, peers), of_memory(taken as u64, limits.chain(there).min())]
}

fn of_files(files: u64, connections: u64, peers: u64) -> Finding {
    let needed = connections.saturating_add(serve::OTHER_FILES).saturating_add(peers);
    if files >= needed {
        return Finding::ok("open files", format!("up to {files}, and {needed} are needed"));
    }
    let allowed = serve::room_for_clients(files, peers).min(connections);
    Finding::warn(
        "open files",
        format!("up to {files}: the node would take {allowed} connections, not {connections}"),
        format!("allow {needed} (LimitNOFILE, ulimit -Hn), or lower `http.connections`"),
    )
}

/// Reads the memory of the machine, in bytes.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn of_memory(taken: u64, there: Option<u64>) -> Finding {
    let mib = |bytes: u64| bytes >> 20;
    let Some(there) = there else {
        return Finding::ok("memory", format!("a node takes up to {} MiB", mib(taken)));
    };
    let what = format!("a node takes up to {} MiB of {} MiB", mib(taken), mib(there));
    if taken <= there {
        return Finding::ok("memory", what);
    }
    let keys =
        "`http.bodies_bytes`, `http.answers_bytes`, `storage.redb.cache_bytes` or partitions";
    Finding::warn("memory", what, format!("lower {keys}, or add memory"))
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Verdict, *};

    #[test]
    fn files_and_memory_are_compared_with_the_configuration() {
        assert_eq!(of_files(15_250, 15_000, 0).verdict, Verdict::Ok);
        assert_eq!(of_files(15_250, 15_000, 1_280).verdict, Verdict::Warn, "peers need files too");
        let few = of_files(1_024, 15_000, 0);
        assert_eq!(few.verdict, Verdict::Warn);
        assert!(few.what.contains("774 connections, not 15000"), "{few}");
        assert!(few.advice.unwrap().contains("15250"));
        let memory = total_memory("MemFree: 1 kB\nMemTotal:      2048 kB\n");
        assert_eq!(memory, Some(2 << 20));
        assert_eq!(of_memory(2 << 20, memory).verdict, Verdict::Ok);
        assert_eq!(of_memory(3 << 20, memory).verdict, Verdict::Warn);
        assert_eq!(of_memory(3 << 20, None).verdict, Verdict::Ok);
    }
}
