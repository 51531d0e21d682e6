//! The storage: whether it answers, what was deployed there, and who has its leases.

use std::{sync::Arc, time::Duration};

use base::with_causes;
use clock::{Clock, Instant};
use ctl::{CommandError, StorageTarget, clock_skew};
use eventlog::{Deployment, TrustLevel};
use ielections::{Lease, LockFile, ObservedLease, TtlStore};
use istorage::{ErrorKind, StorageDriver};
use sysvvm::{AppName, System};
use vvm::{AppSettings, NodeSettings};

use super::{finding::Finding, running, servers};
use crate::{config::VvmConfig, serve};

/// The most time for the storage.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The storage's clock may differ by this time.
const SKEW_MAX_MS: i64 = 500;

const CHECK: &str = "storage";

/// The check of an application against what is deployed.
pub(super) const DEPLOYMENT: &str = "deployment";

pub(super) async fn check(
    clock: &Clock,
    config: &VvmConfig,
    target: &StorageTarget,
    settings: &NodeSettings,
    apps: &[AppSettings],
) -> Vec<Finding> {
    match target {
        StorageTarget::Mem => {
            let advice = "choose another `storage.driver` for data that must stay";
            return vec![Finding::warn(CHECK, "all data are in memory", advice)];
        }
        StorageTarget::Redb(config) if !config.path.exists() => {
            let what = format!("{} does not exist: the node makes it", config.path.display());
            return vec![Finding::ok(CHECK, what)];
        }
        _ => {}
    }
    // A node that starts has its lock before it opens the storage, and must not meet this command
    // there.
    let lock = config.node.folder.join(LockFile::NAME);
    if target.is_embedded() && running::user_of(&lock).is_some() {
        return vec![in_use()];
    }
    let deadline = clock.now() + TIMEOUT;
    let driver = match target.open_for_reading(clock.clone(), deadline).await {
        Ok(driver) => driver,
        Err(error) => return vec![unreachable(target, &error)],
    };
    let check = StorageCheck { clock, config, target, settings, deadline };
    let findings = check.of_driver(&driver, apps).await;
    driver.close().await;
    let mut findings = findings.unwrap_or_else(|error| vec![unreachable(target, &error)]);
    if let StorageTarget::Cassandra(config) = target {
        findings.extend(servers::check(config, clock, deadline).await);
    }
    findings
}

fn in_use() -> Finding {
    Finding::ok(CHECK, "a node works with this storage: `vvm status` shows its state")
}

fn unreachable(target: &StorageTarget, error: &istorage::Error) -> Finding {
    let advice = match target {
        StorageTarget::Redb(_) => "read docs/operations.md#when-the-storage-file-is-damaged",
        _ if error.kind() == ErrorKind::Invalid => "correct the setting that the error names",
        _ => "check the addresses, the network and the credentials of `[storage]`",
    };
    Finding::fail(CHECK, format!("{target}: {}", with_causes(error)), advice)
}

/// A check of a storage that answers.
struct StorageCheck<'a> {
    clock: &'a Clock,
    config: &'a VvmConfig,
    target: &'a StorageTarget,
    settings: &'a NodeSettings,
    deadline: Instant,
}

impl StorageCheck<'_> {
    async fn of_driver(
        &self,
        driver: &Arc<dyn StorageDriver>,
        apps: &[AppSettings],
    ) -> Result<Vec<Finding>, istorage::Error> {
        let StorageCheck { clock, settings, deadline, .. } = *self;
        let name = &settings.system;
        // Opening the system keyspace would make it.
        let Some(keyspace) = driver.open(name, deadline).await? else {
            let what =
                format!("it answers; the keyspace `{name}` does not exist: the node makes it");
            return Ok(vec![Finding::ok(CHECK, what)]);
        };
        let mut findings =
            vec![Finding::ok(CHECK, format!("it answers, and has the keyspace `{name}`"))];
        findings.extend(clock_skew::measure(&*keyspace, clock).await?.map(of_skew));
        let system = match System::open(Arc::clone(driver), name.clone(), clock.clone(), deadline)
            .await
        {
            Ok(system) => system,
            Err(error) => {
                let advice = "use a version of vvm that fits, or another `storage.system_keyspace`";
                findings.push(Finding::fail(DEPLOYMENT, with_causes(&error), advice));
                return Ok(findings);
            }
        };
        let deployed = system.apps(TIMEOUT).await;
        match deployed {
            Ok(deployed) => {
                let names: Vec<AppName> = deployed.into_iter().map(|(name, _)| name).collect();
                for app in apps {
                    findings.push(self.of_app(&system, app, names.contains(&app.name)).await);
                }
            }
            Err(error) => {
                let what = format!("the registry cannot be read: {}", with_causes(&error));
                findings.insert(0, Finding::fail(CHECK, what, "try again, and check the storage"));
            }
        }
        match system.elections().leases(deadline).await {
            Ok(leases) => findings.push(of_leases(&leases, settings)),
            Err(error) => {
                let advice = "read docs/elections.md, and check the storage";
                findings.push(Finding::fail("leases", with_causes(&error), advice));
            }
        }
        Ok(findings)
    }

    /// Checks an application as a node does before it deploys it, and stores nothing.
    async fn of_app(&self, system: &System, app: &AppSettings, is_deployed: bool) -> Finding {
        let deadline = self.deadline;
        let name = &app.name;
        if !is_deployed {
            return Finding::ok(DEPLOYMENT, format!("{name} is new: the node deploys it"));
        }
        let opened = match system.open_app(name, deadline).await {
            Ok(opened) => opened,
            Err(error) => return not_deployed(name, with_causes(&error)),
        };
        let (stored, wanted) = (opened.entry.partitions, app.partitions);
        if stored != wanted {
            let why = format!("it has {stored} partitions, and the configuration says {wanted}");
            return not_deployed(name, why);
        }
        let deployment =
            Deployment::new(app.level, app.application.declarations().schema().clone());
        match deployment.check(&opened.storage, deadline).await {
            Ok(Some(stored)) if stored.level != app.level => {
                let level = stored.level;
                let lease = serve::settings_for(self.config, self.target, level);
                let mut finding = of_other_level(app, level, lease.map(drop));
                finding.what += &format!("; {}", of_deployed(app, Some(&stored)));
                finding
            }
            Ok(stored) => Finding::ok(DEPLOYMENT, of_deployed(app, stored.as_ref())),
            Err(why) => not_deployed(name, with_causes(&why)),
        }
    }
}

