//! Followers of logs through a node that does not own the partition.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use shop::{
    Follower,
    http_client::{command_path, logged, request, try_request, workspace_path},
};

use crate::support::{NodeOptions, ROW, TestCluster, WS};

const PATIENCE: Duration = Duration::from_secs(30);

/// The id of the request that wrote the last event.
const LAST: &str = "last";

/// How a client follows a log.
#[derive(Clone, Copy, Debug)]
enum Form {
    Lines,
    ServerSentEvents,
}

/// A client that connects again when its answer ends.
struct Client {
    api: SocketAddr,
    form: Form,
    /// The offset and the id of each event, as they came.
    events: Vec<(u64, String)>,
    connections: usize,
}

fn wlog(query: &str) -> String {
    format!("{}/wlog?follow=true{query}", workspace_path(WS))
}

impl Client {
    /// Follows the log from its first event to the event of [`LAST`].
    fn run(api: SocketAddr, form: Form) -> Client {
        let mut client = Client { api, form, events: Vec::new(), connections: 0 };
        let mut heard = Instant::now();
        while client.events.last().is_none_or(|(_, id)| id != LAST) {
            let before = client.events.len();
            client.connect();
            if client.events.len() > before {
                heard = Instant::now();
            }
            assert!(heard.elapsed() < PATIENCE, "{form:?} got {before} events");
        }
        client
    }

    /// Takes events until the answer ends.
    fn connect(&mut self) {
        let last = self.events.last().map_or(0, |(offset, _)| *offset);
        let (next, id) = ((last + 1).to_string(), last.to_string());
        let accept = ("accept", "text/event-stream");
        let opened = match self.form {
            Form::Lines => Follower::open(self.api, &wlog(&format!("&from={next}")), &[]),
            Form::ServerSentEvents if last == 0 => Follower::open(self.api, &wlog(""), &[accept]),
            Form::ServerSentEvents => {
                Follower::open(self.api, &wlog(""), &[accept, ("last-event-id", &id)])
            }
        };
        let mut follower = opened.unwrap();
        if follower.status != 200 {
            assert_eq!(follower.status, 503, "{}", follower.head);
            return thread::sleep(Duration::from_millis(50));
        }
        self.connections += 1;
        while let Ok(Some(line)) = follower.line() {
            let json = match self.form {
                Form::Lines => Some(&*line),
                Form::ServerSentEvents => line.strip_prefix("data: "),
            };
            let Some(json) = json else { continue };
            let event: Value = serde_json::from_str(json).unwrap();
            let id = event["requestId"].as_str().unwrap().to_owned();
            self.events.push((event["wlogOffset"].as_u64().unwrap(), id));
            if self.events.last().is_some_and(|(_, id)| id == LAST) {
                return;
            }
        }
    }
}

/// The partition moves to and fro while commands are written. Each follower connects again when its
/// answer ends, and in the end has the whole log, each event once and in order.
#[test]
fn followers_get_each_event_once_while_the_partition_moves() {
    const MOVES: usize = 4;
    let options = || NodeOptions { seats: Some(2), ..NodeOptions::default() };
    let cluster = TestCluster::new();
    let first = cluster.owner(options());
    let second = cluster.beside(&first, options());
    let entry = cluster.entry(options());
    let command = |number: usize| {
        let id = if number == 0 { LAST.to_owned() } else { format!("id-{number}") };
        let headers = [("x-request-id", &*id), ("idempotency-key", &*id)];
        let (status, answer) =
            request(entry.api, "POST", &command_path(WS, "sys.CUD"), &headers, ROW);
        assert_eq!(status, 200, "{answer}");
    };
    let clients: Vec<_> = [&entry, &second, &first]
        .into_iter()
        .flat_map(|node| [Form::Lines, Form::ServerSentEvents].map(|form| (node.api, form)))
        .map(|(api, form)| thread::spawn(move || Client::run(api, form)))
        .collect();
    let mut numbers = 1..;
    for round in 0..MOVES {
        numbers.by_ref().take(50).for_each(command);
        thread::scope(|scope| {
            let moved = scope.spawn(|| [&second, &first][round % 2].take(WS));
            while !moved.is_finished() {
                numbers.by_ref().take(1).for_each(command);
            }
            moved.join().unwrap();
        });
        // The nodes see the new owner before the next order names it.
        thread::sleep(Duration::from_millis(300));
    }
    numbers.by_ref().take(50).for_each(command);
    command(0);
    let expected: Vec<_> = (1..).zip(logged(entry.api, WS)).collect();
    for client in clients {
        let client = client.join().unwrap();
        assert!(client.events == expected, "{:?} missed or repeated events", client.form);
        assert!(client.connections > MOVES, "no move ended the answer: {}", client.connections);
    }
    entry.stop();
    second.stop();
    first.stop();
}

/// Followers at another node need connections for days. They take neither the connections of other
/// requests nor the places of logs that are read once.
#[test]
fn followers_leave_connections_and_logs_to_others() {
    const MOST: usize = 256;
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let follow = || {
        let mut follower = Follower::open(entry.api, &wlog(""), &[]).unwrap();
        assert_eq!(follower.status, 200, "{}", follower.head);
        assert!(follower.line().unwrap().is_some());
        follower
    };
    let mut followers: Vec<_> = (0..MOST).map(|_| follow()).collect();
    for node in [&owner, &entry] {
        assert_eq!(node.metric("httpapi_followers"), MOST as f64);
    }
    let refused = entry.ask("GET", &wlog(""), "", "");
    assert_eq!((refused.status, refused.code().as_str()), (503, "too_many_followers"));
    assert_eq!(refused.json()["owner"], owner.api.to_string());
    assert_eq!(Follower::open(owner.api, &wlog(""), &[]).unwrap().status, 200);
    // More requests at the same time than there are connections for requests.
    let (api, path) = (entry.api, format!("{}/wlog", workspace_path(WS)));
    thread::scope(|scope| {
        let logs = (0..100).map(|_| {
            scope.spawn(|| try_request(api, "GET", &path, &[], "").map(|(status, _)| status))
        });
        let logs: Vec<_> = logs.collect();
        assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 200);
        logs.into_iter().for_each(|log| assert_eq!(log.join().unwrap().unwrap(), 200));
    });
    for follower in &mut followers {
        assert!(follower.line().unwrap().unwrap().contains(r#""wlogOffset":2"#));
    }
    // Followers that leave give their places back, at the latest when they should hear something.
    drop(followers);
    for node in [&owner, &entry] {
        node.wait_for(|node| node.metric("httpapi_followers") == 0.0);
    }
    drop(follow());
    entry.stop();
    owner.stop();
}

/// When a node stops, the connections of its followers end soon.
#[test]
fn followers_through_a_node_end_when_it_stops() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let mut follower = Follower::open(entry.api, &wlog(""), &[]).unwrap();
    assert!(follower.line().unwrap().is_some());
    let start = Instant::now();
    entry.stop();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(follower.line().unwrap(), None, "the answer ends, and is not cut");
    owner.wait_for(|node| node.metric("httpapi_followers") == 0.0);
    owner.stop();
}
