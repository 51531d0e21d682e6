//! The memory for answers, and requests for document numbers.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::support::{TestNode, WS, code};

/// A node whose memory for small answers is that of one read.
fn node_with_one_answer() -> TestNode {
    TestNode::with(|settings| {
        settings.limits.body_bytes = 5 << 20;
        // A quarter of the memory is for large answers.
        settings.answers_bytes = http_server::READ_BYTES * 4 / 3;
        settings.command_time = Duration::from_secs(3);
        settings.logs = 1;
    })
}

/// Asks for the log, and reads nothing. The log takes the memory of a read until its end.
fn take_memory(node: &TestNode) -> TcpStream {
    let name = "x".repeat(4_400_000);
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    // These are more bytes than the kernel takes for clients that read nothing.
    for _ in 0..4 {
        let fields = json!({ "fields": { "name": name } }).to_string();
        assert_eq!(request(node.api, "POST", &docs, &[], &fields).0, 201);
    }
    let mut stream = TcpStream::connect(node.api).unwrap();
    let path = format!("{}/wlog", workspace_path(WS));
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

fn ask(node: &TestNode, method: &str, rest: &str, body: &str) -> (u16, Value) {
    let path = format!("{}/numbers/order{rest}", workspace_path(WS));
    request(node.api, method, &path, &[], body)
}

/// Lists of gaps and blocks of numbers took no share of the memory for answers. So many large ones
/// at the same time took more memory than the node may take.
#[test]
fn a_list_of_gaps_and_a_draw_wait_for_memory() {
    let node = node_with_one_answer();
    let slow = take_memory(&node);
    let full = (503, "memory_full".to_owned());
    assert_eq!(code(ask(&node, "GET", "/gaps", "")), full);
    for body in ["", r#"{"count":1000}"#] {
        assert_eq!(code(ask(&node, "POST", "/next", body)), full, "{body}");
    }
    drop(slow);
    let (status, drawn) = ask(&node, "POST", "/next", r#"{"count":1000}"#);
    assert_eq!((status, &drawn["counters"][0]), (200, &json!(0)), "a refused draw drew numbers");
    assert_eq!(ask(&node, "GET", "/gaps", "").0, 200);
    node.stop();
}

/// A block that needs more than the memory of a read takes it from the memory for large answers.
#[test]
fn a_large_block_does_not_wait_for_small_answers() {
    let node = node_with_one_answer();
    let slow = take_memory(&node);
    let path = format!("{}/numbers/ticket/next", workspace_path(WS));
    let (status, drawn) = request(node.api, "POST", &path, &[], r#"{"count":5000}"#);
    assert_eq!((status, &drawn["counters"][4_999]), (200, &json!(4_999)));
    drop(slow);
    node.stop();
}
