//! The memory of the node over a run.

use std::fs;

use rustix::process::Pid;

/// The growth that a run may have in its second half, in MiB: buffers, and pages of the allocator.
const GROWTH: u64 = 48;

/// The resident memory at points of the run.
#[derive(Debug, Default)]
pub(crate) struct MemorySamples(Vec<u64>);

impl MemorySamples {
    pub(crate) fn take(&mut self, pid: Pid) {
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()));
        let status = status.unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = kib.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        self.0.extend(kib.map(|kib| kib >> 10));
    }

    /// The memory stays below the limit that the node names, and does not grow without end.
    pub(crate) fn judge(&self, limit_mib: u64) -> Result<String, String> {
        let most = |part: &[u64]| part.iter().copied().max().unwrap_or_default();
        let (first, second) = self.0.split_at(self.0.len() / 2);
        let (first, second) = (most(first), most(second));
        let report = format!(
            "memory: at most {first} MiB in the first half, {second} in the second, limit {limit_mib}"
        );
        let is_bounded = first.max(second) <= limit_mib && second <= first + first / 5 + GROWTH;
        if self.0.len() < 4 || !is_bounded { Err(report) } else { Ok(report) }
    }
}
