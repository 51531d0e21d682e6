//! Tokens of requests that another node forwards.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use http_api::HttpApiSettings;
use http_server::{
    Authenticator, HeaderMap, NotAuthenticated,
    access::{Caller, Grants, Principal},
};
use serde_json::Value;
use shop::{
    Follower,
    http_client::{command_path, request, try_request, workspace_path},
};
use vvm::async_trait;

use crate::support::{NodeOptions, ROW, TestCluster, WS, connect};

/// An authenticator of an embedder: the name of the caller is in the header `x-name`.
#[derive(Debug)]
struct ByName;

#[async_trait]
impl Authenticator for ByName {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Caller>, NotAuthenticated> {
        let bearer = headers.get("authorization").ok_or(NotAuthenticated::NoToken)?;
        let name = bearer.to_str().unwrap().strip_prefix("Bearer ").unwrap();
        let principal = Principal::new("test", name);
        let principal = principal.map_err(|why| NotAuthenticated::Refused(why.to_string()))?;
        let grants = if name == "reader" {
            r#"[{"app":"*","workspaces":"*","rights":["read"]}]"#.parse().unwrap()
        } else {
            Grants::everything()
        };
        Ok(Arc::new(Caller { principal, grants, expires: u64::MAX }))
    }
}

/// Makes a node require tokens.
pub(crate) fn asks(settings: &mut HttpApiSettings) {
    settings.authenticator = Some(Arc::new(ByName));
}

/// The entry checks a request, and so does the owner: an attacker may send a request to any node
/// first.
#[test]
fn the_owner_checks_the_caller_of_a_forwarded_request_again() {
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions::default());
    let options = || NodeOptions { change: Some(asks), ..NodeOptions::default() };
    let entry = cluster.entry(options());
    let send = |api, name: &str| {
        let bearer = format!("Bearer {name}");
        let headers = [("authorization", bearer.as_str())];
        request(api, "POST", &command_path(WS, "sys.CUD"), &headers, ROW)
    };
    assert_eq!(send(entry.api, "joe").0, 200, "the owner asks nobody");
    assert_eq!(send(entry.api, "reader").0, 403);
    assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 401);
    entry.stop();
    owner.stop();

    let cluster = TestCluster::new();
    let open = cluster.launch(NodeOptions::default());
    open.wait_for(|node| node.launched.node().incarnation().is_some());
    open.wait_for(|node| {
        node.command(WS, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#).0 == 200
    });
    open.stop();
    let owner = cluster.launch(options());
    owner.wait_for(|node| node.launched.node().incarnation().is_some());
    let entry = cluster.entry(NodeOptions::default());
    let refused = entry.command(WS, "sys.CUD", ROW);
    assert_eq!((refused.0, refused.1["code"].as_str()), (401, Some("unauthenticated")));
    assert_eq!(send(entry.api, "reader").0, 403);
    assert_eq!(send(entry.api, "joe").0, 200);
    let path = format!("{}/wlog", workspace_path(WS));
    let log = try_request(entry.api, "GET", &path, &[("authorization", "Bearer reader")], "");
    let last: Value = serde_json::from_str(log.unwrap().1.lines().last().unwrap()).unwrap();
    assert_eq!(last["principal"], "test|joe");
    entry.stop();
    owner.stop();
}

/// At a node that forwards, a principal that received its logs slowly held all eight places of the
/// owner. So nobody else got a log of this owner through the node.
#[test]
fn a_principal_leaves_places_for_forwarded_logs_of_others() {
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions::default());
    let text = "x".repeat(100 << 10);
    let body =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    for _ in 0..100 {
        assert_eq!(owner.command(WS, "sys.CUD", &body).0, 200);
    }
    let change: fn(&mut HttpApiSettings) = |settings| {
        asks(settings);
        settings.command_time = Duration::from_millis(1_500);
    };
    let entry = cluster.entry(NodeOptions { change: Some(change), ..NodeOptions::default() });
    let path = format!("{}/wlog?limit=1000", workspace_path(WS));
    let mut slow: Vec<_> = (0..8)
        .map(|_| {
            let mut client = connect(entry.api);
            let bearer = "authorization: Bearer slow\r\nhost: localhost";
            write!(client, "GET {path} HTTP/1.1\r\n{bearer}\r\n\r\n").unwrap();
            client
        })
        .collect();
    // Half of them wait for a place until their time is over.
    let has_log = |client: &mut TcpStream| {
        let mut head = [0; 12];
        client.read_exact(&mut head).unwrap();
        head == *b"HTTP/1.1 200"
    };
    assert_eq!(slow.iter_mut().map(has_log).filter(|has_log| *has_log).count(), 4);
    let ask = |name: &str| {
        let bearer = format!("Bearer {name}");
        let path = format!("{}/wlog?limit=1", workspace_path(WS));
        try_request(entry.api, "GET", &path, &[("authorization", &bearer)], "").unwrap()
    };
    assert_eq!(ask("joe").0, 200);
    let (status, text) = ask("slow");
    assert!(status == 429 && text.contains("rate_limited"), "{status} {text}");
    drop(slow);
    entry.wait_for(|_| ask("slow").0 == 200);
    entry.stop();
    owner.stop();
}

/// A principal that followed logs of an owner through another node held all 256 places of this
/// owner there.
#[test]
fn a_principal_leaves_places_for_forwarded_followers_of_others() {
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions::default());
    let entry = cluster.entry(NodeOptions { change: Some(asks), ..NodeOptions::default() });
    let path = format!("{}/wlog?follow=true", workspace_path(WS));
    let follow = |name: &str| {
        let bearer = format!("Bearer {name}");
        Follower::open(entry.api, &path, &[("authorization", &bearer)]).unwrap()
    };
    let slow: Vec<_> = (0..128).map(|_| follow("slow")).collect();
    assert!(slow.iter().all(|follower| follower.status == 200));
    let (refused, joe) = (follow("slow"), follow("joe"));
    assert_eq!((refused.status, joe.status), (429, 200));
    let (_, answer) = request(entry.api, "GET", &path, &[("authorization", "Bearer slow")], "");
    let leader = owner.api.to_string();
    assert_eq!((&answer["code"], &answer["owner"]), (&"rate_limited".into(), &leader.into()));
    drop((joe, slow));
    entry.stop();
    owner.stop();
}
