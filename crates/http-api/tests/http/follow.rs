//! Clients that follow logs.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use shop::{
    Follower,
    http_client::{request, workspace_path},
};

use crate::support::{PATIENCE, ROW, TestNode, WS, connect};

const PARTITION_LOG: &str = "/api/v2/apps/demo/shop/partitions/1/plog";

fn wlog(query: &str) -> String {
    format!("{}/wlog?follow=true{query}", workspace_path(WS))
}

/// Reads the next event.
fn event(follower: &mut Follower) -> Value {
    let line = follower.line().unwrap().expect("the answer has no end");
    serde_json::from_str(&line).unwrap()
}

fn offsets(follower: &mut Follower, count: usize) -> Vec<u64> {
    (0..count).map(|_| event(follower)["wlogOffset"].as_u64().unwrap()).collect()
}

fn write(node: &TestNode, count: usize) {
    for _ in 0..count {
        assert_eq!(node.command(WS, "sys.CUD", ROW).0, 200);
    }
}

#[test]
fn a_follower_gets_the_events_that_are_there_and_then_each_new_one() {
    let node = TestNode::start();
    write(&node, 2);
    let follow = |query: &str| Follower::open(node.api, &wlog(query), &[]).unwrap();
    let (mut all, mut new) = (follow(""), follow("&from=end"));
    let (mut later, mut two) = (follow("&from=6"), follow("&from=2&limit=2"));
    for one in [&all, &new, &later, &two] {
        assert_eq!(one.status, 200, "{}", one.head);
        assert!(one.head.contains("content-type: application/x-ndjson\r\n"), "{}", one.head);
    }
    assert_eq!(offsets(&mut all, 3), [1, 2, 3]);
    assert_eq!(offsets(&mut two, 2), [2, 3]);
    assert_eq!(two.line().unwrap(), None, "it wanted two events");
    write(&node, 4);
    assert_eq!(offsets(&mut all, 4), [4, 5, 6, 7]);
    assert_eq!(offsets(&mut new, 4), [4, 5, 6, 7]);
    assert_eq!(offsets(&mut later, 2), [6, 7]);

    // The lines are those of the log.
    let path = format!("{}/wlog", workspace_path(WS));
    let (_, log) = shop::http_client::try_request(node.api, "GET", &path, &[], "").unwrap();
    let mut again = follow("&limit=7");
    let lines: Vec<_> = std::iter::from_fn(|| again.line().unwrap()).collect();
    assert_eq!(lines, log.lines().collect::<Vec<_>>());
    drop((all, new, later));
    node.stop();
}

#[test]
fn events_have_ids_with_which_a_client_goes_on() {
    let node = TestNode::start();
    write(&node, 2);
    let accept = ("accept", "text/event-stream");
    let mut events = Follower::open(node.api, &wlog(""), &[accept]).unwrap();
    assert!(events.head.contains("content-type: text/event-stream\r\n"), "{}", events.head);
    assert!(events.head.contains("cache-control: no-store\r\n"), "{}", events.head);
    let mut line = || events.line().unwrap().unwrap();
    assert_eq!([line(), line()], ["retry: 1000", "id: 0"]);
    for offset in 1..=3 {
        assert_eq!(line(), format!("id: {offset}"));
        let data: Value = serde_json::from_str(line().strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["wlogOffset"], offset);
    }
    let last = ("last-event-id", "2");
    let mut events = Follower::open(node.api, &wlog(""), &[accept, last]).unwrap();
    let mut lines = || events.line().unwrap().unwrap();
    assert_eq!([lines(), lines(), lines()], ["retry: 1000", "id: 2", "id: 3"]);
    // The connection of a client that waits for the next event may end before the event comes.
    let mut waits = Follower::open(node.api, &wlog("&from=end"), &[accept]).unwrap();
    let mut lines = || waits.line().unwrap().unwrap();
    assert_eq!([lines(), lines()], ["retry: 1000", "id: 3"]);
    drop((events, waits));
    node.stop();
}

