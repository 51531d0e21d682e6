//! The configurations that are refused. Each error names the place, the key, and the correction.

use super::*;

/// A file, the line and the column of the wrong setting, its key, and a part of the reason.
pub(super) type Refusal<'a> = (&'a str, [usize; 2], &'a str, &'a str);

/// Returns the error of `config check` for a file with overrides.
pub(super) fn error_of(path: &Path, text: &str, overrides: &[ConfigOverride]) -> String {
    std::fs::write(path, text).unwrap();
    let checked =
        VvmConfig::read(Some(path), overrides).and_then(|config| crate::serve::check(&config));
    checked.expect_err(text).to_string()
}

pub(super) fn check_refusals(refusals: &[Refusal<'_>]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    for (text, [line, column], key, reason) in refusals {
        let message = error_of(&path, text, &[]);
        let start = format!("{}, line {line}, column {column}: `{key}`: ", path.display());
        assert!(message.starts_with(&start), "{text}: {start}: {message}");
        assert!(message.contains(reason), "{text}: {reason}: {message}");
    }
}

pub(super) fn cassandra(more: &str) -> String {
    format!(
        "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = [\"a\"]\n{more}\n"
    )
}

pub(super) fn dynamodb(more: &str) -> String {
    format!("[storage]\ndriver = \"dynamodb\"\n[storage.dynamodb]\n{more}\n")
}

#[test]
fn a_value_of_another_type_or_range_is_refused_with_the_expected_values() {
    check_refusals(&[
        (
            "[cluster]\nseats = \"many\"\n",
            [2, 1],
            "cluster.seats",
            "a whole number from 1 to 65535 is expected, and not `\"many\"`",
        ),
        (
            "[http]\nqueue = 0\n",
            [2, 1],
            "http.queue",
            "a whole number from 1 to 9223372036854775807 is expected, and not `0`",
        ),
        ("[http]\n\n  queue = [1]\n", [3, 3], "http.queue", "from 1 to 9223372036854775807 is"),
        ("[http]\nqueue = 0.5\n", [2, 1], "http.queue", "and not `0.5`"),
        (
            "[sequences]\ncached_numbers = -1\n",
            [2, 1],
            "sequences.cached_numbers",
            "from 0 to 9223372036854775807 is expected, and not `-1`",
        ),
        (
            "[http]\nallow_unauthenticated = 1\n",
            [2, 1],
            "http.allow_unauthenticated",
            "true or false is expected, and not `1`",
        ),
        (
            "[node]\nfolder = 5\n",
            [2, 1],
            "node.folder",
            "a text in quotes (in a shell: '\"…\"') is expected, and not `5`",
        ),
        ("[node]\nfolder = true\n", [2, 1], "node.folder", "and not `true`"),
        ("[node]\nfolder = 2026-01-01\n", [2, 1], "node.folder", "and not `2026-01-01`"),
        (
            "[node]\nadvertised = \"localhost:1\"\n",
            [2, 1],
            "node.advertised",
            "an IP and a port are expected, such as 127.0.0.1:8822",
        ),
        (
            "[http]\nlisten = true\n",
            [2, 1],
            "http.listen",
            "an IP and a port in quotes are expected, such as \"127.0.0.1:8822\"",
        ),
        (
            "[node]\nlease_seconds = \"soon\"\n",
            [2, 1],
            "node.lease_seconds",
            "a number, such as 20 or 0.5, is expected, and not `\"soon\"`",
        ),
        (&cassandra("datacenter = 1"), [5, 1], "storage.cassandra.datacenter", "a text in quotes"),
        (
            &cassandra("login = { username = 1 }"),
            [5, 11],
            "storage.cassandra.login.username",
            "is expected, and not `1`",
        ),
    ]);
}

