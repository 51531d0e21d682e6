//! The memory that all bodies share, and the memory that all answers share: which requests wait,
//! and which are refused.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::mpsc,
    thread::{self, sleep},
    time::{Duration, Instant},
};

use http_api::HttpApiSettings;
use shop::http_client::{answer, command_path, request, try_request, workspace_path};

use crate::support::{PATIENCE, TestNode, WS};

const MIB: usize = 1 << 20;

/// Waits until bodies take this much memory.
fn until_bodies_take(node: &TestNode, bytes: usize) {
    let start = Instant::now();
    loop {
        let metrics = node.metrics();
        let of = "httpapi_memory_reserved_bytes{of=\"bodies\"} ";
        let taken = metrics.lines().find_map(|line| line.strip_prefix(of)).unwrap();
        if taken.parse::<f64>().unwrap() >= bytes as f64 {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "only {taken} of {bytes} are taken");
        sleep(Duration::from_millis(10));
    }
}

/// Begins a command with a body, and sends a part of the body.
fn begin(node: &TestNode, body: &[u8], part: usize) -> TcpStream {
    let mut stream = TcpStream::connect(node.api).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (path, length) = (command_path(WS, "sys.CUD"), body.len());
    let head = "connection: close\r\nhost: localhost\r\ncontent-length:";
    write!(stream, "POST {path} HTTP/1.1\r\n{head} {length}\r\n\r\n").unwrap();
    stream.write_all(&body[..part]).unwrap();
    stream
}

/// Makes the body of a command, with this many bytes.
fn body(bytes: usize) -> Vec<u8> {
    let mut body = br#"{"rows":[{"id":1,"table":"shop.Article"}]}"#.to_vec();
    body.resize(bytes, b' ');
    body
}

/// All bodies together have a limit. A request that holds no memory yet waits.
#[test]
fn a_body_waits_while_others_have_all_the_memory() {
    let node = TestNode::with(|settings| {
        settings.limits.body_time = Duration::from_secs(3);
        settings.bodies_bytes = 2_097_152;
    });
    let large = body(MIB);
    let slow = [(); 2].map(|()| begin(&node, &large, MIB - 1));
    until_bodies_take(&node, 2 * (MIB - 1));
    // The next request has as much time for its body as the slow ones. It begins a second later, so
    // memory becomes free before its time is over.
    sleep(Duration::from_secs(1));
    let start = Instant::now();
    assert_eq!(answer(&mut begin(&node, &body(5_000), 5_000)).unwrap().0, 200);
    assert!(start.elapsed() > Duration::from_millis(300), "the body did not wait for memory");
    for mut slow in slow {
        assert_eq!(answer(&mut slow).unwrap().0, 408);
    }
    node.stop();
}

/// Each of many bodies held a part of the memory and waited for more, which the other bodies held.
/// None of them continued until the time of all was over.
#[test]
fn bodies_do_not_wait_for_each_other() {
    let node = TestNode::with(|settings| {
        settings.limits.body_time = Duration::from_secs(20);
        settings.bodies_bytes = 1_048_576;
    });
    let whole = body(400_000);
    let begun = [(); 8].map(|()| begin(&node, &whole, 150_000));
    until_bodies_take(&node, 900_000);
    let start = Instant::now();
    let ends = |mut stream: TcpStream| {
        // The request may be refused before all of its body is sent.
        let _ = stream.write_all(&whole[150_000..]);
        loop {
            let (status, text) = answer(&mut stream).unwrap();
            if status == 200 {
                return;
            }
            assert!(status == 503 && text.contains("memory_full"), "{status} {text}");
            sleep(Duration::from_secs(1));
            stream = begin(&node, &whole, whole.len());
        }
    };
    thread::scope(|scope| {
        begun.map(|stream| scope.spawn(|| ends(stream))).map(|end| end.join().unwrap())
    });
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    node.stop();
}

