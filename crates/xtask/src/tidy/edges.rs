//! The allowed dependencies between crates. The table is the architecture: a dependency or a crate
//! that is not in the table is an error, and so is an entry of the table that nothing uses.

use serde_json::Value;

/// Each crate of this workspace, and the crates of this workspace that it may depend on. Any crate
/// may depend on `clock` and on `base`, and its tests on [`IN_TESTS`] and [`IN_SUITES`].
const TABLE: &[(&str, &[&str])] = &[
    ("access", &[]),
    ("base", &[]),
    ("clock", &[]),
    ("istorage", &[]),
    ("istorage-redb", &["istorage"]),
    ("istorage-cassandra", &["istorage"]),
    ("istorage-dynamodb", &["istorage"]),
    ("ielections", &[]),
    ("tck", &["ielections", "istorage"]),
    ("isequencer", &[]),
    ("ownership", &["ielections"]),
    ("docnumbers", &["istorage"]),
    ("sysvvm", &["ielections", "istorage", "ownership"]),
    ("eventlog", &["istorage"]),
    ("seqstorage", &["isequencer", "sysvvm", "istorage", "eventlog"]),
    ("processor", &["docnumbers", "isequencer", "eventlog"]),
    (
        "appstream",
        &["docnumbers", "isequencer", "istorage", "seqstorage", "sysvvm", "eventlog", "ownership"],
    ),
    (
        "vvm",
        &[
            "docnumbers",
            "istorage",
            "ielections",
            "isequencer",
            "sysvvm",
            "eventlog",
            "seqstorage",
            "processor",
        ],
    ),
    ("http-server", &["access"]),
    ("http-forward", &["http-server", "vvm"]),
    ("http-api", &["access", "http-forward", "http-server", "processor", "vvm"]),
    ("http-admin", &["access", "http-api", "http-server", "vvm"]),
    ("shop", &["isequencer", "istorage", "seqstorage", "sysvvm", "eventlog", "processor"]),
    (
        "ctl",
        &[
            "appstream",
            "docnumbers",
            "eventlog",
            "http-admin",
            "http-server",
            "ielections",
            "istorage",
            "istorage-cassandra",
            "istorage-dynamodb",
            "istorage-redb",
            "sysvvm",
            "tck",
            "vvm",
        ],
    ),
    ("xtask", &[]),
    ("vvm-cli", EVERYTHING),
    ("vvm-tests", EVERYTHING),
];

/// The crates that the tests of any crate may depend on.
const IN_TESTS: &[&str] = &["tck"];

/// The further crates that the suites in the folder `tests` of a crate may depend on. Some of these
/// crates depend on the crate itself. Its unit tests would see two versions of it.
const IN_SUITES: &[(&str, &[&str])] = &[
    ("processor", &["istorage", "seqstorage", "shop"]),
    ("appstream", &["shop", "processor"]),
    ("vvm", &["shop"]),
    ("http-api", &["http-admin", "shop"]),
];

/// All crates: the binary, and the suites across crates, may depend on any of them.
const EVERYTHING: &[&str] = &["*"];

/// Crates from outside, by the start of their names, and the only crates that may use them.
const RESERVED: &[(&str, &[&str])] = &[
    ("scylla", &["istorage-cassandra", "vvm-tests"]),
    ("aws-config", &["istorage-dynamodb", "vvm-tests"]),
    ("aws-sdk-", &["istorage-dynamodb", "vvm-tests"]),
    ("aws-smithy-", &["istorage-dynamodb", "vvm-tests"]),
    ("redb", &["istorage-redb", "vvm-tests"]),
    ("getrandom", &["clock"]),
];

/// A crate of the workspace and all its dependencies.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) dependencies: Vec<Dependency>,
}

pub(super) struct Dependency {
    pub(super) name: String,
    /// The name of the crate in the sources.
    pub(super) name_in_sources: String,
    /// Whether the dependency is a crate of this workspace.
    is_ours: bool,
    /// Whether only tests use the dependency.
    is_in_tests: bool,
}

impl Package {
    /// Reads an entry of cargo's metadata.
    pub(super) fn read(package: &Value) -> Option<Package> {
        let dependency = |entry: &Value| {
            let name = entry["name"].as_str()?;
            Some(Dependency {
                name: name.to_owned(),
                name_in_sources: entry["rename"].as_str().unwrap_or(name).replace('-', "_"),
                is_ours: entry["path"].is_string(),
                is_in_tests: entry["kind"] == "dev",
            })
        };
        Some(Package {
            name: package["name"].as_str()?.to_owned(),
            dependencies: package["dependencies"]
                .as_array()?
                .iter()
                .map(dependency)
                .collect::<Option<_>>()?,
        })
    }
}

/// Returns the violations in the dependencies of all crates of the workspace.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(check_package).chain(unused(packages)).collect()
}

/// Returns the entries of the tables that no crate uses.
fn unused(packages: &[Package]) -> impl Iterator<Item = String> {
    TABLE.iter().chain(IN_SUITES).flat_map(|&(from, allowed)| {
        let Some(package) = packages.iter().find(|package| package.name == from) else {
            return vec![format!("tidy/edges.rs lists {from}, which is not a crate")];
        };
        let is_used = |to: &str| package.dependencies.iter().any(|edge| edge.name == to);
        let unused = allowed.iter().filter(|&&to| to != "*" && !is_used(to));
        unused
            .map(|to| format!("{from} does not depend on {to}: remove it from tidy/edges.rs"))
            .collect()
    })
}