#[test]
fn a_list_in_the_place_of_a_table_is_refused() {
    const TABLE: &str = "a table is expected, and not a list; `[[…]]` makes a list";
    check_refusals(&[
        ("node = 5\n", [1, 1], "node", "a table is expected, and not `5`"),
        ("node = []\n", [1, 1], "node", TABLE),
        ("\n[[node]]\nfolder = \"x\"\n", [2, 3], "node", TABLE),
        ("[[storage.redb]]\npath = \"x\"\n", [1, 11], "storage.redb", TABLE),
        ("admin = [\"127.0.0.1:1\", true]\n", [1, 1], "admin", TABLE),
        ("[storage]\nredb = [\"x.redb\", 5]\n", [2, 1], "storage.redb", TABLE),
        ("apps = [[\"a/b\", 1, \"t.toml\", {}]]\n", [1, 9], "apps.0", TABLE),
        ("[apps]\n", [1, 2], "apps", "a list in brackets is expected, and not a table"),
        (&cassandra("login = [\"x\"]"), [5, 1], "storage.cassandra.login", TABLE),
        (
            &dynamodb("billing = { provisioned = [1, 1] }"),
            [4, 13],
            "storage.dynamodb.billing.provisioned",
            TABLE,
        ),
    ]);
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_one() {
    check_refusals(&[
        (
            "[admin]\nlisten = \"127.0.0.1:1\"\nlisen = [1]\n",
            [3, 1],
            "admin.lisen",
            "unknown key `lisen`, did you mean `listen`? (expected: `listen`, `allow_",
        ),
        ("[htpt]\nqueue = 1\n", [1, 2], "htpt", "unknown key `htpt`, did you mean `http`?"),
        (
            "[storage]\ndriver = \"redb\"\n\n[storage.redb]\npaht = \"x\"\n",
            [5, 1],
            "storage.redb.paht",
            "unknown key `paht`, did you mean `path`?",
        ),
        (
            "[sequences]\nstorage = \"redb\"\n",
            [2, 1],
            "sequences.storage",
            "unknown value `redb` (expected: `system`, `view`)",
        ),
        (
            "[storage]\ndriver = \"casandra\"\n",
            [2, 1],
            "storage.driver",
            "unknown value `casandra`, did you mean `cassandra`?",
        ),
        (
            "[storage]\ndriver = 5\n",
            [2, 1],
            "storage.driver",
            "a name in quotes, or a table with one key, is expected, and not `5`",
        ),
        ("[storage]\ndriver = [\"redb\"]\n", [2, 1], "storage.driver", "a name in quotes"),
        ("[[apps]]\nname = \"a/b\"\n", [1, 1], "apps.0", "the key `tables` is missing"),
        (
            "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\n",
            [3, 10],
            "storage.cassandra",
            "the key `contact_points` is missing",
        ),
    ]);
}

#[test]
fn a_value_without_use_is_refused_with_the_reason() {
    check_refusals(&[
        ("[cluster]\nseats = 0\n", [2, 1], "cluster.seats", "from 1 to 65535"),
        ("[node]\nlease_seconds = 0.5\n", [2, 1], "node.lease_seconds", "a second or more"),
        ("[node]\nstop_seconds = 0\n", [2, 1], "node.stop_seconds", "more than 0"),
        ("[node]\ncall_seconds = 0.0000001\n", [2, 1], "node.call_seconds", "0.001"),
        ("[node]\nacquire_seconds = 0.0000001\n", [2, 1], "node.acquire_seconds", "0.001"),
        ("[sequences]\ntrust_level = 3\n", [2, 1], "sequences.trust_level", "0, 1 or 2"),
        ("[log]\nfilter = \"a=b=c\"\n", [2, 1], "log.filter", "`a=b=c` is not a filter"),
        ("[storage]\nsystem_keyspace = \"A\"\n", [2, 1], "storage.system_keyspace", "3 to 48"),
        ("[[apps]]\nname = \"a\"\n", [2, 1], "apps.0.name", "owner/name"),
        (
            "[[apps]]\nname = \"a/b\"\ntables = \"none.toml\"\nworkspaces = {}\n",
            [3, 1],
            "apps.0.tables",
            "none.toml",
        ),
    ]);
}

#[test]
fn settings_of_a_node_that_do_not_fit_together_are_refused() {
    check_refusals(&[
        ("[node]\nlease_seconds = 5\ncall_seconds = 2\n", [3, 1], "node.call_seconds", "1s"),
        (
            &dynamodb("[node]\nlease_seconds = 20\n[sequences]\ntrust_level = 2"),
            [5, 1],
            "node.lease_seconds",
            "a lease of 536 s or more",
        ),
        (
            "[http]\nlisten = \"0.0.0.0:1\"\n",
            [2, 1],
            "http.listen",
            "set `http.allow_unauthenticated = true`",
        ),
        (
            "\n[admin]\nlisten = \"0.0.0.0:1\"\n",
            [3, 1],
            "admin.listen",
            "set `admin.allow_unauthenticated = true`",
        ),
        (
            "[http]\nlisten = \"127.0.0.1:1\"\n[admin]\nlisten = \"127.0.0.1:1\"\n",
            [4, 1],
            "admin.listen",
            "another port",
        ),
        (
            "[storage]\ndriver = \"dynamodb\"\n[node]\nadvertised = \"0.0.0.0:1\"\n",
            [4, 1],
            "node.advertised",
            "set an address",
        ),
        (
            &dynamodb("[node]\nadvertised = \"10.0.0.1:0\""),
            [5, 1],
            "node.advertised",
            "choose a port",
        ),
        (&dynamodb("[http]\nlisten = \"127.0.0.1:0\""), [5, 1], "http.listen", "choose a port"),
        ("[http]\nbody_bytes = 268435457\n", [2, 1], "http.body_bytes", "268435456"),
        ("[http]\nlogs = 33\n", [2, 1], "http.logs", "32 logs"),
        ("[http]\nanswers_bytes = 1000\nlogs = 1\n", [3, 1], "http.logs", "more bytes"),
        // Ordinary answers have 3 of the 4 MiB. The log would take 2 MiB, and each document needs 2
        // MiB.
        ("[http]\nanswers_bytes = 4194304\nlogs = 1\n", [3, 1], "http.logs", "0 logs"),
    ]);
}

#[test]
fn a_cluster_port_that_cannot_be_used_is_refused() {
    let tls = "[cluster.tls]\ncert_file = \"c\"\nkey_file = \"k\"\nca_file = \"a\"";
    let on_redb = format!("[cluster]\n{tls}");
    let beyond = |more: &str| dynamodb(&format!("[cluster]\nlisten = \"0.0.0.0:1\"\n{more}{tls}"));
    let listen = |more: &str| dynamodb(&format!("[cluster]\nlisten = \"127.0.0.1:1\"\n{more}"));
    check_refusals(&[
        ("[cluster]\nseats = 2\n", [2, 1], "cluster.seats", "set `seats = 1`"),
        ("[cluster]\nlisten = \"127.0.0.1:1\"\n", [2, 1], "cluster.listen", "one node can run"),
        (
            "[cluster]\nadvertised = \"127.0.0.1:1\"\n",
            [2, 1],
            "cluster.advertised",
            "no cluster port",
        ),
        (&on_redb, [2, 10], "cluster.tls", "without `cluster.listen`"),
        ("[cluster]\ndrain_seconds = 0\n", [2, 1], "cluster.drain_seconds", "more than 0"),
        ("[cluster]\nlisten = \"node1:1\"\n", [2, 1], "cluster.listen", "an IP and a port"),
        (
            &dynamodb("[cluster]\nlisten = \"10.0.0.1:1\""),
            [5, 1],
            "cluster.listen",
            "set `cert_file`, `key_file` and `ca_file` in `[cluster.tls]`, or listen on 127.0.0.1",
        ),
        (&beyond(""), [4, 2], "cluster.advertised", "set an address"),
        (&beyond("advertised = \"0.0.0.0:1\"\n"), [6, 1], "cluster.advertised", "set an address"),
        (&beyond("advertised = \"10.0.0.1:0\"\n"), [6, 1], "cluster.advertised", "choose a port"),
        (
            &dynamodb("[cluster]\nlisten = \"127.0.0.1:0\""),
            [5, 1],
            "cluster.listen",
            "choose a port",
        ),
        (
            &listen("[http]\nlisten = \"127.0.0.1:1\""),
            [5, 1],
            "cluster.listen",
            "the API already listens on 127.0.0.1:1",
        ),
        (
            &listen("[admin]\nlisten = \"127.0.0.1:1\""),
            [5, 1],
            "cluster.listen",
            "the admin endpoint already listens",
        ),
        (
            &listen("[cluster.tls]\ncert_file = \"c\"\nkey_file = \"k\""),
            [6, 10],
            "cluster.tls",
            "the key `ca_file` is missing",
        ),
        (
            &listen("[cluster.tls]\ncert = \"c\""),
            [7, 1],
            "cluster.tls.cert",
            "did you mean `cert_file`?",
        ),
    ]);
}

/// The configuration of an application with a series. The series begins in line 5.
fn with_series(folder: &Path, series: &str) -> String {
    let tables = "[tables.\"shop.Bill\"]\nkind = \"WDoc\"\nnumbers = { number = \"bill\" }\n";
    std::fs::write(folder.join("bills.toml"), tables).unwrap();
    format!(
        "[[apps]]\nname = \"a/b\"\ntables = \"bills.toml\"\nworkspaces = {{}}\n[apps.series.{series}\n"
    )
}

const FAST: &str = "template = \"A{counter:4}\"\npolicy = \"fast\"";
const GAPLESS: &str = "template = \"A{counter:4}\"\npolicy = \"gapless\"";

/// A series, the place and the key of its wrong setting, and a part of the reason.
type SeriesRefusal = (String, [usize; 2], &'static str, &'static str);

fn check_series(refusals: &[SeriesRefusal]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    for (series, [line, column], key, reason) in refusals {
        let text = with_series(folder.path(), series);
        let message = error_of(&path, &text, &[]);
        let start =
            format!("{}, line {line}, column {column}: `apps.0.series.{key}`: ", path.display());
        assert!(message.starts_with(&start), "{text}: {start}: {message}");
        assert!(message.contains(reason), "{text}: {reason}: {message}");
    }
}

#[test]
fn a_wrong_definition_of_a_series_is_refused_at_its_key() {
    check_series(&[
        ("order]".to_owned(), [5, 14], "order", "the key `template` is missing"),
        ("order]\ntemplate = \"A\"".to_owned(), [5, 14], "order", "the key `policy` is missing"),
        (
            format!("order]\n{FAST}\ntemplat = 1"),
            [8, 1],
            "order.templat",
            "did you mean `template`",
        ),
        (
            "order]\npolicy = \"quick\"".to_owned(),
            [6, 1],
            "order.policy",
            "unknown value `quick` (expected: `fast`, `gapless`)",
        ),
        (format!("order]\n{FAST}\nreset = \"hour\""), [8, 1], "order.reset", "`never`, `year`"),
        (format!("order]\n{FAST}\nreset = \"day\""), [6, 1], "order.template", "add `{date:yyyy"),
        (
            "order]\npolicy = \"fast\"\ntemplate = \"A\"".to_owned(),
            [7, 1],
            "order.template",
            "add `{counter:5}`",
        ),
        (format!("order]\n{FAST}\nzone = \"Mars\""), [8, 1], "order.zone", "use an IANA name"),
        (format!("order]\n{FAST}\nstep = 0"), [8, 1], "order.step", "use 1 or more"),
        (
            format!("order]\n{FAST}\nwarn_at_percent = 0"),
            [8, 1],
            "order.warn_at_percent",
            "use 1 to 100",
        ),
        (
            format!("order]\n{FAST}\noverflow = \"error\"\nstart = 10000"),
            [9, 1],
            "order.start",
            "needs more than the 4 digits",
        ),
        (format!("\"an order\"]\n{FAST}"), [5, 14], "an order", "1 to 64 characters"),
    ]);
}

#[test]
fn a_setting_that_the_policy_of_a_series_does_not_have_is_refused() {
    check_series(&[
        (format!("order]\n{FAST}\nrange = 0"), [8, 1], "order.range", "from 1 to"),
        (
            format!("order]\n{FAST}\nrange = 10\nrefill_below = 11"),
            [9, 1],
            "order.refill_below",
            "a range has 10 counters",
        ),
        (
            format!("order]\n{FAST}\nrecord = 65601"),
            [8, 1],
            "order.record",
            "only a gapless series has `record`",
        ),
        (format!("order]\n{GAPLESS}"), [7, 1], "order.policy", "such as 65601"),
        (
            format!("order]\n{GAPLESS}\nrecord = 65601\nrange = 10"),
            [9, 1],
            "order.range",
            "only a fast series has `range`",
        ),
        (
            format!("order]\n{GAPLESS}\nrecord = 65601\nscope = \"application\""),
            [5, 14],
            "order",
            "counts in each workspace",
        ),
        (format!("order]\n{GAPLESS}\nrecord = 7"), [5, 14], "order", "7"),
        (format!("order]\n{FAST}\n[apps.series.Order]\n{FAST}"), [5, 14], "order", "twice"),
    ]);
}

/// A number field needs a gapless series.
#[test]
fn a_number_field_without_its_series_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    for (id, reason) in [("order", "`bill`, which is not declared"), ("bill", "which is fast")] {
        let text = with_series(folder.path(), &format!("{id}]\n{FAST}"));
        let message = error_of(&path, &text, &[]);
        let start = format!("{}, line 3, column 1: `apps.0.tables`: ", path.display());
        assert!(message.starts_with(&start) && message.contains(reason), "{reason}: {message}");
    }
}