/// Each of many answers held its first 2 MiB of memory and waited for more, which the other answers
/// held. All of them were refused when their time was over.
#[test]
fn answers_do_not_wait_for_each_other() {
    let node = TestNode::with(|settings| {
        settings.limits.body_bytes = 4_194_304;
        settings.answers_bytes = 6_291_456;
        settings.logs = 1;
    });
    let name = "x".repeat(2_300_000);
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    let fields = format!(r#"{{"fields":{{"name":"{name}"}}}}"#);
    let (status, made) = request(node.api, "POST", &docs, &[], &fields);
    assert_eq!(status, 201, "{made}");
    let doc = format!("{docs}/{}", made["newIds"]["1"]);
    let list = format!("{}/cdocs/shop.Article", workspace_path(WS));
    let start = Instant::now();
    let read = |path: &str| {
        let (status, doc) = try_request(node.api, "GET", path, &[], "").unwrap();
        assert_eq!(status, 200, "{doc}");
        assert!(doc.contains(&name), "it is not whole");
    };
    thread::scope(|scope| {
        for path in [&doc, &list] {
            (0..3).for_each(|_| drop(scope.spawn(|| read(path))));
        }
    });
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    node.stop();
}

/// An answer of 4 MiB waited for memory and took all memory that became free. So answers of a few
/// bytes waited in the queue for as long as slow clients kept their memory.
#[test]
fn small_answers_do_not_wait_behind_a_large_one() {
    let node = TestNode::with(|settings| {
        settings.limits.body_bytes = 5_242_880;
        settings.answers_bytes = 8_388_608;
        settings.logs = 2;
    });
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    let new = |bytes: usize| {
        let fields = format!(r#"{{"fields":{{"name":"{}"}}}}"#, "x".repeat(bytes));
        let (status, made) = request(node.api, "POST", &docs, &[], &fields);
        assert_eq!(status, 201, "{made}");
        format!("{docs}/{}", made["newIds"]["1"])
    };
    let (small, large) = (new(10), new(4_400_000));
    // These are more bytes than the kernel takes for clients that read nothing.
    (0..3).for_each(|_| drop(new(4_400_000)));
    let slow = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(node.api).unwrap();
        let path = format!("{}/wlog", workspace_path(WS));
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    });
    let read = |path: &str| try_request(node.api, "GET", path, &[], "").unwrap().0;
    thread::scope(|scope| {
        let large = scope.spawn(|| read(&large));
        sleep(Duration::from_millis(500));
        let start = Instant::now();
        assert_eq!(read(&small), 200);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(large.join().unwrap(), 200);
    });
    drop(slow);
    node.stop();
}

/// The node reserved memory for announced bodies, and all other requests waited for these bodies.
#[test]
fn a_client_that_announces_a_body_and_sends_none_takes_no_memory() {
    let node = TestNode::start();
    let path = command_path(WS, "sys.CUD");
    let silent = |how: &str| {
        let mut stream = TcpStream::connect(node.api).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{how}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let all = ["transfer-encoding: chunked", "content-length: 1048576"].map(|how| {
        let clients: Vec<_> = (0..300).map(|_| silent(how)).collect();
        clients
    });
    sleep(Duration::from_millis(300));
    let start = Instant::now();
    let body = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    assert_eq!(node.command(WS, "sys.CUD", body).0, 200);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    drop(all);
    node.stop();
}

/// A node whose log of the workspace has more bytes than the kernel keeps for a connection.
fn with_long_log(change: impl FnOnce(&mut HttpApiSettings)) -> TestNode {
    let node = TestNode::with(change);
    let text = "x".repeat(900_000);
    let body =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    for _ in 0..20 {
        assert_eq!(node.command(WS, "sys.CUD", &body).0, 200);
    }
    node
}

/// Asks for the log of the workspace, and receives nothing.
fn ask_for_log(node: &TestNode) -> TcpStream {
    let mut silent = TcpStream::connect(node.api).unwrap();
    let head = "host: localhost\r\nconnection: close";
    write!(silent, "GET {}/wlog HTTP/1.1\r\n{head}\r\n\r\n", workspace_path(WS)).unwrap();
    silent
}

const NOT_TAKEN: &str =
    "httpapi_connections_closed_total{service=\"api\",reason=\"answer_not_taken\"}";

/// The kernel ended the connection of a client that received nothing, and the node neither logged
/// nor counted that. The operator saw no reason for answers that were cut. The client could not
/// tell the cut from the end of the node.
#[test]
fn a_client_that_takes_nothing_is_counted_and_its_connection_is_reset() {
    let node = with_long_log(|settings| settings.limits.answer_time = Duration::from_secs(2));
    let mut silent = ask_for_log(&node);
    let start = Instant::now();
    while !node.metrics().contains(&format!("{NOT_TAKEN} 1\n")) {
        assert!(start.elapsed() < PATIENCE, "{}", node.metrics());
        sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() < Duration::from_secs(20));
    let cut = silent.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::ConnectionReset);
    node.stop();
}

