//! `vvm doctor`: checks whether a node could run on this machine, without starting one. The checks
//! change nothing; a file that measures the disk is removed at once.

mod access;
mod certificates;
mod clocks;
mod disk;
mod finding;
mod folders;
mod limits;
mod ports;
mod running;
mod servers;
mod storage;

use std::{path::PathBuf, process::ExitCode};

use clock::Clock;
use ctl::{CommandError, StorageTarget, terminal::print};
use serde_json::json;

use self::finding::{Finding, Verdict};
use crate::{
    cli::{DoctorArgs, ServeArgs},
    config::VvmConfig,
    serve,
};

/// Runs the command.
pub(crate) async fn run(DoctorArgs { config, json }: DoctorArgs) -> Result<ExitCode, CommandError> {
    let findings = examine(config).await;
    let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).count();
    let text = if json {
        format!("{:#}\n", json!({ "ok": failed == 0, "checks": findings }))
    } else {
        findings.iter().map(|finding| format!("{finding}\n")).collect()
    };
    print(&text)?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares the applications of a configuration with those that are deployed, as a node does when
/// it starts. Returns the result in words, or why nothing could be compared.
///
/// # Errors
/// If a node would refuse to deploy an application.
pub(crate) async fn compare_deployed(config: &VvmConfig) -> Result<String, CommandError> {
    let target = config.storage.to_target(&config.source)?;
    let (settings, apps) = serve::plan(config, &target)?;
    let findings = storage::check(&Clock::system(), config, &target, &settings, &apps).await;
    let compared: Vec<&Finding> =
        findings.iter().filter(|finding| finding.check == storage::DEPLOYMENT).collect();
    let all = |findings: &[&Finding]| {
        let what = findings.iter().map(|finding| finding.what.clone());
        what.collect::<Vec<_>>().join("; ")
    };
    if compared.iter().any(|finding| finding.verdict == Verdict::Fail) {
        return Err(CommandError::config(all(&compared)));
    }
    Ok(match (compared.as_slice(), findings.first()) {
        ([], Some(why)) => format!("not compared with a deployment, because {}", why.what),
        ([], None) => "not compared with a deployment, because there is none".to_owned(),
        (compared, _) => format!("compared with the deployment: {}", all(compared)),
    })
}

async fn examine(file: Option<PathBuf>) -> Vec<Finding> {
    let clock = Clock::system();
    let planned = serve::configuration(&ServeArgs { config: file, ..ServeArgs::default() })
        .and_then(|config| {
            let target = config.storage.to_target(&config.source)?;
            let plan = serve::plan(&config, &target)?;
            let tls = serve::NodeTls::read(&config)?;
            let access = serve::NodeAccess::read(&config, &clock)?;
            serve::NodeTraces::read(&config)?;
            Ok((config, target, plan, tls, access))
        });
    let (config, target, (settings, apps), tls, access) = match planned {
        Ok(planned) => planned,
        Err(error) => {
            let advice = "correct the configuration; the other checks need it";
            return vec![Finding::fail("configuration", error, advice)];
        }
    };
    let mut findings = vec![Finding::ok("configuration", "a node could start with it")];
    findings.extend(limits::check(&config, &target, &apps));
    findings.extend(clocks::check(&clock).await);
    findings.extend(ports::check(&config));
    findings.extend(certificates::check(&tls, &clock));
    findings.extend(access::check(&config, access.keys()));
    let folders = folders(&config, &target);
    findings.extend(folders.iter().flat_map(|folder| folders::check(folder)));
    if let StorageTarget::Redb(redb) = &target {
        findings.push(disk::sync(&clock, redb.path.parent(), settings.lease.call_timeout));
    }
    findings.extend(storage::check(&clock, &config, &target, &settings, &apps).await);
    findings
}

/// Returns the folders that a node writes to.
fn folders(config: &VvmConfig, target: &StorageTarget) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if *target != StorageTarget::Mem {
        folders.push(config.node.folder.clone());
    }
    if let StorageTarget::Redb(redb) = target {
        folders.extend(redb.path.parent().map(PathBuf::from));
    }
    // The parent of a bare file name is empty.
    for folder in &mut folders {
        if folder.as_os_str().is_empty() {
            *folder = PathBuf::from(".");
        }
    }
    folders.dedup();
    folders
}
