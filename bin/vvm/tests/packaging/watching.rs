//! The alerts and the dashboard: promtool judges them, and nodes export the metrics that they name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use serde_json::Value;
use shop::http_client::{request, workspace_path};

use crate::{
    node::{NodeProcess, PATIENCE, free},
    output, repository, vvm,
};

const RULES: &str = "packaging/prometheus/vvm.rules.yml";
const TESTS: &str = "packaging/prometheus/vvm.test.yml";
const DASHBOARD: &str = "packaging/grafana/vvm.json";

pub(crate) fn rules() {
    output(Command::new("promtool").args(["check", "rules"]).arg(repository(RULES)));
    output(Command::new("promtool").args(["test", "rules"]).arg(repository(TESTS)));
    let (rules, tests) = (text(RULES), text(TESTS));
    for name in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {name}\n")), "no test has the alert {name}");
    }
}

/// promtool reads no dashboards, so each expression becomes a rule of a file.
pub(crate) fn panels() {
    let mut rules = "groups:\n- name: panels\n  rules:\n".to_owned();
    for (panel, expression) in expressions_of_dashboard().iter().enumerate() {
        let expression = expression.replace("$__rate_interval", "5m").replace("$instance", "a");
        assert!(!expression.contains('$'), "an unknown variable: {expression}");
        // A text of JSON is one of YAML.
        rules += &format!("  - record: panel:{panel}\n    expr: {}\n", Value::from(expression));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panels.yml");
    fs::write(&file, rules).unwrap();
    output(Command::new("promtool").args(["check", "rules"]).arg(file));
}

fn text(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// The labels of each metric.
type Metrics = BTreeMap<String, BTreeSet<String>>;

/// The metrics that no node of [`exported`] has, each with the reason. The sources have their names
/// and labels.
const UNSEEN: [(&str, &str); 4] = [
    ("httpapi_peer_connections", "it needs a second node"),
    ("ielections_lost_total", "the node ends"),
    ("istorage_redb_damaged_rows_total", "the nodes are in memory"),
    ("istorage_redb_failed_commits_total", "the nodes are in memory"),
];

/// A metric with another name or another label would be an alert that never fires, or an empty
/// panel.
pub(crate) fn names() {
    let sources = sources();
    let mut exported = exported();
    for (metric, why) in UNSEEN {
        let labels = made_by(&sources, metric);
        let labels = labels.unwrap_or_else(|| panic!("no source makes {metric} ({why})"));
        assert!(exported.insert(metric.to_owned(), labels).is_none(), "a node exports {metric}");
    }
    let of_files = [(RULES, expressions_of_rules()), (DASHBOARD, expressions_of_dashboard())];
    for (file, expressions) in of_files {
        assert!(expressions.len() > 10, "{file} has {} expressions", expressions.len());
        for expression in expressions {
            let used = Used::of(&expression);
            assert!(!used.metrics.is_empty(), "{file}: {expression}");
            let mut labels: BTreeSet<&str> = ["instance", "job", "le"].into();
            for metric in &used.metrics {
                let there = exported.get(base(metric, &exported)).unwrap_or_else(|| {
                    panic!(
                        "{file}: no node exports {metric}: {expression}\n\
                         correct the name, or let a node of this trial do what the metric counts"
                    )
                });
                labels.extend(there.iter().map(String::as_str));
            }
            for label in &used.labels {
                assert!(labels.contains(label.as_str()), "{file}: no label {label}: {expression}");
            }
        }
    }
    let documented = documented();
    for (metric, page) in &documented {
        // Some metrics exist from their first event.
        let is_known = exported.contains_key(metric) || made_by(&sources, metric).is_some();
        assert!(is_known, "{page}: nothing makes the metric {metric}");
    }
    for metric in exported.keys() {
        assert!(documented.contains_key(metric), "no page lists the metric {metric}");
    }
}

/// Returns the name without the suffix of a histogram.
fn base<'a>(metric: &'a str, exported: &Metrics) -> &'a str {
    let suffixes = ["_bucket", "_sum", "_count"];
    let base = suffixes.iter().find_map(|suffix| metric.strip_suffix(suffix));
    base.filter(|_| !exported.contains_key(metric)).unwrap_or(metric)
}

