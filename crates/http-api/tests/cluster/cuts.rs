//! Connections between nodes that break at any byte. The proxy between the nodes cuts them.

use shop::http_client::{command_path, logged, request, workspace_path};

use crate::support::{ClusterNode, Cut, Oracle, Proxy, ROW, TestCluster, WS, Way};

/// An owner and an entry with a proxy between them, and the proxy.
fn with_proxy() -> (Proxy, ClusterNode, ClusterNode) {
    let proxy = Proxy::start();
    let (owner, entry) = TestCluster::owner_and_entry(Some(proxy.address));
    proxy.leads_to(owner.cluster);
    (proxy, owner, entry)
}

/// Sends a request with a cut at each place of the request and of its answer, and returns the
/// number of cuts. `send` gets a number for each request.
fn cut_everywhere(proxy: &Proxy, step: usize, mut send: impl FnMut(&str, Cut)) -> usize {
    let mut cuts = 0;
    for way in [Way::Request, Way::Answer] {
        for after in (0..).step_by(step) {
            let cut = Cut { way, after };
            proxy.cut(cut);
            send(&format!("{way:?}-{after}"), cut);
            if !proxy.was_cut() {
                break;
            }
            cuts += 1;
        }
    }
    cuts
}

/// Sends a command, and returns the status of the answer.
fn command(entry: &ClusterNode, id: &str, key: Option<&str>) -> u16 {
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let headers = format!("x-request-id: {id}\r\n{key}");
    entry.ask("POST", &command_path(WS, "sys.CUD"), &headers, ROW).status
}

#[test]
fn a_command_without_a_key_is_done_at_most_once() {
    let (proxy, owner, entry) = with_proxy();
    let mut oracle = Oracle::default();
    let cuts = cut_everywhere(&proxy, 1, |id, _| {
        oracle.note(id.to_owned(), command(&entry, id, None));
        // The next command uses a connection that the proxy cuts, and not a new one.
        let other = format!("{id}-other");
        oracle.note(other.clone(), command(&entry, &other, None));
    });
    assert!(cuts > 500, "{cuts}");
    oracle.check(&logged(owner.api, WS));
    assert_eq!(oracle.count(504), cuts, "each cut shows");
    assert!(oracle.count(200) > cuts, "{}", oracle.count(200));
    let broken = entry.metric("httpapi_forwarded_total{outcome=\"broken\"}");
    assert_eq!(broken as usize, cuts);
    entry.stop();
    owner.stop();
}

#[test]
fn a_command_with_a_key_is_done_once_wherever_the_connection_breaks() {
    let (proxy, owner, entry) = with_proxy();
    let mut oracle = Oracle::default();
    let cuts = cut_everywhere(&proxy, 3, |id, _| {
        oracle.note(id.to_owned(), command(&entry, id, Some(id)));
    });
    assert!(cuts > 160, "{cuts}");
    assert_eq!(oracle.count(200), cuts + 2, "all succeed");
    oracle.check(&logged(owner.api, WS));
    assert_eq!(entry.metric("httpapi_retries_total") as usize, cuts);
    entry.stop();
    owner.stop();
}

#[test]
fn a_read_succeeds_wherever_the_connection_breaks() {
    let (proxy, owner, entry) = with_proxy();
    let path = format!("{}/docs/shop.Article", workspace_path(WS));
    let (_, made) = request(owner.api, "POST", &path, &[], r#"{"fields":{}}"#);
    let path = format!("{path}/{}", made["newIds"]["1"]);
    let (_, whole) = request(owner.api, "GET", &path, &[], "");
    let cuts = cut_everywhere(&proxy, 3, |id, _| {
        let read = entry.ask("GET", &path, "", "");
        assert_eq!((read.status, &read.json()), (200, &whole), "{id}");
    });
    assert!(cuts > 150, "{cuts}");
    entry.stop();
    owner.stop();
}

/// Numbers that are drawn are gone, so a draw is not sent twice.
#[test]
fn numbers_are_drawn_at_most_once() {
    let (proxy, owner, entry) = with_proxy();
    let path = format!("{}/numbers/order/next", workspace_path(WS));
    let mut counters = Vec::new();
    let cuts = cut_everywhere(&proxy, 25, |id, _| {
        let drawn = entry.ask("POST", &path, "", "");
        match drawn.status {
            200 => counters.push(drawn.json()["counters"][0].as_u64().unwrap()),
            status => assert_eq!(status, 504, "{id}"),
        }
    });
    counters.sort_unstable();
    let last = *counters.last().unwrap() as usize;
    assert!(last <= counters.len() + cuts, "{counters:?}");
    counters.dedup();
    assert_eq!(counters.len(), 2, "each whole answer has a number of its own");
    entry.stop();
    owner.stop();
}

/// Something other than a node listened at the address of the owner. The entry received its endless
/// answer, and kept all of it in memory.
#[test]
fn an_answer_without_a_length_or_with_a_huge_one_is_not_received() {
    let (proxy, owner, entry) = with_proxy();
    let path = format!("{}/docs/shop.Article/70000", workspace_path(WS));
    let answers = [
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "no length"),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "no length"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\nhello", "9999999999 bytes"),
    ];
    for (answer, why) in answers {
        proxy.answers(Some(answer));
        let command = entry.ask("POST", &command_path(WS, "sys.CUD"), "", ROW);
        assert_eq!(command.status, 504, "{command:?}");
        assert!(command.body.contains(why), "{command:?}");
        proxy.answers(None);
        assert_eq!(entry.ask("GET", &path, "", "").status, 404);
    }
    entry.stop();
    owner.stop();
}

