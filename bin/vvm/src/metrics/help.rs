//! The help texts of all metrics. The pages in `docs` explain each metric and its labels in full.

/// The help text of each metric, by its name.
const TEXTS: &[(&str, &str)] = &[
    ("docnumbers_gaps_total", "Document numbers that the node held and did not issue."),
    ("docnumbers_issued_total", "Document numbers of a fast series that were drawn."),
    ("docnumbers_refill_wait_seconds", "How long draws of document numbers waited for a range."),
    ("docnumbers_refills_total", "Reservations of a range of document numbers."),
    ("docnumbers_remaining", "Counters of a series that the node holds and has not issued."),
    ("httpapi_backups", "Backups that are being sent: 0 or 1."),
    (
        "httpapi_certificate_ends_timestamp_seconds",
        "The end of the certificate of a port, in seconds since 1970.",
    ),
    ("httpapi_certificate_exchanges_total", "New files of a port with TLS, taken or refused."),
    (
        "httpapi_certificate_refused",
        "1 while a port cannot use its files of TLS, and the former ones stay in use.",
    ),
    ("httpapi_connections", "Open connections."),
    ("httpapi_connections_closed_total", "Connections that the node closed, by the reason."),
    ("httpapi_followers", "Clients that follow logs."),
    ("httpapi_forbidden_total", "Requests that their token does not grant."),
    (
        "httpapi_forwarded_total",
        "Requests that were forwarded to the owner of their partition, by the outcome.",
    ),
    (
        "httpapi_key_file_refused",
        "1 while the file of keys cannot be used, and the former keys stay in use.",
    ),
    ("httpapi_log_lines_left_out_total", "Lines about clients that the node log does not have."),
    ("httpapi_memory_reserved_bytes", "Memory that is reserved for bodies, answers and events."),
    ("httpapi_parked_requests", "Requests that wait for their next try."),
    ("httpapi_peer_connections", "Open connections to another node."),
    (
        "httpapi_problems_total",
        "Requests to the API that were answered with an error, by its code.",
    ),
    ("httpapi_request_seconds", "The time of requests to the API, until the answer begins."),
    ("httpapi_retries_total", "Further tries of requests."),
    (
        "httpapi_shares_refused_total",
        "Requests that were refused because their principal has its share of a limit.",
    ),
    ("httpapi_unauthenticated_total", "Requests without a token, or with one that is refused."),
    ("ielections_acquired_total", "Leaderships that began."),
    ("ielections_call_seconds", "The time of calls to the store of elections."),
    ("ielections_leads", "1 while the node leads the seat, else 0."),
    (
        "ielections_left_seconds",
        "The time that was left of the leadership when a renewal was confirmed.",
    ),
    ("ielections_lost_total", "Leaderships that ended, by the reason."),
    ("isequencer_actualization_seconds", "How long a recovery read the log, with all retries."),
    (
        "isequencer_cache_hits_total",
        "Commands that found the numbers of their workspace in memory.",
    ),
    ("isequencer_cache_misses_total", "Reads of all numbers of a workspace."),
    ("isequencer_failed_reads_total", "Failed reads of the numbers of a workspace."),
    ("isequencer_flush_numbers", "How many numbers were stored at a time."),
    ("isequencer_flush_seconds", "How long storing numbers took, with all retries."),
    ("isequencer_retries_total", "Calls of the keeper of numbers that failed and were made again."),
    ("isequencer_unflushed_events", "Events with numbers that were not stored yet."),
    ("isequencer_unflushed_numbers", "Numbers that were not stored yet."),
    ("istorage_call_seconds", "The time of calls to the storage, by the result."),
    (
        "istorage_redb_damaged_rows_total",
        "Damaged rows that the check of a file of redb found after a crash.",
    ),
    (
        "istorage_redb_durable_commit_seconds",
        "The time of durable commits of redb. Writes go on meanwhile.",
    ),
    (
        "istorage_redb_failed_commits_total",
        "Durable commits of redb that failed, and are tried again.",
    ),
    (
        "istorage_redb_freeze_seconds",
        "The time to begin a segment of the log of redb. Writes wait meanwhile.",
    ),
    (
        "istorage_redb_slowed_groups_total",
        "Groups of writes that were slowed, so that the storage file of redb keeps up.",
    ),
    ("istorage_redb_table_bytes", "Rows in memory that the storage file of redb does not have."),
    (
        "istorage_rows_total",
        "Rows that were requested from the storage, returned or to be written.",
    ),
    ("processor_commands_total", "Commands by the outcome that was answered."),
    ("processor_group_bytes", "The size of the events that were written together."),
    ("processor_group_commands", "The number of the events that were written together."),
    ("processor_recoveries_total", "How often the log of a partition was read again."),
    ("processor_stage_seconds", "The time that commands spend in each stage."),
    (
        "processor_status",
        "The status of a partition: 0 recovering, 1 ready, 2 violation, 3 leadership lost, 4 \
         stopped, 5 failed, 6 stalled, 7 full.",
    ),
    ("vvm_build_info", "1: the program that runs."),
    ("vvm_log_lines_lost_total", "Lines of the node log that were dropped at a slow reader."),
    ("vvm_trace_spans_total", "Spans of traces that have ended, by the outcome."),
];

/// Gives each metric its text. The kind of a metric does not matter to its text.
pub(super) fn describe() {
    for (name, text) in TEXTS {
        metrics::describe_gauge!(*name, *text);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A metric that needs a cluster, TLS or a failure is not in the output of each node, so its
    /// text could be missing for long.
    #[test]
    fn each_metric_in_the_documents_has_one_text() {
        let parts =
            ["docnumbers", "httpapi", "ielections", "isequencer", "istorage", "processor", "vvm"];
        let mut documented = BTreeSet::new();
        for page in ["operations", "commands", "sequencing", "elections", "numbers"] {
            let path = format!("{}/../../docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let tables = text.lines().filter(|line| line.starts_with("| `"));
            for named in tables.flat_map(|line| line.split('`').skip(1).step_by(2)) {
                let name = named.split('{').next().unwrap();
                let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                let of = name.split_once('_').map(|(part, _)| part);
                if is_name && of.is_some_and(|of| parts.contains(&of)) {
                    documented.insert(name.to_owned());
                }
            }
        }
        let described: Vec<_> = TEXTS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(described, documented.into_iter().collect::<Vec<_>>());
        for (name, text) in TEXTS {
            assert!(text.ends_with('.') && !text.contains('\n'), "{name}: {text}");
        }
    }
}