/// A client was cut if it received nothing for the time limit of a head. On the admin endpoint, 5 s
/// without a write to its disk ended `vvm backup`.
#[test]
fn a_client_may_take_nothing_for_longer_than_it_may_be_idle() {
    let node = with_long_log(|settings| settings.limits.head_time = Duration::from_millis(500));
    let mut silent = ask_for_log(&node);
    sleep(Duration::from_secs(3));
    let mut whole = Vec::new();
    silent.read_to_end(&mut whole).unwrap();
    assert!(whole.len() > 20 * 900_000 && whole.ends_with(b"0\r\n\r\n"), "{}", whole.len());
    assert!(node.metrics().contains(&format!("{NOT_TAKEN} 0\n")), "{}", node.metrics());
    node.stop();
}

/// A client that received its answer byte by byte kept its place for as long as it liked. Each byte
/// restarted the time limit of a connection that receives nothing.
#[test]
fn a_reader_that_takes_its_answer_byte_by_byte_keeps_its_place_only_for_a_time() {
    let node = TestNode::with(|settings| {
        settings.logs = 2;
        settings.limits.answer_time = Duration::from_secs(4);
        settings.command_time = Duration::from_secs(1);
    });
    let text = "x".repeat(900_000);
    for _ in 0..30 {
        let body = format!(
            r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#
        );
        assert_eq!(node.command(WS, "sys.CUD", &body).0, 200);
    }
    let path = format!("{}/wlog", workspace_path(WS));
    let start = Instant::now();
    let (has_place, have_places) = mpsc::channel();
    let slow = [(); 2].map(|()| {
        let (api, path, has_place) = (node.api, path.clone(), has_place.clone());
        thread::spawn(move || {
            let mut stream = TcpStream::connect(api).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            let (mut byte, mut taken) = ([0], 0);
            stream.read_exact(&mut byte).unwrap();
            has_place.send(()).unwrap();
            while stream.read(&mut byte).is_ok_and(|read| read > 0) {
                // After 10 s another client has this place. This client then reads the rest that
                // the kernel holds.
                if start.elapsed() < Duration::from_secs(10) {
                    sleep(Duration::from_millis(20));
                }
                taken += 1;
            }
            taken
        })
    });
    (0..2).for_each(|_| have_places.recv().unwrap());
    let ask = || try_request(node.api, "GET", &format!("{path}?limit=1"), &[], "").unwrap();
    let (status, text) = ask();
    assert!(status == 503 && text.contains("too_many_logs"), "{status} {text}");
    while ask().0 != 200 {
        assert!(start.elapsed() < Duration::from_secs(8), "they keep their places");
    }
    assert!(start.elapsed() > Duration::from_secs(4), "they had less time than they may have");
    assert_eq!(node.logged(WS).len(), 31, "others get all of it");
    for slow in slow {
        assert!(slow.join().unwrap() < 30 * 900_000, "it got all of it");
    }
    node.stop();
}