#[test]
fn an_administrator_follows_the_log_of_a_partition() {
    let node = TestNode::start();
    // Workspace 11 is in the same partition, and workspace 2 is not.
    for ws in [2, 11] {
        let (status, answer) =
            node.command(ws, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
        assert_eq!(status, 200, "{answer}");
    }
    let (status, log) = request(node.api, "GET", PARTITION_LOG, &[], "");
    assert_eq!(status, 200, "{log}");
    let mut follower =
        Follower::open(node.api, &format!("{PARTITION_LOG}?follow=true"), &[]).unwrap();
    let mut place = || {
        let event = event(&mut follower);
        (event["plogOffset"].as_u64().unwrap(), event["workspace"].as_u64().unwrap())
    };
    assert_eq!([place(), place()], [(1, 1), (2, 11)]);
    write(&node, 1);
    assert_eq!(place(), (3, 1));
    drop(follower);
    for (path, status) in [
        (PARTITION_LOG.replace("partitions/1/", "partitions/10/"), 404),
        (PARTITION_LOG.replace("partitions/1/", "partitions/x/"), 400),
        (PARTITION_LOG.replace("plog", "log"), 404),
    ] {
        assert_eq!(request(node.api, "GET", &path, &[], "").0, status, "{path}");
    }
    assert_eq!(request(node.api, "POST", PARTITION_LOG, &[], "").0, 405);
    node.stop();
}

/// A follower got the events of another partition: the partitions had the same epoch, and a
/// followed log was found by its epoch.
#[test]
fn followers_of_several_partitions_get_the_events_of_their_own() {
    let node = TestNode::start();
    for ws in [2, 11] {
        let (status, answer) =
            node.command(ws, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
        assert_eq!(status, 200, "{answer}");
    }
    let log = |partition| format!("/api/v2/apps/demo/shop/partitions/{partition}/plog?follow=true");
    let mut followers = [2, 1].map(|partition| {
        let follower = Follower::open(node.api, &log(partition), &[]).unwrap();
        (partition, follower)
    });
    for round in 0..3 {
        for ws in [2, 11] {
            let (status, answer) =
                node.command(ws, "sys.CUD", r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#);
            assert_eq!(status, 200, "{answer}");
        }
        for (partition, follower) in &mut followers {
            let expected: &[u64] = match (round, &*partition) {
                (0, 1) => &[1, 11, 11],
                (0, _) => &[2, 2],
                (_, 1) => &[11],
                _ => &[2],
            };
            let found: Vec<u64> =
                expected.iter().map(|_| event(follower)["workspace"].as_u64().unwrap()).collect();
            assert_eq!(found, expected, "partition {partition}, round {round}");
        }
    }
    drop(followers);
    node.stop();
}

#[test]
fn a_request_that_makes_no_sense_is_refused() {
    let node = TestNode::start();
    for query in ["&from=0", "&from=x", "&limit=0", "&after=1"] {
        let (status, answer) = request(node.api, "GET", &wlog(query), &[], "");
        assert_eq!((status, answer["code"].as_str()), (400, Some("bad_request")), "{query}");
    }
    // The message said only that `end` is not a number.
    for query in ["from=end", "from=end&follow=false"] {
        let path = format!("{}/wlog?{query}", workspace_path(WS));
        let (status, answer) = request(node.api, "GET", &path, &[], "");
        assert_eq!((status, answer["code"].as_str()), (400, Some("bad_request")), "{query}");
        assert!(answer["reason"].as_str().unwrap().contains("add `follow=true`"), "{answer}");
    }
    let path = wlog("").replace("follow=true", "follow=yes");
    assert_eq!(request(node.api, "GET", &path, &[], "").0, 400);
    let path = wlog("").replace("workspaces/1/", "workspaces/21/");
    assert_eq!(request(node.api, "GET", &path, &[], "").0, 404, "no such workspace");
    node.stop();
}

/// Followers do not use the places of logs, and there is a limit of them.
#[test]
fn followers_are_limited_and_leave_room_for_others() {
    let node = TestNode::with(|settings| {
        settings.followers = 2;
        settings.logs = 1;
    });
    let follow = || Follower::open(node.api, &wlog(""), &[]).unwrap();
    let (mut first, mut second) = (follow(), follow());
    assert_eq!((offsets(&mut first, 1), offsets(&mut second, 1)), (vec![1], vec![1]));
    assert_eq!(follow().status, 503);
    let (status, answer) = request(node.api, "GET", &wlog(""), &[], "");
    assert_eq!((status, answer["code"].as_str()), (503, Some("too_many_followers")), "{answer}");
    assert_eq!(node.logged(WS).len(), 1, "the whole log can be read");
    drop(second);
    // The node notices by its next write that the client has left.
    let start = Instant::now();
    loop {
        write(&node, 1);
        let third = follow();
        if third.status == 200 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{}", third.head);
    }
    drop(first);
    node.stop();
}

/// A node that stops ends its followers instead of waiting for them.
#[test]
fn followers_end_when_the_node_stops() {
    let node = TestNode::start();
    let mut followers: Vec<_> =
        (0..3).map(|_| Follower::open(node.api, &wlog(""), &[]).unwrap()).collect();
    followers.iter_mut().for_each(|one| assert_eq!(offsets(one, 1), [1]));
    let start = Instant::now();
    node.stop();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    for mut one in followers {
        assert_eq!(one.line().unwrap(), None, "the answer ends, and is not cut");
    }
}

/// A client that stops receiving holds nobody up, loses nothing, and is cut off in the end.
#[test]
fn a_slow_follower_gets_all_events_and_holds_nobody_up() {
    const EVENTS: u64 = 3_000;
    let node = TestNode::start();
    let text = "x".repeat(4_000);
    let row =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    let mut slow = Follower::open(node.api, &wlog("&from=end"), &[]).unwrap();
    let mut quick = Follower::open(node.api, &wlog("&from=end"), &[]).unwrap();
    thread::scope(|scope| {
        let quick = scope.spawn(|| {
            let start = Instant::now();
            (offsets(&mut quick, EVENTS as usize), start.elapsed())
        });
        let start = Instant::now();
        // 12 MB do not fit into the buffers of a connection.
        for _ in 0..EVENTS {
            assert_eq!(node.command(WS, "sys.CUD", &row).0, 200);
        }
        let written = start.elapsed();
        let expected: Vec<_> = (2..2 + EVENTS).collect();
        // The slow follower begins to read when the quick one has all events.
        let (offsets_of_quick, took) = quick.join().unwrap();
        assert!(offsets_of_quick == expected);
        let late = took.saturating_sub(written);
        assert!(
            late < Duration::from_secs(3),
            "the slow follower holds up the quick one: {late:?}"
        );
        assert!(offsets(&mut slow, EVENTS as usize) == expected);
    });
    // It is at the end of the log again, and takes part in what all share.
    write(&node, 1);
    assert_eq!(offsets(&mut slow, 1), [EVENTS + 2]);
    drop((quick, slow));
    node.stop();
}

#[test]
fn a_follower_that_takes_nothing_is_cut_off() {
    let node = TestNode::with(|settings| settings.limits.answer_time = Duration::from_millis(400));
    let text = "x".repeat(900_000);
    let row =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    let mut follower = Follower::open(node.api, &wlog(""), &[]).unwrap();
    // A follower that takes what there is may be silent for longer than that.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(offsets(&mut follower, 1), [1]);
    for _ in 0..20 {
        assert_eq!(node.command(WS, "sys.CUD", &row).0, 200);
    }
    thread::sleep(Duration::from_secs(1));
    let mut taken = 0;
    let error = loop {
        match follower.line() {
            Ok(line) => taken += usize::from(line.is_some_and(|line| !line.is_empty())),
            Err(error) => break error,
        }
    };
    assert!(taken < 20, "{error}");
    let reason =
        "httpapi_connections_closed_total{service=\"api\",reason=\"answer_not_taken\"} 1\n";
    assert!(node.metrics().contains(reason), "{}", node.metrics());
    node.stop();
}

/// Writes events of 200 KB.
fn write_large(node: &TestNode, events: usize) {
    let text = "x".repeat(200_000);
    let row =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    for _ in 0..events {
        assert_eq!(node.command(WS, "sys.CUD", &row).0, 200);
    }
}

/// Followers that received nothing kept all places for reads of earlier events until they were cut.
/// All other followers were refused meanwhile.
#[test]
fn a_follower_that_takes_nothing_gives_its_place_back() {
    const EVENTS: usize = 100;
    let node = TestNode::with(|settings| settings.logs = 4);
    // No connection buffers 20 MB.
    write_large(&node, EVENTS);
    let mut stalled = Follower::open(node.api, &wlog(""), &[]).unwrap();
    assert_eq!(stalled.status, 200, "{}", stalled.head);
    let start = Instant::now();
    let mut next = Follower::open(node.api, &wlog("&from=100"), &[]).unwrap();
    assert_eq!(next.status, 200, "{}", next.head);
    assert_eq!(offsets(&mut next, 2), [100, 101]);
    // A read that goes on has its place for 5 s.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    // The stalled follower goes on where it was.
    assert!(offsets(&mut stalled, EVENTS + 1) == Vec::from_iter(1..=EVENTS as u64 + 1));
    drop((next, stalled));
    node.stop();
}

/// Clients that received nothing held all memory for large events, and the followers of all other
/// logs waited until these clients were cut.
///
/// How long a follower needs for an event of 4 MB depends on the machine. So the test checks
/// whether a client was cut before.
#[test]
fn clients_of_a_log_that_take_nothing_leave_memory_to_other_logs() {
    const EVENT: usize = 4_000_000;
    const OTHER: u64 = 2;
    let node = TestNode::with(|settings| settings.limits.body_bytes = 5_242_880);
    let name = "x".repeat(EVENT);
    let row =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{name}"}}}}]}}"#);
    let kind = r#"{"args":{"kind":"Shop"}}"#;
    assert_eq!(node.command(OTHER, "sys.CreateWorkspace", kind).0, 200);
    // No connection buffers 32 MB.
    for _ in 0..8 {
        assert_eq!(node.command(WS, "sys.CUD", &row).0, 200);
    }
    assert_eq!(node.command(OTHER, "sys.CUD", &row).0, 200);
    let mut stalled = [(); 20].map(|()| {
        let stalled = Follower::open(node.api, &wlog(""), &[]).unwrap();
        assert_eq!(stalled.status, 200, "{}", stalled.head);
        Some(stalled)
    });
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        let path = format!("{}/wlog?follow=true&from=2", workspace_path(OTHER));
        let mut other = Follower::open(node.api, &path, &[]).unwrap();
        assert_eq!(offsets(&mut other, 1), [2]);
        let cut = "httpapi_connections_closed_total{service=\"api\",reason=\"answer_not_taken\"}";
        assert_eq!(node.metric(cut), 0.0, "the other follower waited for a cut");
        let taken = node.metric("httpapi_memory_reserved_bytes{of=\"large events\"}");
        assert!(taken <= f64::from(16 << 20), "two logs have {taken}");
    }
    // They wait for each other only, and lose nothing.
    let [one, other] = [0, 19].map(|at| stalled[at].take().unwrap());
    drop(stalled);
    thread::scope(|scope| {
        for mut client in [one, other] {
            scope.spawn(move || assert_eq!(offsets(&mut client, 4), [1, 2, 3, 4]));
        }
    });
    node.stop();
}

/// A follower that read a long log steadily kept the place that all others needed for their reads,
/// until it was done.
#[test]
fn followers_that_catch_up_take_turns_and_leave_room_for_logs() {
    let node = TestNode::with(|settings| settings.logs = 1);
    // No connection buffers 60 MB.
    write_large(&node, 300);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        // 5 MB in a second.
        let mut slow = connect(node.api);
        let head = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", wlog(""));
        slow.write_all(head.as_bytes()).unwrap();
        slow.read_exact(&mut [0; 100]).unwrap();
        scope.spawn(|| {
            let (mut slow, mut piece, mut taken) = (slow, vec![0; 100_000], 0);
            while !is_done.load(Ordering::SeqCst) && taken < 60_000_000 {
                taken += slow.read(&mut piece).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            assert!(taken < 60_000_000, "the other follower had to wait until the end");
        });
        let log = format!("{}/wlog?limit=1", workspace_path(WS));
        let start = Instant::now();
        assert_eq!(request(node.api, "GET", &log, &[], "").0, 200);
        // The follower gives its place back after five seconds.
        assert!(start.elapsed() < Duration::from_secs(3), "a log has places of its own");
        let mut next = Follower::open(node.api, &wlog("&from=300"), &[]).unwrap();
        is_done.store(true, Ordering::SeqCst);
        assert_eq!(next.status, 200, "{}", next.head);
        assert_eq!(offsets(&mut next, 1), [300]);
    });
    node.stop();
}

/// A client notices a lost connection by the silence, and the node by what it sends.
#[test]
fn a_log_without_events_is_not_silent() {
    let node = TestNode::start();
    let mut lines = connect(node.api);
    let mut events = connect(node.api);
    for (client, accept) in [(&mut lines, "*/*"), (&mut events, "text/event-stream")] {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let path = wlog("&from=end");
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
    }
    let ends_with = |client: &mut TcpStream, expected: &str| {
        let mut bytes = Vec::new();
        while !bytes.ends_with(expected.as_bytes()) {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
    };
    let gone = Follower::open(node.api, &wlog("&from=end"), &[]).unwrap();
    let wait_for = |count: f64| {
        let start = Instant::now();
        while node.metric("httpapi_followers") != count {
            assert!(start.elapsed() < PATIENCE, "there are not {count} followers");
            thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for(3.0);
    drop(gone);
    ends_with(&mut lines, "\r\n\r\n1\r\n\n\r\n");
    ends_with(&mut events, "retry: 1000\nid: 1\n\n\r\n3\r\n:\n\n\r\n");
    wait_for(2.0);
    drop((lines, events));
    node.stop();
}
