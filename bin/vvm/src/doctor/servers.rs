//! The servers of Cassandra: whether they sync a write before they acknowledge it, and whether
//! their other settings are safe.

use clock::{Clock, Instant};
use istorage::StorageDriver;
use istorage_cassandra::{
    CassandraConfig, CassandraDriver, CommitLogSync, ServerSettings, SettingProblem,
};

use super::finding::Finding;

const COMMIT_LOG: &str = "commit log";

const SETTINGS: &str = "servers";

/// Asks each server for its settings.
pub(super) async fn check(
    config: &CassandraConfig,
    clock: &Clock,
    deadline: Instant,
) -> Vec<Finding> {
    match settings(config, clock, deadline).await {
        Ok(servers) => of_servers(&servers),
        Err(error) => {
            let advice = "check that all servers of Cassandra answer";
            vec![Finding::warn(SETTINGS, base::with_causes(&error), advice)]
        }
    }
}

/// Asks each server to which a new connection leads.
async fn settings(
    config: &CassandraConfig,
    clock: &Clock,
    deadline: Instant,
) -> istorage::Result<Vec<ServerSettings>> {
    let driver = CassandraDriver::connect(config.clone(), clock.clone(), deadline).await?;
    let settings = driver.server_settings(deadline).await;
    driver.close().await;
    settings
}

fn of_servers(servers: &[ServerSettings]) -> Vec<Finding> {
    let syncs = servers.iter().map(|it| (it.server().to_string(), it.commit_log_sync()));
    let problems = servers
        .iter()
        .flat_map(|it| it.problems().into_iter().map(|problem| (it.server().to_string(), problem)));
    let unknown = servers.iter().filter(|it| !it.are_known()).map(|it| it.server().to_string());
    let mut findings = vec![of_commit_logs(&syncs.collect::<Vec<_>>())];
    findings.extend(of_problems(problems.collect(), &unknown.collect::<Vec<_>>()));
    findings
}

fn of_commit_logs(syncs: &[(String, CommitLogSync)]) -> Finding {
    let with = |wanted: CommitLogSync| -> Vec<&str> {
        let servers = syncs.iter().filter(|(_, sync)| *sync == wanted);
        servers.map(|(server, _)| server.as_str()).collect()
    };
    let late = with(CommitLogSync::AfterAnswers);
    if !late.is_empty() {
        let what = format!(
            "these servers acknowledge writes before the writes are on their disks: {}",
            late.join(", ")
        );
        let advice = "read docs/storage.md#when-cassandra-syncs: a single server needs `commitlog_sync: batch`";
        return Finding::warn(COMMIT_LOG, what, advice);
    }
    let unknown = with(CommitLogSync::Unknown);
    if !unknown.is_empty() {
        let what = format!("these servers do not tell when they sync: {}", unknown.join(", "));
        return Finding::ok(COMMIT_LOG, what);
    }
    let early = with(CommitLogSync::BeforeAnswers).join(", ");
    let what = format!("these servers sync a write before they acknowledge it: {early}");
    Finding::ok(COMMIT_LOG, what)
}

/// Names each setting that may make the storage break a promise, and the servers that do not tell
/// their settings.
fn of_problems(problems: Vec<(String, SettingProblem)>, unknown: &[String]) -> Vec<Finding> {
    const ADVICE: &str = "read docs/storage.md#settings-of-the-servers";
    let mut findings: Vec<Finding> = problems
        .into_iter()
        .map(|(server, SettingProblem { what, is_fatal, .. })| {
            let finding = if is_fatal { Finding::fail } else { Finding::warn };
            finding(SETTINGS, format!("{server}: {what}"), ADVICE.to_owned())
        })
        .collect();
    if !unknown.is_empty() {
        let what = format!("these servers do not tell their settings: {}", unknown.join(", "));
        findings.push(Finding::warn(SETTINGS, what, format!("{ADVICE}, and check them yourself")));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(SETTINGS, "the settings of all servers are safe"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Verdict, *};

    #[test]
    fn a_server_that_may_lose_what_it_acknowledged_is_named() {
        let of = |syncs: &[CommitLogSync]| {
            let servers = (1..).map(|end| format!("10.0.0.{end}:9042"));
            of_commit_logs(&servers.zip(syncs.iter().copied()).collect::<Vec<_>>())
        };
        let (before, after) = (CommitLogSync::BeforeAnswers, CommitLogSync::AfterAnswers);
        let early = of(&[before, before]);
        assert_eq!(early.verdict, Verdict::Ok);
        assert!(early.what.ends_with("it: 10.0.0.1:9042, 10.0.0.2:9042"), "{early}");
        assert_eq!(of(&[before, CommitLogSync::Unknown]).verdict, Verdict::Ok);
        let late = of(&[before, after, CommitLogSync::Unknown]);
        assert_eq!(late.verdict, Verdict::Warn);
        assert!(late.what.ends_with("disks: 10.0.0.2:9042"), "{late}");
    }

    #[test]
    fn servers_that_do_not_tell_their_settings_are_named() {
        let safe = of_problems(Vec::new(), &[]);
        assert_eq!(safe[0].verdict, Verdict::Ok);
        let unknown = of_problems(Vec::new(), &["10.0.0.1:9042".to_owned()]);
        assert_eq!((unknown.len(), unknown[0].verdict), (1, Verdict::Warn));
        assert!(unknown[0].what.ends_with("settings: 10.0.0.1:9042"), "{}", unknown[0]);
    }
}