/// Tells that an application fits its deployment, and what the next start changes there.
fn of_deployed(app: &AppSettings, stored: Option<&Deployment>) -> String {
    let schema = app.application.declarations().schema();
    let changes = stored.map(|stored| schema.changes_from(&stored.schema)).unwrap_or_default();
    let name = &app.name;
    match changes.is_empty() {
        true => format!("{name} fits its deployment, and changes nothing there"),
        false => format!("{name} fits its deployment, and changes it: {}", changes.join("; ")),
    }
}

/// Tells that an application has another trust level than the configuration says, and whether the
/// lease is long enough for it.
fn of_other_level(
    app: &AppSettings,
    stored: TrustLevel,
    lease: Result<(), CommandError>,
) -> Finding {
    let AppSettings { name, level, .. } = app;
    match lease {
        Ok(()) => {
            let what = format!(
                "{name} is deployed with trust level {stored}, and the configuration says {level}: the stored level counts"
            );
            Finding::warn(DEPLOYMENT, what, "write the stored level into the configuration")
        }
        Err(why) => {
            let what = format!("{name} is deployed with trust level {stored}: {why}");
            Finding::fail(
                DEPLOYMENT,
                what,
                "take a longer lease, or change the level with `vvm apps set-level`",
            )
        }
    }
}

fn of_skew(skew: clock_skew::ClockSkew) -> Finding {
    match skew.server_ahead_ms.abs() - skew.uncertainty_ms > SKEW_MAX_MS {
        true => Finding::warn("storage clock", skew, "synchronize both, for example with NTP"),
        false => Finding::ok("storage clock", skew),
    }
}

fn not_deployed(name: impl ToString, why: String) -> Finding {
    let advice = "deploy it as before, or use another `storage.system_keyspace`";
    Finding::fail(DEPLOYMENT, format!("{}: {why}", name.to_string()), advice)
}

fn of_leases(leases: &[ObservedLease], settings: &NodeSettings) -> Finding {
    let owners: Vec<_> =
        leases.iter().map(|lease| (lease, Lease::from_bytes(&lease.value))).collect();
    if let Some((lease, _)) = owners.iter().find(|(_, owner)| owner.is_none()) {
        let what = format!("the lease of seat {} cannot be read", lease.seat.get());
        return Finding::fail("leases", what, "a newer vvm may have written it: use that version");
    }
    let seats = settings.seats;
    let is_own = |owner: &Option<Lease>| owner.is_some_and(|it| it.owner == settings.advertised);
    if let Some((lease, _)) = owners.iter().find(|(_, owner)| is_own(owner)) {
        let (seat, advertised) = (lease.seat.get(), settings.advertised);
        let left = lease.left.min(settings.lease.duration).as_secs();
        let what = format!("seat {seat} is held by {advertised}, the address of this node");
        let advice = format!(
            "a node with this address runs, or its former process was killed: then it waits up to {left} s"
        );
        return Finding::warn("leases", what, advice);
    }
    let held = owners.len();
    Finding::ok("leases", format!("{held} of {seats} seats are held by other nodes"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ielections::{Epoch, Incarnation, Seat};

    use super::{super::finding::Verdict, *};

    #[test]
    fn a_clock_of_the_storage_is_judged_without_the_uncertainty() {
        let verdict = |server_ahead_ms, uncertainty_ms| {
            of_skew(clock_skew::ClockSkew { server_ahead_ms, uncertainty_ms }).verdict
        };
        for ahead in [SKEW_MAX_MS + 5, -SKEW_MAX_MS - 5] {
            assert_eq!(verdict(ahead, 5), Verdict::Ok);
            assert_eq!(verdict(ahead, 4), Verdict::Warn);
        }
    }

    #[test]
    fn the_own_lease_and_a_lease_of_another_format_are_told() {
        let settings = NodeSettings::new("127.0.0.1:7001".parse().unwrap());
        let lease =
            |value| vec![ObservedLease { seat: Seat::FIRST, value, left: Duration::from_secs(7) }];
        let of = |port: u16| {
            let owner = format!("127.0.0.1:{port}").parse().unwrap();
            lease(Lease { owner, incarnation: Incarnation(1), epoch: Epoch(1) }.to_bytes())
        };
        assert_eq!(of_leases(&[], &settings).verdict, Verdict::Ok);
        assert_eq!(of_leases(&of(7_002), &settings).verdict, Verdict::Ok);
        let own = of_leases(&of(7_001), &settings);
        assert_eq!(own.verdict, Verdict::Warn);
        assert!(own.advice.unwrap().contains("up to 7 s"));
        let unknown = of_leases(&lease(Bytes::from_static(b"?")), &settings);
        assert_eq!(unknown.verdict, Verdict::Fail);
    }
}
