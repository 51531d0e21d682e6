//! The metrics of the process, in the format of Prometheus.

mod help;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use ctl::CommandError;
use http_admin::MetricsRenderer;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;
use vvm::{Node, Service};

/// The buckets of histograms of seconds: from the time of the fastest storage to the longest
/// timeout.
const SECONDS: [f64; 17] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

/// The buckets of all other histograms: counts and bytes.
const AMOUNTS: [f64; 11] =
    [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];

/// Begins to collect the metrics of all parts of the process. Returns the function that reads the
/// metrics, and the service that maintains them.
pub(crate) fn install() -> Result<(MetricsRenderer, MetricsUpkeep), CommandError> {
    let failed = |error| CommandError::unfinished(format!("metrics: {error}"));
    let builder = PrometheusBuilder::new()
        .set_buckets(&AMOUNTS)
        .and_then(|all| all.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS));
    let handle = builder.and_then(PrometheusBuilder::install_recorder).map_err(failed)?;
    help::describe();
    name_build();
    let upkeep = MetricsUpkeep(handle.clone());
    Ok((Arc::new(move || handle.render()), upkeep))
}

/// Exports the version of the program, so that a query can join it to other metrics, and the
/// metrics of the log, which begins earlier.
fn name_build() {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("profile", profile),
        ("arch", std::env::consts::ARCH),
        ("os", std::env::consts::OS),
    ];
    metrics::gauge!("vvm_build_info", &labels).set(1.0);
    metrics::counter!("vvm_log_lines_lost_total").increment(0);
}

/// A service that sorts new values into the buckets, even if no client reads the metrics. Until a
/// value is sorted, it takes memory of its own.
pub(crate) struct MetricsUpkeep(PrometheusHandle);

impl fmt::Debug for MetricsUpkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upkeep")
    }
}

#[async_trait]
impl Service for MetricsUpkeep {
    fn name(&self) -> &'static str {
        "metrics"
    }

    async fn bind(&mut self) -> Result<(), vvm::ServiceError> {
        Ok(())
    }

    async fn run(
        self: Box<Self>,
        node: Node,
        stop: CancellationToken,
    ) -> Result<(), vvm::ServiceError> {
        const EVERY: Duration = Duration::from_secs(1);
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = node.clock().sleep(EVERY) => self.0.run_upkeep(),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles of several nodes cannot be added up; buckets can be.
    #[test]
    fn histograms_have_buckets_for_their_unit() {
        let (read, upkeep) = install().unwrap();
        metrics::histogram!("some_stage_seconds").record(0.002);
        metrics::histogram!("some_bytes").record(5_000.0);
        upkeep.0.run_upkeep();
        let text = read();
        for line in [
            "some_stage_seconds_bucket{le=\"0.001\"} 0",
            "some_stage_seconds_bucket{le=\"0.0025\"} 1",
            "some_bytes_bucket{le=\"4096\"} 0",
            "some_bytes_bucket{le=\"16384\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}: {text}");
        }
        let build = concat!("vvm_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",");
        let is_build = |line: &str| line.starts_with(build) && line.ends_with("} 1");
        assert!(text.lines().any(is_build), "{text}");
    }
}