fn check_package(package: &Package) -> Vec<String> {
    let name = package.name.as_str();
    let Some(allowed) = find(TABLE, name) else {
        return vec![format!("the crate {name} is not in the table of tidy/edges.rs")];
    };
    let in_suites = find(IN_SUITES, name).unwrap_or_default();
    let is_allowed = |dependency: &Dependency| {
        let to = dependency.name.as_str();
        if !dependency.is_ours {
            return RESERVED
                .iter()
                .all(|(start, users)| !to.starts_with(start) || users.contains(&name));
        }
        matches!(to, "base" | "clock")
            || allowed == EVERYTHING
            || allowed.contains(&to)
            || (dependency.is_in_tests && (IN_TESTS.contains(&to) || in_suites.contains(&to)))
    };
    let forbidden = package.dependencies.iter().filter(|dependency| !is_allowed(dependency));
    forbidden
        .map(|dependency| format!("{name} must not depend on {} (tidy/edges.rs)", dependency.name))
        .collect()
}

fn find<'a>(table: &[(&str, &'a [&'a str])], name: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn violations(name: &str, dependencies: Value) -> Vec<String> {
        let package = json!({ "name": name, "dependencies": dependencies });
        check_package(&Package::read(&package).unwrap())
    }

    #[test]
    fn edges_of_the_table_are_allowed() {
        let ours = |name: &str| json!({ "name": name, "path": "/x" });
        assert!(violations("istorage", json!([ours("clock")])).is_empty());
        assert!(violations("sysvvm", json!([ours("istorage"), ours("ielections")])).is_empty());
        assert!(violations("vvm-cli", json!([ours("istorage-redb"), ours("sysvvm")])).is_empty());
        assert!(violations("clock", json!([{ "name": "tokio" }])).is_empty());
    }

    #[test]
    fn other_edges_and_unknown_crates_are_not() {
        let ours = |name: &str| json!({ "name": name, "path": "/x" });
        let found = violations("istorage", json!([ours("sysvvm"), ours("clock")]));
        assert_eq!(found, ["istorage must not depend on sysvvm (tidy/edges.rs)"]);
        assert_eq!(violations("clock", json!([ours("istorage")])).len(), 1);
        assert_eq!(violations("utils", json!([])).len(), 1);
    }

    #[test]
    fn only_tests_may_depend_on_trials() {
        let trials = |kind: Value| json!([{ "name": "tck", "path": "/x", "kind": kind }]);
        assert!(violations("istorage-redb", trials(json!("dev"))).is_empty());
        assert_eq!(violations("istorage-redb", trials(Value::Null)).len(), 1);
    }

    #[test]
    fn only_the_suites_of_a_crate_may_depend_on_crates_above_it() {
        let shop = |kind: Value| json!([{ "name": "shop", "path": "/x", "kind": kind }]);
        assert!(violations("processor", shop(json!("dev"))).is_empty());
        assert_eq!(violations("processor", shop(Value::Null)).len(), 1);
        assert_eq!(violations("istorage", shop(json!("dev"))).len(), 1);
    }

    #[test]
    fn the_client_of_a_database_is_used_by_its_driver_only() {
        let client = |name: &str| json!([{ "name": name }]);
        assert!(violations("istorage-dynamodb", client("aws-sdk-dynamodb")).is_empty());
        assert!(violations("vvm-tests", client("redb")).is_empty());
        assert_eq!(violations("vvm-cli", client("scylla")).len(), 1);
        assert_eq!(violations("istorage-cassandra", client("aws-config")).len(), 1);
        assert_eq!(violations("istorage", client("getrandom")).len(), 1);
    }

    #[test]
    fn entries_that_nothing_uses_are_found() {
        let package = |name: &str, to: &[&str]| {
            let edges = to.iter().map(|to| json!({ "name": to, "path": "/x" }));
            let edges: Vec<_> = edges.collect();
            Package::read(&json!({ "name": name, "dependencies": edges })).unwrap()
        };
        let all = |seqstorage: &[&str]| {
            let package = |&(name, to): &(&str, &[&str])| {
                let to = if name == "seqstorage" { seqstorage } else { to };
                package(name, &[to, find(IN_SUITES, name).unwrap_or_default()].concat())
            };
            TABLE.iter().map(package).collect::<Vec<_>>()
        };
        let used = find(TABLE, "seqstorage").unwrap();
        assert_eq!(unused(&all(used)).count(), 0);
        assert_eq!(unused(&all(&used[1..])).count(), 1);
        assert_eq!(unused(&all(used)[1..]).count(), 1, "no `clock`");
        let without_suites = TABLE.iter().map(|&(name, to)| package(name, to)).collect::<Vec<_>>();
        let in_suites: usize = IN_SUITES.iter().map(|(_, to)| to.len()).sum();
        assert_eq!(unused(&without_suites).count(), in_suites);
    }

    #[test]
    fn the_table_names_only_itself_and_has_no_circle() {
        // Each crate can be removed after all crates that depend on it, so the table has no circle.
        let mut left = TABLE.iter().filter(|(_, to)| *to != EVERYTHING).collect::<Vec<_>>();
        for (_, to) in &left {
            assert!(to.iter().all(|name| find(TABLE, name).is_some()), "{to:?}");
        }
        while !left.is_empty() {
            let needed = left.iter().flat_map(|(_, to)| to.iter()).copied().collect::<Vec<_>>();
            let before = left.len();
            left.retain(|(name, _)| needed.contains(name));
            assert!(left.len() < before, "a circle among {left:?}");
        }
    }
}