/// The answer of the first try had taken over the memory of the body, and the node sent the body
/// again without memory. So bodies that were sent again had no limit.
#[test]
fn a_body_that_is_sent_again_is_counted_as_long_as_it_is_there() {
    const UNKNOWN: &str = "HTTP/1.1 504 Gateway Timeout\r\nx-vvm-problem: unknown\r\n\
                           content-length: 0\r\n\r\n";
    const BODIES: &str = "httpapi_memory_reserved_bytes{of=\"bodies\"}";
    const BYTES: usize = 900_000;
    let (proxy, owner, entry) = with_proxy();
    let text = "x".repeat(BYTES);
    let body =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    proxy.answers(Some(UNKNOWN));
    std::thread::scope(|scope| {
        let path = command_path(WS, "sys.CUD");
        let headers = "x-request-id: large\r\nidempotency-key: large\r\n";
        let (asked, body) = (&entry, &body);
        let client = scope.spawn(move || asked.ask("POST", &path, headers, body));
        entry.wait_for(|entry| entry.metric("httpapi_retries_total") >= 2.0);
        // From now on one try lasts until its answer may pass.
        proxy.hold(true);
        entry.wait_for(|entry| entry.metric(BODIES) >= BYTES as f64);
        proxy.answers(None);
        proxy.hold(false);
        let done = client.join().unwrap();
        assert_eq!((done.status, done.json()["repeated"].as_bool()), (200, Some(true)), "{done:?}");
    });
    entry.wait_for(|entry| entry.metric(BODIES) == 0.0);
    assert_eq!(logged(owner.api, WS).iter().filter(|id| *id == "large").count(), 1);
    entry.stop();
    owner.stop();
}

/// The client sees that a log is not whole.
#[test]
fn a_log_that_breaks_is_cut_for_the_client() {
    let (proxy, owner, entry) = with_proxy();
    let text = "x".repeat(1_000);
    let body =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    for _ in 0..200 {
        assert_eq!(owner.command(WS, "sys.CUD", &body).0, 200);
    }
    let path = format!("{}/wlog?limit=1000", workspace_path(WS));
    let whole = shop::http_client::try_request(entry.api, "GET", &path, &[], "").unwrap();
    assert_eq!((whole.0, whole.1.lines().count()), (200, 201));
    for after in [1_000, 70_000, 200_000] {
        proxy.cut(Cut { way: Way::Answer, after });
        let cut = shop::http_client::try_request(entry.api, "GET", &path, &[], "");
        assert!(proxy.was_cut(), "{after}");
        assert!(cut.is_err(), "{after}: the client takes a part for the whole");
    }
    entry.stop();
    owner.stop();
}

/// A pooled connection that the owner ended is not a failure: the request was not sent.
#[test]
fn connections_are_used_again_and_end_when_nobody_uses_them() {
    let (proxy, owner, entry) = with_proxy();
    for _ in 0..20 {
        assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 200);
    }
    assert_eq!(proxy.accepted(), 1, "one connection has all requests");
    // A command without a key takes no connection that rested for a second.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 200);
    assert_eq!(proxy.accepted(), 2);
    assert_eq!(command(&entry, "keyed", Some("key")), 200);
    assert_eq!(proxy.accepted(), 2);
    let peer = format!("httpapi_peer_connections{{peer=\"{}\"}}", proxy.address);
    assert_eq!(entry.metric(&peer), 2.0);
    entry.wait_for(|node| node.metric(&peer) == 0.0);
    owner.wait_for(|node| node.metric("httpapi_connections{service=\"cluster\"}") == 0.0);
    entry.stop();
    owner.stop();
}
