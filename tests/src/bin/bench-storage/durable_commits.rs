//! The durable commits of redb, behind the log.

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use vvm_tests::bench::BenchError;

const METRIC: &str = "istorage_redb_durable_commit_seconds";

/// The durations of the durable commits of this process.
pub(crate) struct DurableCommits(Snapshotter);

impl DurableCommits {
    /// Begins to record. The driver is opened afterwards.
    pub(crate) fn record() -> Result<DurableCommits, BenchError> {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install()?;
        Ok(DurableCommits(snapshotter))
    }

    /// Formats what was recorded as a Markdown table.
    pub(crate) fn table(&self) -> Result<String, BenchError> {
        let mut seconds = Vec::new();
        for (key, _, _, value) in self.0.snapshot().into_vec() {
            if let (METRIC, DebugValue::Histogram(values)) = (key.key().name(), value) {
                seconds.extend(values.into_iter().map(|value| value.0));
            }
        }
        seconds.sort_by(f64::total_cmp);
        let at = |per_mille: usize| {
            let value = seconds.get(seconds.len() * per_mille / 1_000);
            value.map(|seconds| format!("{:.1} ms", seconds * 1_000.0))
        };
        let (p50, p99) = at(500).zip(at(990)).ok_or("no durable commit was recorded")?;
        let longest = seconds.last().ok_or("no durable commit was recorded")? * 1_000.0;
        let count = seconds.len();
        Ok(format!(
            "| durable commits | p50 | p99 | longest |\n|---:|---:|---:|---:|\n\
             | {count} | {p50} | {p99} | {longest:.1} ms |\n"
        ))
    }
}