#[test]
fn a_wrong_sequence_is_refused_at_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    let tables = "[tables.\"shop.Visit\"]\nkind = \"WDoc\"\nsequences = { number = \"Visit\" }\n";
    std::fs::write(folder.path().join("visits.toml"), tables).unwrap();
    let check = |sequences: &str, [line, column]: [usize; 2], key: &str, reason: &str| {
        let text = format!(
            "[[apps]]\nname = \"a/b\"\ntables = \"visits.toml\"\nworkspaces = {{ Shop = 1, Store = 2 }}\n{sequences}\n"
        );
        let message = error_of(&path, &text, &[]);
        let start = format!("{}, line {line}, column {column}: `apps.0.{key}`: ", path.display());
        assert!(message.starts_with(&start), "{sequences}: {start}: {message}");
        assert!(message.contains(reason), "{sequences}: {reason}: {message}");
    };
    let visit = "[apps.sequences.Shop]\nVisit = ";
    for (declared, column, key, reason) in [
        ("{ start = 1 }", 1, "", "the key `id` is missing"),
        ("{ id = 256, from = 1 }", 21, ".from", "unknown key `from`"),
        ("{ id = 65536 }", 11, ".id", "from 0 to 65535"),
        ("{ id = 3 }", 11, ".id", "sequence 3 belongs to the system: use 256 or more"),
        ("{ id = 255 }", 11, ".id", "use 256 or more"),
        ("{ id = 256, start = 0 }", 21, ".start", "numbers begin at 1: set 1 or more"),
        ("{ id = 256, start = -1 }", 21, ".start", "from 0 to"),
        (
            "{ id = 256, start = 5, end = 4 }",
            32,
            ".end",
            "the last number 4 is below the first number 5: set 5 or more",
        ),
        ("{ id = 256, end = 0 }", 21, ".end", "below the first number 1"),
        ("7", 1, "", "a table is expected, and not `7`"),
    ] {
        let key = format!("sequences.Shop.Visit{key}");
        check(&format!("{visit}{declared}"), [6, column], &key, reason);
    }
    let two = format!("{visit}{{ id = 256 }}\nCall = {{ id = 256 }}");
    let why = "`Call` and `Visit` of workspaces of the kind `Shop` have the same id 256: give one another id";
    check(&two, [6, 11], "sequences.Shop.Visit.id", why);
    let unknown = "[apps.sequences.Shp]\nVisit = { id = 256 }";
    let why = "has no kind `Shp` (it has: `Shop`, `Store`): declare the kind, or correct its name";
    check(unknown, [5, 17], "sequences.Shp", why);
    let no_name = "[apps.sequences.Shop]\n\"my-visit\" = { id = 256 }";
    check(no_name, [6, 1], "sequences.Shop.my-visit", "`my-visit` is not a name");
    let other = "[apps.sequences.Shop]\nCall = { id = 256 }";
    check(other, [3, 1], "tables", "`Visit`, which is not declared: declare it for a kind");
    // One kind is enough, and the last number of all is allowed.
    let right =
        format!("{visit}{{ id = 65535, start = 4611686018427387903, end = 4611686018427387903 }}");
    let text = format!(
        "[[apps]]\nname = \"a/b\"\ntables = \"visits.toml\"\nworkspaces = {{ Shop = 1, Store = 2 }}\n{right}\n"
    );
    std::fs::write(&path, text).unwrap();
    crate::serve::check(&VvmConfig::read(Some(&path), &[]).unwrap()).unwrap();
}

