//! Clients that are slow or broken, and the limit of connections.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use shop::http_client::{answer, command_path, try_request, workspace_path};

use crate::support::{TestNode, WS};

#[test]
fn slow_clients_are_disconnected_and_do_not_delay_others() {
    let node = TestNode::with(|settings| {
        settings.limits.head_time = Duration::from_millis(500);
        settings.limits.body_time = Duration::from_millis(500);
    });
    let start = Instant::now();
    let mut head = TcpStream::connect(node.api).unwrap();
    head.write_all(b"POST / HTTP/1.1\r\nhost:").unwrap();
    let mut body = TcpStream::connect(node.api).unwrap();
    let path = command_path(WS, "sys.CUD");
    let text = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{{");
    body.write_all(text.as_bytes()).unwrap();
    // Meanwhile other clients get their answers.
    assert_eq!(node.logged(WS).len(), 1);
    let (status, text) = answer(&mut body).unwrap();
    assert_eq!(status, 408, "{text}");
    let mut rest = Vec::new();
    // The node closes the connection, with or without an answer.
    let _ = head.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    node.stop();
}

/// A client asks for a log, and does not receive the answer.
#[test]
fn a_client_that_does_not_receive_its_answer_is_disconnected() {
    let node = TestNode::with(|settings| settings.limits.answer_time = Duration::from_millis(500));
    large_log(&node);
    let mut reads_nothing = TcpStream::connect(node.api).unwrap();
    let head = format!("GET {}/wlog HTTP/1.1\r\nhost: localhost\r\n\r\n", workspace_path(WS));
    reads_nothing.write_all(head.as_bytes()).unwrap();
    until_connections(&node, 1);
    until_connections(&node, 0);
    node.stop();
}

#[test]
fn broken_clients_do_not_harm_others() {
    let node = TestNode::start();
    for text in [
        "\r\n\r\n",
        "GET\r\n\r\n",
        "\0\u{1}\u{2}\u{ff}",
        "POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(node.api).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        drop(stream);
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(1 << 20));
    let mut stream = TcpStream::connect(node.api).unwrap();
    // The node may hang up before the whole request is sent.
    let _ = stream.write_all(long.as_bytes());
    assert_eq!(node.logged(WS).len(), 1);
    node.stop();
}

/// At the limit each new connection waited until another one ended: clients that sent no requests
/// kept out all others.
///
/// A later version asked an idle connection to give way to the waiting one, but a busy one ended
/// first. The node kept the demand, and closed the next connection that became idle, although there
/// was room.
#[test]
fn above_the_limit_an_idle_connection_gives_way_and_a_busy_one_does_not() {
    let node = TestNode::with(|settings| settings.limits.connections = 2);
    let path = command_path(WS, "sys.CUD");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\
         expect: 100-continue\r\n\r\n"
    );
    let busy = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(node.api).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // The node asks for the body, so it is at work on this request.
        let mut asks = [0; 25];
        stream.read_exact(&mut asks).unwrap();
        assert_eq!(&asks, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    });
    let api = node.api;
    let path = format!("{}/wlog?limit=1", workspace_path(WS));
    let asked = path.clone();
    let ask = move || try_request(api, "GET", &asked, &[], "").unwrap().0;
    let waits = std::thread::spawn(ask.clone());
    sleep(Duration::from_millis(200));
    assert!(!waits.is_finished(), "a third connection was served beside two that are busy");
    drop(busy);
    assert_eq!(waits.join().unwrap(), 200);
    // Until the node has seen that they ended, the next two would be too many.
    until_connections(&node, 0);

    // A connection is idle from its last answer on. So these two become idle one after the other.
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut idle = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(node.api).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // An answer may arrive in several pieces.
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n0\r\n\r\n") {
            let mut piece = [0; 4_096];
            let received = stream.read(&mut piece).unwrap();
            assert_ne!(received, 0, "the answer was cut");
            answer.extend_from_slice(&piece[..received]);
        }
        sleep(Duration::from_millis(100));
        stream
    });
    // The waiting connection got the place of a busy one, so no idle connection has to give way.
    for stream in &mut idle {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(stream.read(&mut [0]).is_err(), "an idle connection was closed without need");
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    let start = Instant::now();
    assert_eq!(ask(), 200);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // The connection that was idle longest gave way.
    assert_eq!(idle[0].read(&mut [0]).unwrap(), 0, "it was sent something");
    idle[1].set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(idle[1].read(&mut [0]).is_err(), "the second gave way, too");
    node.stop();
}

/// Clients that sent requests and received no answers kept all places for a minute, and nobody else
/// got in. A client that the port let in has ten seconds, so that it can pause.
#[test]
fn above_the_limit_an_answer_that_nobody_takes_gives_way() {
    let node = TestNode::with(|settings| settings.limits.connections = 3);
    large_log(&node);
    let mut let_in = TcpStream::connect(node.api).unwrap();
    let log = format!("{}/wlog", workspace_path(WS));
    let_in.write_all(get(&log).as_bytes()).unwrap();
    // Its answer waits first, so without patience it would give way first.
    sleep(Duration::from_secs(1));
    // The page needs no token, so its clients are not let in.
    let unread = [(); 2].map(|()| {
        let stream = TcpStream::connect(node.api).unwrap();
        let mut writing = stream.try_clone().unwrap();
        // The kernel does not take all of these requests, so this ends with the connection.
        std::thread::spawn(move || writing.write_all(get("/api/v2/").repeat(50_000).as_bytes()));
        stream
    });
    sleep(Duration::from_secs(1));
    for _ in 0..5 {
        let start = Instant::now();
        let log = format!("{log}?limit=1");
        assert_eq!(try_request(node.api, "GET", &log, &[], "").unwrap().0, 200);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let mut piece = vec![0; 64 << 10];
        let received = let_in.read(&mut piece).unwrap();
        assert_ne!(received, 0, "the answer of a client that was let in was cut");
        answer.extend_from_slice(&piece[..received]);
    }
    drop(unread);
    node.stop();
}

