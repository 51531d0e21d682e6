//! The metrics of a sequencer, through the `metrics` facade. Each has the label `partition`:
//!
//! - counter `isequencer_cache_hits_total`: commands that found the numbers of their workspace in
//!   memory when they joined. This includes numbers that had just been read ahead;
//! - counter `isequencer_cache_misses_total`: reads of all numbers of a workspace, for a command
//!   that joined, or ahead of commands. A failed read ahead is not counted, because the command
//!   reads again;
//! - counter `isequencer_failed_reads_total`: failed reads for a command that joined;
//! - gauges `isequencer_unflushed_numbers` and `isequencer_unflushed_events`: the unflushed numbers
//!   and events when a write of numbers began, failed or ended;
//! - histograms `isequencer_flush_numbers` and `isequencer_flush_seconds`: the count of numbers
//!   stored at a time, and the duration with all retries;
//! - histogram `isequencer_actualization_seconds`: the duration of reading the log, with all
//!   retries;
//! - counter `isequencer_retries_total`: failed calls of the keeper that it made again.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use crate::Unflushed;

#[derive(Debug)]
pub(crate) struct SequencerMeters {
    partition: String,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) failed_reads: Counter,
    unflushed_numbers: Gauge,
    unflushed_events: Gauge,
    flush_numbers: Histogram,
    flush_seconds: Histogram,
    actualization_seconds: Histogram,
    retries: Counter,
}

impl SequencerMeters {
    pub(crate) fn new(partition: String) -> SequencerMeters {
        let label = || partition.clone();
        SequencerMeters {
            hits: metrics::counter!("isequencer_cache_hits_total", "partition" => label()),
            misses: metrics::counter!("isequencer_cache_misses_total", "partition" => label()),
            failed_reads: metrics::counter!("isequencer_failed_reads_total", "partition" => label()),
            unflushed_numbers: metrics::gauge!("isequencer_unflushed_numbers", "partition" => label()),
            unflushed_events: metrics::gauge!("isequencer_unflushed_events", "partition" => label()),
            flush_numbers: metrics::histogram!("isequencer_flush_numbers", "partition" => label()),
            flush_seconds: metrics::histogram!("isequencer_flush_seconds", "partition" => label()),
            actualization_seconds: metrics::histogram!("isequencer_actualization_seconds", "partition" => label()),
            retries: metrics::counter!("isequencer_retries_total", "partition" => label()),
            partition,
        }
    }

    pub(crate) fn partition(&self) -> &str {
        &self.partition
    }

    pub(crate) fn set_unflushed(&self, unflushed: Unflushed) {
        self.unflushed_numbers.set(unflushed.numbers as f64);
        self.unflushed_events.set(unflushed.events as f64);
    }

    pub(crate) fn record_flush(&self, numbers: usize, duration: Duration) {
        self.flush_numbers.record(numbers as f64);
        self.flush_seconds.record(duration);
    }

    pub(crate) fn record_actualization(&self, duration: Duration) {
        self.actualization_seconds.record(duration);
    }

    pub(crate) fn record_retry(&self) {
        self.retries.increment(1);
    }
}