#[test]
fn settings_of_cassandra_that_do_not_fit_together_are_refused() {
    check_refusals(&[
        ("[storage]\ndriver = \"cassandra\"\n", [2, 1], "storage.driver", "contact_points"),
        (
            "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = []\n",
            [4, 1],
            "storage.cassandra.contact_points",
            "at least one server",
        ),
        (
            &cassandra("consistency = \"local_quorum\""),
            [5, 1],
            "storage.cassandra.consistency",
            "needs the setting `datacenter`",
        ),
        (
            &cassandra("serial_consistency = \"local_serial\""),
            [5, 1],
            "storage.cassandra.serial_consistency",
            "needs the setting `datacenter`",
        ),
        (
            &cassandra("login = { username = \"x\" }"),
            [5, 1],
            "storage.cassandra.login",
            "`password` or `password_file`",
        ),
        (
            &cassandra("[storage.cassandra.login]\nusername = \"x\"\npassword_file = \"none\""),
            [7, 1],
            "storage.cassandra.login.password_file",
            "none cannot be read",
        ),
        (
            &cassandra("replication = { simple = 0 }"),
            [5, 1],
            "storage.cassandra.replication",
            "at least one replica",
        ),
        (
            &cassandra("tls = { ca_file = \"none.pem\" }"),
            [5, 9],
            "storage.cassandra.tls.ca_file",
            "none.pem",
        ),
    ]);
}