/// Returns the metrics of nodes that have done something. Together they have all parts that one
/// node can have.
fn exported() -> Metrics {
    let mut exported = of_plain_node();
    for (metric, labels) in of_secured_node() {
        exported.entry(metric).or_default().extend(labels);
    }
    exported
}

fn of_plain_node() -> Metrics {
    let folder = tempfile::tempdir().unwrap();
    let config = "[storage]\ndriver = \"mem\"\n[node]\nlease_seconds = 1\n";
    let node = NodeProcess::start(folder.path(), config).ready();
    node.create_workspace(1);
    let draw = format!("{}/numbers/order/next", workspace_path(1));
    assert_eq!(request(node.api, "POST", &draw, &[], "").0, 200);
    assert_eq!(request(node.api, "GET", "/none", &[], "").0, 404);
    let start = std::time::Instant::now();
    loop {
        let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
        let metrics = metrics.as_str().unwrap();
        // A renewal and a write of numbers come some time after the start.
        if metrics.contains("\nielections_left_seconds_count")
            && metrics.contains("\nisequencer_flush")
        {
            node.stop();
            return labels_of(metrics);
        }
        assert!(start.elapsed() < PATIENCE, "{metrics}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Returns the metrics of a node with TLS, tokens and traces.
fn of_secured_node() -> Metrics {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("node.pem"), own.cert.pem()).unwrap();
    fs::write(folder.join("node-key.pem"), own.signing_key.serialize_pem()).unwrap();
    let run = |line: &str| output(vvm(&line.split(' ').collect::<Vec<_>>()).current_dir(folder));
    run("token keygen --out key.json --public keys.json");
    // Nothing listens at the address of the collector.
    let config = format!(
        "[storage]\ndriver = \"mem\"\n\
         [http.tls]\ncert_file = \"node.pem\"\nkey_file = \"node-key.pem\"\n\
         [access]\nkeys_file = \"keys.json\"\nissuer = \"https://issuer.example\"\n\
         [traces]\nendpoint = \"http://{}\"\n",
        free()
    );
    let node = NodeProcess::start(folder, &config).ready();
    let token = run("token new --key key.json --issuer https://issuer.example --rights read \
         --subject client --for 1h --app demo/shop --workspaces *");
    let bearer = format!("Bearer {}", token.trim());
    for (headers, status) in [(&[][..], 401), (&[("authorization", &*bearer)][..], 403)] {
        assert_eq!(request(node.admin, "GET", "/status", headers, "").0, status);
    }
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    node.stop();
    labels_of(metrics.as_str().unwrap())
}

fn labels_of(metrics: &str) -> Metrics {
    let mut labels = Metrics::new();
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: BTreeMap<&str, &str> = types.collect();
    for line in metrics.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = line.split(['{', ' ']).next().unwrap();
        let histogram =
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let histogram = histogram.filter(|base| types.get(base) == Some(&"histogram"));
        let of = labels.entry(histogram.unwrap_or(name).to_owned()).or_default();
        of.extend(Used::of(line.rsplit_once(' ').unwrap().0).labels);
    }
    labels
}

/// Returns the sources of the product.
fn sources() -> Vec<String> {
    let (mut folders, mut sources) = (vec![repository("bin/vvm/src")], Vec::new());
    let crates = fs::read_dir(repository("crates")).unwrap();
    folders.extend(crates.map(|one| one.unwrap().path().join("src")).filter(|src| src.is_dir()));
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "rs") => {
                    sources.push(fs::read_to_string(path).unwrap());
                }
                false => {}
            }
        }
    }
    sources
}

/// Returns the labels that a source gives a metric: the texts before `=>` in the statement that has
/// the name.
fn made_by(sources: &[String], metric: &str) -> Option<BTreeSet<String>> {
    let name = format!("\"{metric}\"");
    let made = sources.iter().find_map(|source| Some(source.split_once(&name)?.1))?;
    let mut pieces: Vec<_> = made.split(';').next()?.split("\" =>").collect();
    pieces.pop();
    let labels = pieces.iter().filter_map(|piece| piece.rsplit('"').next());
    Some(labels.map(str::to_owned).collect())
}

