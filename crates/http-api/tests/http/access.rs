//! The rights of senders: tokens at every route of the API and of the admin endpoint.

mod keys;
mod known_apps;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clock::Clock;
use http_server::{
    TokenAuthenticator,
    access::{NewToken, SigningKey, TokenRules},
};
use serde_json::{Value, json};
use shop::{
    Follower,
    http_client::{command_path, request, try_request, workspace_path},
};
use tempfile::TempDir;

use crate::{
    admin::ADMIN,
    support::{PATIENCE, ROW, TestNode, WS},
};

const ISSUER: &str = "https://issuer.example";

pub(crate) const ALL: &str = r#"[{"app":"*","workspaces":"*","rights":["read","write","admin"]}]"#;

/// An issuer of tokens, and its file of keys.
pub(crate) struct Issuer {
    key: SigningKey,
    folder: TempDir,
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

impl Issuer {
    pub(crate) fn new() -> Issuer {
        let issuer =
            Issuer { key: SigningKey::generate().unwrap(), folder: tempfile::tempdir().unwrap() };
        issuer.publish(&[&issuer.key]);
        issuer
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("keys.json")
    }

    fn publish(&self, keys: &[&SigningKey]) {
        let keys: Vec<Value> = keys
            .iter()
            .map(|key| {
                serde_json::from_str::<Value>(&key.public_keys()).unwrap()["keys"][0].clone()
            })
            .collect();
        let new = self.folder.path().join("new.json");
        std::fs::write(&new, json!({ "keys": keys }).to_string()).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    pub(crate) fn authenticator(&self) -> Arc<TokenAuthenticator> {
        let rules = TokenRules::new(ISSUER, "vvm");
        Arc::new(TokenAuthenticator::read(rules, self.file(), Clock::system()).unwrap())
    }

    /// Starts a node that requires tokens at both ports, with one workspace.
    fn node_without_workspace(&self) -> TestNode {
        let authenticator = self.authenticator();
        TestNode::with_admin(|api, admin| {
            api.authenticator = Some(Arc::clone(&authenticator) as _);
            admin.authenticator = Some(authenticator);
        })
    }

    fn node(&self) -> TestNode {
        let node = self.node_without_workspace();
        let body = r#"{"args":{"kind":"Shop"}}"#;
        let token = self.token("maker", ALL);
        let path = command_path(WS, "sys.CreateWorkspace");
        assert_eq!(ask(&node, "POST", &path, Some(&token), body).0, 200);
        node
    }

    pub(crate) fn token(&self, subject: &str, grants: &str) -> String {
        self.token_with(subject, grants, |_| {})
    }

    fn token_with(
        &self,
        subject: &str,
        grants: &str,
        change: impl FnOnce(&mut NewToken),
    ) -> String {
        let mut new = NewToken {
            issuer: ISSUER.to_owned(),
            audience: "vvm".to_owned(),
            subject: subject.to_owned(),
            issued: now() - 1,
            expires: now() + 600,
            grants: grants.parse().unwrap(),
        };
        change(&mut new);
        self.key.sign(&new).unwrap()
    }
}

/// Sends a request to the API, or to the admin endpoint if the path is one of its own. Returns the
/// status, the problem code and the challenge.
pub(crate) fn ask(
    node: &TestNode,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, String, Value) {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    let address = if path.starts_with("/api/") { node.api } else { node.admin };
    let (status, text) = try_request(address, method, path, &headers, body).unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    (status, answer["code"].as_str().unwrap_or_default().to_owned(), answer)
}

/// The description of the API. It needs a token, and shows what the token may see.
const DESCRIPTION: &str = "/api/v2/openapi.json";

const BATCH: &str =
    r#"{"commands":[{"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]}]}"#;

/// The routes of applications: the method, the path, the body, and the right that they need.
fn routes() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let at = |rest: &str| workspace_path(WS) + rest;
    let plog = |query: &str| format!("/api/v2/apps/demo/shop/partitions/1/plog{query}");
    vec![
        ("POST", at("/commands/sys.CUD"), ROW, "write"),
        ("POST", at("/commands"), BATCH, "write"),
        ("POST", at("/docs/shop.Article"), r#"{"fields":{}}"#, "write"),
        ("PATCH", at("/docs/shop.Article/70000"), r#"{"fields":{}}"#, "write"),
        ("DELETE", at("/docs/shop.Article/70000"), "", "write"),
        ("POST", at("/numbers/order/next"), "{}", "write"),
        ("GET", at("/docs?ids=70000"), "", "read"),
        ("GET", at("/docs?ids=70000&consistency=eventual"), "", "read"),
        ("GET", at("/docs/shop.Article/70000"), "", "read"),
        ("HEAD", at("/docs/shop.Article/70000"), "", "read"),
        ("GET", at("/docs/shop.Article/70000?consistency=eventual"), "", "read"),
        ("GET", at("/cdocs/shop.Article"), "", "read"),
        ("GET", at("/wlog"), "", "read"),
        ("GET", at("/wlog?follow=true&limit=1"), "", "read"),
        ("GET", at("/numbers"), "", "read"),
        ("GET", at("/numbers/order"), "", "read"),
        ("GET", at("/numbers/order/peek"), "", "read"),
        ("GET", at("/numbers/order/gaps"), "", "read"),
        ("GET", plog(""), "", "admin"),
        ("GET", plog("?follow=true&limit=1"), "", "admin"),
    ]
}

/// The operations of applications that the description names, each once.
fn described_kinds(described: &Value) -> BTreeSet<String> {
    let paths = described["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|methods| methods.as_object().unwrap().values());
    let kind = |operation: &Value| {
        let id = operation["operationId"].as_str()?.strip_prefix("demo.shop.")?;
        Some(id.split('.').next()?.to_owned())
    };
    operations.filter_map(kind).collect()
}

/// Checks that each operation of the description, and no other one, was refused with this status as
/// often as a table with this many columns demands. So a new endpoint needs a row in [`routes`].
fn check_each_is_refused(node: &TestNode, described: &Value, status: u16, columns: usize) {
    let kinds = described_kinds(described);
    assert!(kinds.contains("command") && kinds.contains("plog"), "{kinds:?}");
    let refused = |kind: &str| {
        let labels = format!("kind=\"{kind}\",status=\"{status}\"");
        node.metric(&format!("httpapi_request_seconds_count{{{labels}}}")) as usize
    };
    for kind in &kinds {
        let count = refused(kind);
        assert!(count >= columns, "no row of `routes` is {kind}: {count} times {status}");
    }
    let count: usize = kinds.iter().map(|kind| refused(kind)).sum();
    assert_eq!(count, routes().len() * columns, "a row is none of {kinds:?}");
}

/// Checks that [`ADMIN`] has each path that the endpoint names, except for those without a token.
fn check_admin_paths(node: &TestNode, admin: &str) {
    let (status, _, unknown) = ask(node, "GET", "/none", Some(admin), "");
    let reason = unknown["reason"].as_str().unwrap();
    assert_eq!(status, 404, "{reason}");
    let (_, named) = reason.split_once("the admin endpoint has ").unwrap();
    let named = named.split(", ").map(|path| path.strip_prefix("POST ").unwrap_or(path));
    let named = named.filter(|path| !["/", "/livez", "/metrics"].contains(path)).collect();
    let rows = ADMIN.map(|(_, path)| match path {
        "/readyz?verbose" => "/readyz",
        "/inspect/apps" => "/inspect/…",
        path => path,
    });
    assert_eq!(BTreeSet::from(rows), named);
}

/// Tokens that no node should accept, each with its name.
fn wrong_tokens(issuer: &Issuer) -> Vec<(&'static str, Option<String>)> {
    let good = issuer.token("a", ALL);
    let parts: Vec<&str> = good.split('.').collect();
    let with_header = |header: Value| {
        format!("{}.{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), parts[1], parts[2])
    };
    let id = issuer.key.id();
    let stranger = Issuer::new();
    let forged = stranger.token("a", ALL);
    let forged: Vec<&str> = forged.split('.').collect();
    let changed = |change: fn(&mut NewToken)| Some(issuer.token_with("a", ALL, change));
    vec![
        ("none", None),
        ("not a token", Some("secret".to_owned())),
        ("expired", changed(|new| new.expires = now() - 31)),
        ("not yet valid", changed(|new| new.issued = now() + 600)),
        ("another issuer", changed(|new| new.issuer = "https://other.example".to_owned())),
        ("another audience", changed(|new| new.audience = "web".to_owned())),
        (
            "another key",
            Some(with_header(json!({"alg": "EdDSA", "kid": id})).replace(parts[2], forged[2])),
        ),
        ("an unknown key", Some(stranger.token("a", ALL))),
        ("alg none", Some(with_header(json!({"alg": "none", "kid": id})))),
        ("alg HS256", Some(with_header(json!({"alg": "HS256", "kid": id})))),
        ("alg RS256", Some(with_header(json!({"alg": "RS256", "kid": id})))),
        ("no signature", Some(format!("{}.{}.", parts[0], parts[1]))),
    ]
}

/// Every route times every kind of wrong token. Until a token is known to be valid, the answer says
/// nothing about what is there.
#[test]
fn every_route_refuses_every_wrong_token() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let before = logged(&node, &issuer);
    let wrong = wrong_tokens(&issuer);
    let rows = routes().into_iter().map(|(method, path, body, _)| (method, path, body));
    let admin = ADMIN.map(|(method, path)| (method, path.to_owned(), ""));
    let description = ["GET", "HEAD"].map(|method| (method, DESCRIPTION.to_owned(), ""));
    let rows: Vec<_> = rows.chain(admin).chain(description).collect();
    for (method, path, body) in &rows {
        for (name, token) in &wrong {
            let (status, code, _) = ask(&node, method, path, token.as_deref(), body);
            assert_eq!(status, 401, "{name}: {method} {path}: {code}");
            if *method != "HEAD" {
                assert_eq!(code, "unauthenticated", "{name}: {method} {path}");
            }
        }
    }
    assert_eq!(logged(&node, &issuer), before, "a refused request did something");
    let count = node.metric("httpapi_unauthenticated_total{token=\"none\"}");
    assert_eq!(count as usize, rows.len());
    let all = issuer.token("a", ALL);
    let (_, _, described) = ask(&node, "GET", DESCRIPTION, Some(&all), "");
    check_each_is_refused(&node, &described, 401, wrong.len());
    check_admin_paths(&node, &all);
    node.stop();
}

fn logged(node: &TestNode, issuer: &Issuer) -> usize {
    let token = format!("Bearer {}", issuer.token("a", ALL));
    let path = workspace_path(WS) + "/wlog";
    let headers = [("authorization", token.as_str())];
    try_request(node.api, "GET", &path, &headers, "").unwrap().1.lines().count()
}

/// The applications that a sender sees in the description.
#[test]
fn the_description_shows_the_applications_of_the_token() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let ask = |grants: &str, query: &str| {
        let token = issuer.token("a", grants);
        ask(&node, "GET", &format!("{DESCRIPTION}{query}"), Some(&token), "")
    };
    let has_shop = |described: &Value| {
        described["tags"].as_array().unwrap().iter().any(|tag| tag["name"] == "demo/shop")
    };
    for (grants, is_seen) in [
        (ALL, true),
        (r#"[{"app":"demo/shop","workspaces":[7],"rights":["read"]}]"#, true),
        (r#"[{"app":"demo/bank","workspaces":"*","rights":["read","write","admin"]}]"#, false),
        ("[]", false),
    ] {
        let (status, _, described) = ask(grants, "");
        assert_eq!(status, 200, "{grants}");
        assert_eq!(has_shop(&described), is_seen, "{grants}");
        assert_eq!(described["security"][0]["bearer"], json!([]), "{grants}");
        let (status, code, described) = ask(grants, "?app=demo/shop");
        match is_seen {
            true => assert!(status == 200 && has_shop(&described), "{grants}"),
            false => assert_eq!((status, &*code), (403, "forbidden"), "{grants}"),
        }
    }
    // The page has no data of its own.
    assert_eq!(try_request(node.api, "GET", "/api/v2/", &[], "").unwrap().0, 200);
    // A load balancer has no token.
    assert_eq!(try_request(node.api, "GET", "/api/check", &[], "").unwrap().0, 200);
    node.stop();
}

/// The log of a partition has the events of all its workspaces. Partition 1 is not workspace 1.
#[test]
fn the_log_of_a_partition_is_for_administrators() {
    let issuer = Issuer::new();
    let node = issuer.node();
    for query in ["", "?follow=true&limit=1"] {
        let path = format!("/api/v2/apps/demo/shop/partitions/1/plog{query}");
        for (workspaces, right, expected) in [
            ("[1]", "admin", 403),
            ("[1,11,21]", "admin", 403),
            ("\"*\"", "read", 403),
            ("\"*\"", "write", 403),
            ("\"*\"", "admin", 200),
        ] {
            let grants = format!(
                r#"[{{"app":"demo/shop","workspaces":{workspaces},"rights":["{right}"]}}]"#
            );
            let token = issuer.token("a", &grants);
            let (status, code, _) = ask(&node, "GET", &path, Some(&token), "");
            assert_eq!(status, expected, "{grants}: {code}");
        }
    }
    node.stop();
}

/// A sender may follow a log only until its token ends.
#[test]
fn a_followed_log_ends_with_its_token() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let end = now() + 3;
    // The leeway counts.
    let token = issuer.token_with("a", ALL, |new| new.expires = end - 30);
    let bearer = format!("Bearer {token}");
    let path = workspace_path(WS) + "/wlog?follow=true";
    let mut follower = Follower::open(node.api, &path, &[("authorization", &bearer)]).unwrap();
    assert!(follower.line().unwrap().is_some());
    assert_eq!(follower.line().unwrap(), None, "the answer ends, and is not cut");
    assert!((end - 1..end + 3).contains(&now()), "{} after the end", now() as i64 - end as i64);
    node.stop();
}

/// Every route times grants that are not for it.
#[test]
fn every_route_refuses_tokens_without_its_right() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let before = logged(&node, &issuer);
    let grants = |app: &str, workspaces: &str, right: &str| {
        format!(r#"[{{"app":"{app}","workspaces":{workspaces},"rights":["{right}"]}}]"#)
    };
    const COLUMNS: usize = 5;
    for (method, path, body, right) in routes() {
        // The log of a partition has the events of all workspaces.
        let workspaces = if right == "admin" { "\"*\"" } else { "[1]" };
        let others = ["read", "write", "admin"].into_iter().filter(|other| *other != right);
        let others: Vec<_> = others.map(|other| (other, grants("*", "\"*\"", other))).collect();
        let wrong: Vec<_> = others
            .into_iter()
            .chain([
                ("another workspace", grants("demo/shop", "[2,11]", right)),
                ("another application", grants("demo/bank", "\"*\"", right)),
                ("nothing", "[]".to_owned()),
            ])
            .collect();
        assert_eq!(wrong.len(), COLUMNS);
        for (name, wrong) in wrong {
            let (status, code, _) =
                ask(&node, method, &path, Some(&issuer.token("a", &wrong)), body);
            assert_eq!(status, 403, "{name}: {method} {path}: {code}");
        }
        let fit = issuer.token("a", &grants("demo/shop", workspaces, right));
        let (status, code, _) = ask(&node, method, &path, Some(&fit), body);
        assert!(![401, 403].contains(&status), "{method} {path}: {status} {code}");
    }
    let after = logged(&node, &issuer);
    assert_eq!(after, before + 3, "the command, the batch, and the new document");
    let all = issuer.token("a", ALL);
    let (_, _, described) = ask(&node, "GET", DESCRIPTION, Some(&all), "");
    check_each_is_refused(&node, &described, 403, COLUMNS);
    for (method, path) in ADMIN {
        for wrong in [
            grants("*", "\"*\"", "write"),
            grants("demo/shop", "\"*\"", "admin"),
            grants("*", "[1]", "admin"),
        ] {
            let (status, code, _) = ask(&node, method, path, Some(&issuer.token("a", &wrong)), "");
            assert_eq!((status, &*code), (403, "forbidden"), "{method} {path}");
        }
    }
    let admin = issuer.token("a", &grants("*", "\"*\"", "admin"));
    assert_eq!(ask(&node, "GET", "/status", Some(&admin), "").0, 200);
    for open in ["/", "/livez", "/readyz", "/metrics"] {
        assert_eq!(try_request(node.admin, "GET", open, &[], "").unwrap().0, 200, "{open}");
    }
    node.stop();
}

#[test]
fn a_refused_client_learns_what_it_needs() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let path = workspace_path(WS) + "/numbers";
    let challenge = |token: Option<String>| {
        let bearer = token.map(|token| format!("authorization: bearer {token}\r\n"));
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", bearer.unwrap_or_default());
        let answer = crate::support::answer_to(node.api, &head);
        answer.header("www-authenticate").map(str::to_owned)
    };
    assert_eq!(challenge(None).unwrap(), r#"bearer realm="vvm""#);
    let refused = challenge(Some("x".to_owned())).unwrap();
    assert_eq!(refused, r#"bearer realm="vvm", error="invalid_token""#);
    let forbidden = challenge(Some(issuer.token("a", "[]"))).unwrap();
    assert_eq!(forbidden, r#"bearer realm="vvm", error="insufficient_scope""#);
    assert_eq!(challenge(Some(issuer.token("a", ALL))), None);
    let log = node.log_text();
    assert!(!log.contains(&issuer.token("a", ALL)[..40]), "a token is in the log");
    node.stop();
}

/// Two principals used the same idempotency key, and the second one got the answer of the first.
#[test]
fn an_idempotency_key_belongs_to_its_principal() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let send = |subject: &str| {
        let bearer = format!("Bearer {}", issuer.token(subject, ALL));
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", "one")];
        request(node.api, "POST", &command_path(WS, "sys.CUD"), &headers, ROW)
    };
    let (first, second, again) = (send("a"), send("b|c"), send("a"));
    assert_eq!((first.0, second.0, again.0), (200, 200, 200));
    assert_ne!(first.1["newIds"], second.1["newIds"]);
    assert_eq!(first.1["newIds"], again.1["newIds"]);
    // The events name the senders of their commands.
    let bearer = format!("Bearer {}", issuer.token("a", ALL));
    let path = workspace_path(WS) + "/wlog";
    let log = try_request(node.api, "GET", &path, &[("authorization", &bearer)], "").unwrap().1;
    let principals: Vec<_> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["principal"].clone())
        .collect();
    assert_eq!(principals, ["maker", "a", "b%7Cc"].map(|name| format!("{ISSUER}|{name}")));
    node.stop();
}

/// One client took all the time of a node, and the others waited.
#[test]
fn a_principal_that_sends_too_many_commands_is_refused() {
    let issuer = Issuer::new();
    let authenticator = issuer.authenticator();
    let node = TestNode::with_admin(|api, _| {
        api.authenticator = Some(authenticator);
        api.commands_per_second = 5;
    });
    let path = command_path(WS, "sys.CUD");
    let make = command_path(WS, "sys.CreateWorkspace");
    let maker = issuer.token("maker", ALL);
    let body = r#"{"args":{"kind":"Shop"}}"#;
    assert_eq!(ask(&node, "POST", &make, Some(&maker), body).0, 200);
    let hasty = issuer.token("hasty", ALL);
    let answers: Vec<_> = (0..20).map(|_| ask(&node, "POST", &path, Some(&hasty), ROW)).collect();
    let refused = answers
        .iter()
        .filter(|(status, code, _)| (*status, code.as_str()) == (429, "rate_limited"));
    assert!((5..=15).contains(&refused.count()), "{answers:?}");
    assert_eq!(ask(&node, "POST", &path, Some(&maker), ROW).0, 200, "another principal");
    // A batch counts as its commands: the first one uses up the allowance of more than a second.
    let batch = workspace_path(WS) + "/commands";
    let cud = r#"{"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]}"#;
    let body = format!(r#"{{"commands":[{}]}}"#, [cud; 20].join(","));
    let bulky = issuer.token("bulky", ALL);
    assert_eq!(ask(&node, "POST", &batch, Some(&bulky), &body).0, 200);
    let (status, code, _) = ask(&node, "POST", &path, Some(&bulky), ROW);
    assert_eq!((status, code.as_str()), (429, "rate_limited"), "after 20 commands at once");
    let (status, code, _) = ask(&node, "POST", &batch, Some(&hasty), &body);
    assert_eq!((status, code.as_str()), (429, "rate_limited"), "after 20 single commands");
    // A command of many rows counts as one for each ten, and a draw as its numbers.
    let rows = vec![r#"{"id":ID,"table":"shop.Article"}"#; 200];
    let rows = rows.iter().zip(1..).map(|(row, id): (_, u32)| row.replace("ID", &id.to_string()));
    let body = format!(r#"{{"rows":[{}]}}"#, rows.collect::<Vec<_>>().join(","));
    let wide = issuer.token("wide", ALL);
    assert_eq!(ask(&node, "POST", &path, Some(&wide), &body).0, 200);
    assert_eq!(ask(&node, "POST", &path, Some(&wide), ROW).0, 429, "after 200 rows at once");
    let draw = workspace_path(WS) + "/numbers/order/next";
    let drawer = issuer.token("drawer", ALL);
    assert_eq!(ask(&node, "POST", &draw, Some(&drawer), r#"{"count":100}"#).0, 200);
    assert_eq!(ask(&node, "POST", &path, Some(&drawer), ROW).0, 429, "after 100 numbers at once");
    let read = workspace_path(WS) + "/numbers";
    assert!(
        (0..20).all(|_| ask(&node, "GET", &read, Some(&hasty), "").0 == 200),
        "reads have no limit"
    );
    node.stop();
}

/// Nobody could find the operator that had drained a node.
#[test]
fn the_log_names_the_operator_of_each_action() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let (operator, client) = (issuer.token("operator", ALL), issuer.token("client", "[]"));
    assert_eq!(ask(&node, "POST", "/drain", Some(&operator), "").0, 202);
    assert_eq!(ask(&node, "POST", "/drain?cancel=true", Some(&operator), "").0, 202);
    assert_eq!(ask(&node, "POST", "/drain?cancel=1", Some(&client), "").0, 403);
    let log = node.log_text();
    let line = |with: &[&str]| log.lines().any(|line| with.iter().all(|text| line.contains(text)));
    let drain =
        ["action of an operator", "https://issuer.example|operator", "/drain", "status=202"];
    assert!(line(&drain) && line(&["cancel=true", "status=202"]), "{log}");
    let refused = ["refused", "https://issuer.example|client", "/drain", "cancel=1", "status=403"];
    assert!(line(&refused), "{log}");
    // A token without grants wrote 16 KiB into the log with each request.
    let long = format!("/drain?cancel={}", "x".repeat(10_000));
    assert_eq!(ask(&node, "POST", &long, Some(&client), "").0, 403);
    let log = node.log_text();
    let line = log.lines().find(|line| line.contains("cancel=xxx")).unwrap();
    assert!((256..1_000).contains(&line.len()), "{line}");
    // An action that the page of another site asks for is logged, too.
    let bearer = format!("Bearer {operator}");
    let headers = [("authorization", bearer.as_str()), ("origin", "http://localhost:1")];
    assert_eq!(try_request(node.admin, "POST", "/drain", &headers, "").unwrap().0, 403);
    let log = node.log_text();
    assert!(log.lines().any(|line| line.contains("status=403") && line.contains("|operator")));
    node.stop();
}

/// The test tried only one action, and another one could lack its line.
#[test]
fn each_action_and_each_refused_operator_has_a_line_in_the_log() {
    let issuer = Issuer::new();
    let node = issuer.node();
    // The page of another site asks for the action, so nothing is done.
    let bearer = format!("Bearer {}", issuer.token("operator", ALL));
    let headers = [("authorization", bearer.as_str()), ("origin", "http://localhost:1")];
    let posts = || ADMIN.into_iter().filter(|(method, _)| *method == "POST");
    for (method, path) in posts() {
        assert_eq!(try_request(node.admin, method, path, &headers, "").unwrap().0, 403, "{path}");
    }
    // Each client has its own limit of lines.
    let refused = || posts().chain([("GET", "/inspect/apps")]);
    for (number, (method, path)) in refused().enumerate() {
        let client = issuer.token(&format!("client{number}"), "[]");
        assert_eq!(ask(&node, method, path, Some(&client), "").0, 403, "{path}");
    }
    let log = node.log_text();
    let is_logged = |what: &str, path: &str| {
        let parts = [what, &format!("action=\"{path}\""), "status=403"];
        assert!(
            log.lines().any(|line| parts.iter().all(|part| line.contains(part))),
            "{path}: {log}"
        );
    };
    posts().for_each(|(_, path)| is_logged("action of an operator", path));
    refused().for_each(|(_, path)| is_logged("request of an operator refused", path));
    node.stop();
}

/// A page of an application could not use the API, because no answer named its origin.
#[test]
fn listed_pages_may_use_the_api_and_no_others() {
    let issuer = Issuer::new();
    let authenticator = issuer.authenticator();
    let node = TestNode::with_admin(|api, _| {
        api.authenticator = Some(authenticator);
        api.only_local = false;
        api.page_origins = vec!["https://app.example".to_owned(), "http://localhost:1".to_owned()];
    });
    let path = command_path(WS, "sys.CUD");
    let send = |method: &str, origin: &str, more: &str| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: node.example\r\norigin: {origin}\r\n{more}content-length: 0\r\n\r\n"
        );
        crate::support::answer_to(node.api, &head)
    };
    let ask = "access-control-request-method: POST\r\n";
    for origin in ["https://app.example", "http://localhost:1"] {
        let preflight = send("OPTIONS", origin, ask);
        assert_eq!(preflight.status, 200, "{preflight:?}");
        assert_eq!(preflight.header("access-control-allow-origin"), Some(origin));
        let headers = preflight.header("access-control-allow-headers").unwrap();
        assert!(headers.contains("authorization") && headers.contains("idempotency-key"));
        assert_eq!(preflight.header("access-control-allow-credentials"), None);
        // The page must be able to read why it was refused.
        let refused = send("POST", origin, "");
        assert_eq!(refused.status, 401, "{refused:?}");
        assert_eq!(refused.header("access-control-allow-origin"), Some(origin));
        assert_eq!(refused.header("vary"), Some("origin"));
    }
    for origin in
        ["https://app.example.org", "https://app.example:443", "http://app.example", "null"]
    {
        let preflight = send("OPTIONS", origin, ask);
        assert_eq!(preflight.status, 405, "{preflight:?}");
        assert_eq!(preflight.header("access-control-allow-origin"), None);
        assert_eq!(send("POST", origin, "").header("access-control-allow-origin"), None);
    }
    assert_eq!(send("OPTIONS", "https://app.example", "").status, 405, "no preflight");
    node.stop();
}

/// On a node with tokens, the views that need none were open to the pages of any site whose name
/// the DNS resolved to this machine.
#[test]
fn views_without_tokens_are_no_more_open_to_pages_than_before() {
    let issuer = Issuer::new();
    let authenticator = issuer.authenticator();
    let node = TestNode::with_admin(|_, admin| {
        admin.authenticator = Some(authenticator);
        admin.only_local = false;
    });
    let bearer = format!("authorization: Bearer {}\r\n", issuer.token("operator", ALL));
    let get = |path: &str, host: &str, more: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n");
        crate::support::answer_to(node.admin, &head).status
    };
    for path in ["/metrics", "/readyz", "/livez"] {
        assert_eq!(get(path, "localhost", ""), 200, "{path}");
        assert_eq!(get(path, "evil.example", ""), 421, "{path}");
        assert_eq!(get(path, "localhost", "origin: https://evil.example\r\n"), 403, "{path}");
        assert_eq!(get(path, "localhost", "sec-fetch-site: cross-site\r\n"), 403, "{path}");
    }
    // The advice led operators with tokens to `allow_unauthenticated`, which ends the use of
    // tokens.
    for (headers, status) in
        [("host: evil.example", 421), ("host: localhost\r\nsec-fetch-site: cross-site", 403)]
    {
        let head = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n\r\n");
        let refused = crate::support::answer_to(node.admin, &head);
        let reason = refused.json()["reason"].as_str().unwrap().to_owned();
        assert_eq!(refused.status, status, "{reason}");
        let (before, _) = reason.split_once("`allow_unauthenticated`").unwrap();
        let (with, without) = before.split_once("without tokens, ").unwrap();
        assert!(with.contains("tokens (the section `access`)"), "{reason}");
        assert!(without.contains("an authenticating proxy"), "{reason}");
    }
    // A client with a token knows the node by its name, and the page has no data.
    assert_eq!(get("/status", "node.example", &bearer), 200);
    assert_eq!(get("/status", "node.example", ""), 401);
    assert_eq!(get("/", "node.example", ""), 200);
    node.stop();
}

/// The live page of an operator showed the cluster for as long as it was open.
#[test]
fn the_events_of_the_live_page_end_with_the_token() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let end = now() + 3;
    // The leeway counts.
    let token = issuer.token_with("operator", ALL, |new| new.expires = end - 30);
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let mut events = Follower::open(node.admin, "/cluster/events", &headers).unwrap();
    assert_eq!(events.status, 200, "{}", events.head);
    assert!(events.line().unwrap().is_some_and(|line| line.starts_with("data: ")));
    while events.line().expect("the answer ends, and is not cut").is_some() {
        assert!(now() < end + 20, "the events go on");
    }
    assert!((end - 1..end + 3).contains(&now()), "{} after the end", now() as i64 - end as i64);
    node.stop();
}
