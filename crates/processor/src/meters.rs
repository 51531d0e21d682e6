//! The metrics of a partition, reported through the `metrics` facade, each with the label
//! `partition`:
//!
//! - gauge `processor_status`: 0 recovering, 1 ready, 2 violation, 3 leadership lost, 4 stopped, 5
//!   failed, 6 stalled;
//! - counter `processor_commands_total` with the label `outcome`: `done`, `repeated`, `busy`,
//!   `rejected`, `not_applied`, `unknown`;
//! - histograms `processor_group_commands` and `processor_group_bytes`: the number and the size of
//!   the events that were written together;
//! - histogram `processor_stage_seconds` with the label `stage`: the time that commands spend in
//!   each stage. `wait`: each command until its group began. `run`: the group until all its
//!   handlers were done. `log`: until the events of the group were in the log. `apply`: until the
//!   events were applied and the commands could be answered;
//! - counter `processor_recoveries_total`: the number of times that the log had to be read again.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use crate::{Busy, Refused, Status, command::Answered};

#[derive(Debug)]
pub(crate) struct PartitionMeters {
    status: Gauge,
    done: Counter,
    repeated: Counter,
    limited: Counter,
    busy: Counter,
    rejected: Counter,
    not_applied: Counter,
    unknown: Counter,
    group_commands: Histogram,
    group_bytes: Histogram,
    wait: Histogram,
    run: Histogram,
    log: Histogram,
    apply: Histogram,
    recoveries: Counter,
}

impl PartitionMeters {
    pub(crate) fn new(partition: &str) -> PartitionMeters {
        let label = || partition.to_owned();
        let outcome = |outcome: &'static str| {
            metrics::counter!(
                "processor_commands_total", "partition" => label(), "outcome" => outcome
            )
        };
        let stage = |stage: &'static str| {
            metrics::histogram!(
                "processor_stage_seconds", "partition" => label(), "stage" => stage
            )
        };
        PartitionMeters {
            status: metrics::gauge!("processor_status", "partition" => label()),
            done: outcome("done"),
            repeated: outcome("repeated"),
            limited: outcome("limited"),
            busy: outcome("busy"),
            rejected: outcome("rejected"),
            not_applied: outcome("not_applied"),
            unknown: outcome("unknown"),
            group_commands: metrics::histogram!("processor_group_commands", "partition" => label()),
            group_bytes: metrics::histogram!("processor_group_bytes", "partition" => label()),
            wait: stage("wait"),
            run: stage("run"),
            log: stage("log"),
            apply: stage("apply"),
            recoveries: metrics::counter!("processor_recoveries_total", "partition" => label()),
        }
    }

    pub(crate) fn status(&self, status: &Status) {
        self.status.set(match status {
            Status::Recovering(_) => 0.0,
            Status::Ready => 1.0,
            Status::Violation(_) => 2.0,
            Status::LeadershipLost(_) => 3.0,
            Status::Stopped => 4.0,
            Status::Failed(_) => 5.0,
            Status::Stalled(_) => 6.0,
            Status::Full(_) => 7.0,
        });
    }

    pub(crate) fn answered(&self, answered: &Answered) {
        let counter = match answered {
            Ok(done) if done.is_repeated => &self.repeated,
            Ok(_) => &self.done,
            Err(Refused::Busy(Busy::WroteTooMuch(_))) => &self.limited,
            Err(Refused::Busy(_)) => &self.busy,
            Err(Refused::Rejected(_)) => &self.rejected,
            Err(Refused::NotApplied { .. }) => &self.not_applied,
            Err(Refused::Unknown(_)) => &self.unknown,
        };
        counter.increment(1);
    }

    pub(crate) fn waited(&self, waited: Duration) {
        self.wait.record(waited);
    }

    pub(crate) fn ran(&self, took: Duration) {
        self.run.record(took);
    }

    pub(crate) fn written(&self, events: usize, bytes: usize, to_log: Duration, rest: Duration) {
        self.group_commands.record(events as f64);
        self.group_bytes.record(bytes as f64);
        self.log.record(to_log);
        self.apply.record(rest);
    }

    pub(crate) fn recovers(&self) {
        self.recoveries.increment(1);
    }
}