#[test]
fn settings_of_dynamodb_that_do_not_fit_together_are_refused() {
    check_refusals(&[
        (&dynamodb("table_prefix = \"!!\""), [4, 1], "storage.dynamodb.table_prefix", "a-z"),
        (
            &dynamodb("endpoint = \"localhost:8000\""),
            [4, 1],
            "storage.dynamodb.endpoint",
            "http://",
        ),
        (
            &dynamodb("access_key_id = \"x\""),
            [4, 1],
            "storage.dynamodb.access_key_id",
            "secret_access_key",
        ),
    ]);
}

#[test]
fn a_setting_of_an_override_is_refused_with_the_name_of_the_override() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    let file = cassandra("login = { username = \"x\", password = \"y\" }");
    for (text, name, value, start) in [
        (
            "[http]\nlisten = \"127.0.0.1:1\"\n",
            "VVM__HTTP__LISTEN",
            "0.0.0.0:1",
            "VVM__HTTP__LISTEN=0.0.0.0:1: `http.listen`: other machines",
        ),
        // The file gives the first server another place.
        (
            &file,
            "VVM__STORAGE__CASSANDRA__CONTACT_POINTS",
            "[1]",
            "VVM__STORAGE__CASSANDRA__CONTACT_POINTS: `storage.cassandra.contact_points.0`: a text",
        ),
        (
            "",
            "VVM__STORAGE__CASSANDRA__LOGIN__USERNAME",
            "x",
            "VVM__STORAGE__CASSANDRA__LOGIN__USERNAME: `storage.cassandra`: the key",
        ),
        ("", "VVM__APPS", "[{ nam = 1 }]", "VVM__APPS=[{ nam = 1 }]: `apps.0.nam`: unknown key"),
    ] {
        let message = error_of(&path, text, &[variable(name, value)]);
        assert!(message.starts_with(start), "{name}={value}: {message}");
    }
    // An override in another section does not hide the place in the file.
    let message = error_of(&path, "[http]\nqueue = -1\n", &[variable("VVM__HTTP__LOGS", "1")]);
    assert!(message.contains("vvm.toml, line 2, column 1: `http.queue`"), "{message}");
}

