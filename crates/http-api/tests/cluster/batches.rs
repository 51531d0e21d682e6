//! Batches of commands through a node that does not own the partition.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;
use shop::http_client::{logged, request, try_request, workspace_path};

use crate::support::{ClusterNode, Cut, NodeOptions, Proxy, TestCluster, WS, Way};

/// A batch of three commands. The second one is refused.
const BATCH: &str = r#"{"commands":[
    {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]},
    {"command":"sys.CUD","rows":[]},
    {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]}]}"#;

fn path() -> String {
    format!("{}/commands", workspace_path(WS))
}

fn statuses(answer: &Value) -> Vec<u64> {
    let answers = answer["answers"].as_array().unwrap_or_else(|| panic!("{answer}"));
    answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect()
}

/// The number of events of each request.
fn events(node: &ClusterNode) -> HashMap<String, usize> {
    let mut events = HashMap::new();
    for id in logged(node.api, WS) {
        *events.entry(id).or_default() += 1;
    }
    events
}

#[test]
fn a_batch_with_a_key_is_done_once_wherever_the_connection_breaks() {
    let proxy = Proxy::start();
    let (owner, entry) = TestCluster::owner_and_entry(Some(proxy.address));
    proxy.leads_to(owner.cluster);
    let mut ids = Vec::new();
    for way in [Way::Request, Way::Answer] {
        for after in (0..).step_by(29) {
            let id = format!("{way:?}-{after}");
            proxy.cut(Cut { way, after });
            let headers = format!("x-request-id: {id}\r\nidempotency-key: {id}\r\n");
            let answer = entry.ask("POST", &path(), &headers, BATCH);
            assert_eq!(answer.status, 200, "{id}: {answer:?}");
            assert_eq!(statuses(&answer.json()), [200, 400, 200], "{id}");
            ids.push(id);
            if !proxy.was_cut() {
                break;
            }
        }
    }
    assert!(ids.len() > 30, "{}", ids.len());
    let events = events(&owner);
    assert!(ids.iter().all(|id| events.get(id) == Some(&2)), "{events:?}");
    entry.stop();
    owner.stop();
}

/// The second try of a batch was refused in part by a problem that says nothing about the first
/// one, and the client believed that the command was refused.
#[test]
fn a_batch_that_is_tried_again_is_unknown_unless_all_its_commands_are_settled() {
    let proxy = Proxy::start();
    let (owner, entry) = TestCluster::owner_and_entry(Some(proxy.address));
    proxy.leads_to(owner.cluster);
    let unsettled = BATCH.replace(r#""rows":[]"#, r#""rows":[{"id":1,"table":"shop.None"}]"#);
    let headers = "x-request-id: one\r\nidempotency-key: one\r\n";
    proxy.cut(Cut { way: Way::Answer, after: 0 });
    let answer = entry.ask("POST", &path(), headers, &unsettled);
    assert!(proxy.was_cut());
    assert_eq!((answer.status, answer.code().as_str()), (504, "unknown"), "{answer:?}");
    // The client sends it again, and no earlier try of this request may have done it.
    let answer = entry.ask("POST", &path(), headers, &unsettled);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(statuses(&answer.json()), [200, 400, 200]);
    assert_eq!(events(&owner)["one"], 2);
    entry.stop();
    owner.stop();
}

/// The partition moves to and fro while batches run. If nothing of a batch was done, the whole
/// batch goes to the next owner. Otherwise each answer says what became of its command.
#[test]
fn the_answers_of_a_batch_are_true_while_the_partition_moves() {
    let options = || NodeOptions { seats: Some(2), ..NodeOptions::default() };
    let cluster = TestCluster::new();
    let first = cluster.owner(options());
    let second = cluster.beside(&first, options());
    let entry = cluster.entry(options());
    let commands = [r#"{"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]}"#; 10];
    let body = format!(r#"{{"commands":[{}]}}"#, commands.join(","));
    let stop = AtomicBool::new(false);
    let answers: Vec<(String, u16, Value)> = thread::scope(|scope| {
        let send = |client: usize| {
            let (stop, body, api) = (&stop, &body, entry.api);
            scope.spawn(move || {
                let mut answers = Vec::new();
                for number in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let id = format!("{client}-{number}");
                    let headers = [("x-request-id", &*id)];
                    let (status, answer) =
                        try_request(api, "POST", &path(), &headers, body).unwrap();
                    answers.push((id, status, serde_json::from_str(&answer).unwrap()));
                    thread::sleep(Duration::from_millis(10));
                }
                answers
            })
        };
        let clients: Vec<_> = (0..2).map(send).collect();
        for owner in [&second, &first] {
            thread::sleep(Duration::from_millis(300));
            owner.take(WS);
        }
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let events = events(&entry);
    for (id, status, answer) in &answers {
        assert_eq!(*status, 200, "{id}: {answer}");
        let found = events.get(id).copied().unwrap_or_default();
        let count =
            |wanted| statuses(answer).into_iter().filter(|status| *status == wanted).count();
        let (done, unknown) = (count(200), count(504));
        assert_eq!(done + unknown + count(503), 10, "{id}: {answer}");
        assert!(done > 0 || unknown > 0, "{id}: nothing was done, so it is tried again");
        assert!((done..=done + unknown).contains(&found), "{id}: {found} events, {done} done");
    }
    assert!(answers.len() > 8, "{}", answers.len());
    entry.stop();
    second.stop();
    first.stop();
}

/// Documents by their ids are forwarded to the owner, and each node reads them from the storage.
#[test]
fn documents_are_read_by_their_ids_on_any_node() {
    let cluster = TestCluster::new();
    let options = || NodeOptions { seats: Some(2), ..NodeOptions::default() };
    let owner = cluster.owner(options());
    let other = cluster.beside(&owner, options());
    let docs = format!("{}/docs", workspace_path(WS));
    let made = |_| {
        let article = format!("{docs}/shop.Article");
        let (status, made) = request(owner.api, "POST", &article, &[], r#"{"fields":{}}"#);
        assert_eq!(status, 201, "{made}");
        made["newIds"]["1"].to_string()
    };
    let ids: Vec<_> = (0..3).map(made).collect();
    let path = format!("{docs}?ids={},70000", ids.join(","));
    let (_, whole) = request(owner.api, "GET", &path, &[], "");
    assert_eq!(whole["docs"].as_array().unwrap().len(), 3);
    let forwarded = other.ask("GET", &path, "", "");
    assert_eq!((forwarded.status, &forwarded.json()), (200, &whole));
    assert_eq!(forwarded.header("x-vvm-served-by"), Some(&*owner.api.to_string()));
    assert_eq!(forwarded.header("x-vvm-consistency"), None);
    let read = other.ask("GET", &format!("{path}&consistency=eventual"), "", "");
    assert_eq!((read.status, &read.json()), (200, &whole));
    assert_eq!(read.header("x-vvm-served-by"), Some(&*other.api.to_string()));
    assert_eq!(read.header("x-vvm-consistency"), Some("eventual"));
    other.stop();
    owner.stop();
}