/// Clients that sent requests one after the other, and took all answers, kept all places for as
/// long as they liked: between two requests, the node was always at work for them.
#[test]
fn above_the_limit_a_client_without_a_token_gives_way_between_its_requests() {
    let node = TestNode::with(|settings| settings.limits.connections = 3);
    let (stop, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients = [(); 3].map(|()| {
        let (api, stop, cut) = (node.api, Arc::clone(&stop), Arc::clone(&cut));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let mut stream = TcpStream::connect(api).unwrap();
                let mut writing = stream.try_clone().unwrap();
                let sends = std::thread::spawn(move || {
                    let many = "HEAD /api/v2/ HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(1_000);
                    while writing.write_all(many.as_bytes()).is_ok() {}
                });
                let mut scrap = vec![0; 64 << 10];
                while !stop.load(Ordering::Relaxed) && stream.read(&mut scrap).is_ok_and(|n| n > 0)
                {
                }
                drop(stream.shutdown(Shutdown::Both));
                sends.join().unwrap();
                cut.fetch_add(1, Ordering::Relaxed);
                // The next probe comes first.
                sleep(Duration::from_millis(20));
            }
        })
    });
    sleep(Duration::from_millis(500));
    for _ in 0..20 {
        let start = Instant::now();
        let log = format!("{}/wlog?limit=1", workspace_path(WS));
        // A connection that has sent nothing yet is idle, and may give way to a client that comes
        // again.
        let (status, _) = std::iter::repeat_with(|| try_request(node.api, "GET", &log, &[], ""))
            .find_map(Result::ok)
            .unwrap();
        assert_eq!(status, 200);
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
    assert!(cut.load(Ordering::Relaxed) > 0);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    node.stop();
}

/// The kernel took the answers to thousands of requests that were sent one after the other,
/// megabytes for each connection, although the client took none.
#[test]
fn a_request_waits_until_the_answers_in_front_of_it_are_taken() {
    const REQUESTS: usize = 40_000;
    let node = TestNode::start();
    let mut stream = TcpStream::connect(node.api).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || {
        let head = "HEAD /api/v2/ HTTP/1.1\r\nhost: localhost\r\n\r\n";
        writing.write_all(head.repeat(REQUESTS).as_bytes()).unwrap();
    });
    let answered = || {
        let of = r#"httpapi_request_seconds_count{kind="page",status="200"} "#;
        let count = |line: &str| line.strip_prefix(of)?.parse::<usize>().ok();
        node.metrics().lines().find_map(count).unwrap_or_default()
    };
    let (mut before, mut now) = (0, answered());
    while now == 0 || now != before {
        sleep(Duration::from_millis(500));
        (before, now) = (now, answered());
    }
    // The kernels of both ends have room for some answers.
    assert!(now < 4_000, "{now} were answered");
    let (mut ends, mut text) = (0, Vec::new());
    while ends < REQUESTS {
        let mut piece = vec![0; 64 << 10];
        let received = stream.read(&mut piece).unwrap();
        assert_ne!(received, 0, "it was cut after {ends} answers");
        text.extend_from_slice(&piece[..received]);
        ends += text.windows(4).filter(|end| *end == b"\r\n\r\n").count();
        text = text.split_off(text.len() - 3);
    }
    sent.join().unwrap();
    node.stop();
}

/// The node waits a second for a body that it does not need. Such a connection kept its place.
#[test]
fn above_the_limit_a_body_that_does_not_come_gives_way() {
    let node = TestNode::with(|settings| settings.limits.connections = 10);
    let path = format!("{}/wlog?limit=1", workspace_path(WS));
    let times = [(); 5].map(|()| {
        let sends_none = [(); 10].map(|()| {
            let mut stream = TcpStream::connect(node.api).unwrap();
            let head = "POST /api/v2/ HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream
        });
        sleep(Duration::from_millis(100));
        let start = Instant::now();
        assert_eq!(try_request(node.api, "GET", &path, &[], "").unwrap().0, 200);
        drop(sends_none);
        start.elapsed()
    });
    // A busy machine may delay some of them.
    assert!(times.iter().min() < Some(&Duration::from_millis(500)), "{times:?}");
    node.stop();
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

/// Writes events of 18 MB.
fn large_log(node: &TestNode) {
    let text = "x".repeat(900_000);
    for _ in 0..20 {
        let body = format!(
            r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#
        );
        assert_eq!(node.command(WS, "sys.CUD", &body).0, 200);
    }
}

/// Waits until the node counts this many connections of its clients.
fn until_connections(node: &TestNode, count: usize) {
    let line = format!("httpapi_connections{{service=\"api\"}} {count}");
    let start = Instant::now();
    while !node.metrics().lines().any(|other| other == line) {
        assert!(start.elapsed() < Duration::from_secs(20), "no {line}");
        sleep(Duration::from_millis(20));
    }
}
