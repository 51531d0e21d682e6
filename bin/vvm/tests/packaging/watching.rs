//! The alerts and the dashboard: promtool judges them, and a node exports the metrics that they
//! name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use serde_json::Value;
use shop::http_client::{request, workspace_path};

use crate::{
    node::{NodeProcess, PATIENCE},
    output, repository,
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

/// A metric with another name or another label would be an alert that never fires, or an empty
/// panel.
pub(crate) fn names() {
    let exported = exported();
    let documented = documented();
    let of_files = [(RULES, expressions_of_rules()), (DASHBOARD, expressions_of_dashboard())];
    for (file, expressions) in of_files {
        assert!(expressions.len() > 10, "{file} has {} expressions", expressions.len());
        for expression in expressions {
            let used = Used::of(&expression);
            assert!(!used.metrics.is_empty(), "{file}: {expression}");
            let mut labels: BTreeSet<&str> = ["instance", "job", "le"].into();
            for metric in &used.metrics {
                let base = base(metric, &exported);
                match exported.get(base) {
                    Some(there) => labels.extend(there.iter().map(String::as_str)),
                    // Such a metric needs an event that the node here has not seen.
                    None => match documented.get(base) {
                        Some(there) => labels.extend(there.iter().map(String::as_str)),
                        None => panic!("{file}: no node exports {metric}: {expression}"),
                    },
                }
            }
            for label in &used.labels {
                assert!(labels.contains(label.as_str()), "{file}: no label {label}: {expression}");
            }
        }
    }
}

/// Returns the name without the suffix of a histogram.
fn base<'a>(metric: &'a str, exported: &BTreeMap<String, BTreeSet<String>>) -> &'a str {
    let suffixes = ["_bucket", "_sum", "_count"];
    let base = suffixes.iter().find_map(|suffix| metric.strip_suffix(suffix));
    base.filter(|_| !exported.contains_key(metric)).unwrap_or(metric)
}

/// Returns the metrics of a node that has done something, each with its labels.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
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

fn labels_of(metrics: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut labels = BTreeMap::<_, BTreeSet<_>>::new();
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

/// Returns the metrics that the pages list, each with its labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let mut documented = BTreeMap::<_, BTreeSet<_>>::new();
    for page in ["operations", "elections", "sequencing", "numbers"] {
        let page = text(&format!("docs/{page}.md"));
        for row in page.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').collect();
            let words = |cell: &str| {
                let quoted = cell.split('`').skip(1).step_by(2);
                quoted.map(str::to_owned).collect::<Vec<_>>()
            };
            for name in words(cells[1]) {
                // Some pages name the labels in braces behind the metric, others in a cell.
                let (metric, braces) = name.split_once('{').unwrap_or((&name, ""));
                let inside = braces.trim_end_matches('}').split(',');
                let inside = inside.filter_map(|label| label.split('=').next());
                let labels: Vec<_> = inside.map(|label| label.trim().to_owned()).collect();
                let of = documented.entry(metric.to_owned()).or_default();
                of.extend(labels.into_iter().chain(words(cells[2])));
            }
        }
    }
    documented
}

fn expressions_of_dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// Returns the expressions of the rules: behind `expr:`, or in the indented lines below it.
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