/// Returns the metrics that the tables of the pages list, each with a page.
fn documented() -> BTreeMap<String, String> {
    let mut documented = BTreeMap::new();
    for page in ["operations", "commands", "elections", "numbers", "sequencing"] {
        let (page, mut count) = (format!("docs/{page}.md"), 0);
        for row in text(&page).lines().filter(|line| line.starts_with("| `")) {
            let names = row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2);
            // Some pages name labels in braces after the metric.
            let names = names.filter_map(|name| name.split('{').next());
            for name in names.filter(|name| is_metric(name)) {
                documented.insert(name.to_owned(), page.clone());
                count += 1;
            }
        }
        assert!(count >= 5, "{page} lists {count} metrics");
    }
    documented
}

/// Returns whether a quoted word is the whole name of a metric of a node.
fn is_metric(word: &str) -> bool {
    let crates = [
        "docnumbers_",
        "httpapi_",
        "ielections_",
        "isequencer_",
        "istorage_",
        "processor_",
        "vvm_",
    ];
    crates.iter().any(|prefix| word.starts_with(prefix))
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

fn expressions_of_dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut expressions: Vec<_> =
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    // A variable asks for the values of a label.
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    for query in variables.iter().filter_map(|variable| variable["query"]["query"].as_str()) {
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (metric, label) = inside.expect(query).split_once(", ").expect(query);
        expressions.push(format!("{metric}{{{label}!=\"\"}}"));
    }
    expressions
}

/// Returns the expressions of the rules: after `expr:`, or in the indented lines below it.
fn expressions_of_rules() -> Vec<String> {
    let rules = text(RULES);
    let mut lines = rules.lines().peekable();
    let mut expressions = Vec::new();
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix("        expr: ") else { continue };
        let mut expression = first.trim_start_matches('|').to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("          ")) {
            expression += more;
        }
        expressions.push(expression);
    }
    expressions
}

/// The names that an expression uses.
#[derive(Debug, Default)]
struct Used {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Used {
    /// Reads an expression of PromQL. A name in braces, or in the parentheses of a clause such as
    /// `by`, is a label. A name before a parenthesis is a function. Other names are metrics.
    fn of(expression: &str) -> Used {
        const CLAUSES: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
        const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
        let mut used = Used::default();
        let (mut in_braces, mut in_clause, mut clause) = (false, false, false);
        for (word, next) in words(expression) {
            match word.as_str() {
                "{" | "}" => in_braces = word == "{",
                "(" => (in_clause, clause) = (clause, false),
                ")" => in_clause = false,
                name if CLAUSES.contains(&name) && next == Some('(') => clause = true,
                name if [&CLAUSES[..], &OPERATORS].concat().contains(&name) => {}
                name if name.starts_with('$') => {}
                name if in_braces || in_clause => drop(used.labels.insert(name.to_owned())),
                _ if next == Some('(') || is_aggregation(&word) => {}
                name => drop(used.metrics.insert(name.to_owned())),
            }
        }
        used
    }
}

/// An aggregation may have its clause before its parentheses.
fn is_aggregation(word: &str) -> bool {
    ["sum", "max", "min", "count", "avg", "topk"].contains(&word)
}

/// Returns the names and the parentheses of an expression, each with the next character that is no
/// space. Texts, numbers and times are left out.
fn words(expression: &str) -> Vec<(String, Option<char>)> {
    let mut words = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => 2 + rest[1..].find('"').unwrap(),
            '[' => 1 + rest.find(']').unwrap(),
            _ if first.is_alphanumeric() || first == '_' || first == '$' => {
                let is_part = |c: char| c.is_alphanumeric() || "_$.".contains(c);
                rest.find(|c| !is_part(c)).unwrap_or(rest.len())
            }
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        rest = after.trim_start();
        let is_name = first.is_alphabetic() || first == '_' || first == '$';
        if is_name || "{}()".contains(first) {
            words.push((word.to_owned(), rest.chars().next()));
        }
    }
    words
}

/// The reader of expressions finds what it must.
pub(crate) fn reader() {
    let used = Used::of(
        "histogram_quantile(0.99, sum by (op, le) (rate(a_bucket{instance=~\"$i{\", x!=\"1\"}[5m]))) > 0.5
         or sum(b) by (c) / ignoring (d) group_left topk(3, e offset 5m) and $f",
    );
    let metrics: Vec<_> = used.metrics.iter().map(String::as_str).collect();
    let labels: Vec<_> = used.labels.iter().map(String::as_str).collect();
    assert_eq!(metrics, ["a_bucket", "b", "e"]);
    assert_eq!(labels, ["c", "d", "instance", "le", "op", "x"]);
}