#[test]
fn a_text_that_is_no_toml_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    for (text, line, column, part) in [
        ("[node]\nseats =\n", 2, 8, "seats ="),
        ("a = 1\na = 2\n", 2, 1, "a = 2"),
        ("[storage.redb]\ncache_bytes = 99999999999999999999\n", 2, 15, "cache_bytes = 9"),
    ] {
        let message = error_of(&path, text, &[]);
        let place = format!("at line {line}, column {column}");
        assert!(message.starts_with(&path.display().to_string()), "{message}");
        for part in [&*place, part] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[test]
fn a_token_counts_for_a_short_time_after_its_end() {
    let access = "[access]\nkeys_file = \"none\"\nissuer = \"i\"\nleeway_seconds = 301\n";
    check_refusals(&[(access, [4, 1], "access.leeway_seconds", "at most 300 s")]);
}

#[test]
fn parts_of_a_lease_that_do_not_fit_are_refused_at_their_keys() {
    check_refusals(&[
        // The advice ignored the parts that are set: a lease of 121 s was advised, and refused.
        (
            &cassandra("[node]\nstop_grace_seconds = 60\n[sequences]\ntrust_level = 2"),
            [5, 2],
            "node.lease_seconds",
            "a lease of 184 s or more",
        ),
        (
            &cassandra(
                "[node]\nlease_seconds = 60\nstop_grace_seconds = 20\n[sequences]\ntrust_level = 2",
            ),
            [6, 1],
            "node.lease_seconds",
            "a lease of 100 s or more",
        ),
        // The clocks of servers may differ by more than this, and the start-up check passed.
        (
            &cassandra(
                "[node]\nlease_seconds = 130\nclock_skew_seconds = 0.1\n[sequences]\ntrust_level = 2",
            ),
            [7, 1],
            "node.clock_skew_seconds",
            "set 0.5 or more",
        ),
        // The part that was set is in the way, and the lease was named.
        (
            "[node]\nstop_grace_seconds = 12\n",
            [2, 1],
            "node.stop_grace_seconds",
            "too short for what",
        ),
        ("[node]\nrenew_seconds = 11\n", [2, 1], "node.renew_seconds", "too short for what"),
        ("[node]\nrenew_call_seconds = 2.9\n", [2, 1], "node.renew_call_seconds", "tried again"),
        (
            "[node]\nrenew_retry_seconds = 1\n",
            [2, 1],
            "node.renew_retry_seconds",
            "leaves 0ns for a call",
        ),
        (
            "[node]\nstop_grace_seconds = 9\nrenew_seconds = 12\n",
            [3, 1],
            "node.renew_seconds",
            "too short for what",
        ),
    ]);
}
