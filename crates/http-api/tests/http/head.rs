//! HEAD.

use std::io::{Read, Write};

use shop::http_client::{request, workspace_path};

use crate::support::{TestNode, WS, connect};

/// The node refused HEAD with 405. RFC 9110, section 9.1: a server must support GET and HEAD.
#[test]
fn head_is_answered_like_get_without_the_body() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    let (status, made) = request(node.api, "POST", &docs, &[], r#"{"fields":{"name":"Tea"}}"#);
    assert_eq!(status, 201, "{made}");
    let ask = |address, method: &str, path: &str| {
        let mut stream = connect(address);
        let headers = "Host: localhost\r\nConnection: close\r\nX-Request-Id: tea";
        write!(stream, "{method} {path} HTTP/1.1\r\n{headers}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        let head = head.lines().filter(|line| !line.starts_with("date: ")).map(str::to_owned);
        (head.collect::<Vec<_>>(), body.to_owned())
    };
    for (address, path) in [
        (node.api, format!("{docs}/{}", made["newIds"]["1"])),
        (node.api, format!("{docs}/1")),
        (node.api, format!("{}/cdocs/shop.Article", workspace_path(WS))),
        (node.admin, "/livez".to_owned()),
        (node.admin, "/readyz".to_owned()),
    ] {
        let (get, body) = ask(address, "GET", &path);
        assert!(!body.is_empty());
        assert_eq!(ask(address, "HEAD", &path), (get, String::new()), "{path}");
    }
    // These answers differ from call to call, or have no length.
    for (address, path) in [
        (node.api, format!("{}/wlog", workspace_path(WS))),
        (node.admin, "/status".to_owned()),
        (node.admin, "/metrics".to_owned()),
    ] {
        let (head, body) = ask(address, "HEAD", &path);
        assert_eq!((&*head[0], &*body), ("http/1.1 200 ok", ""), "{path}");
    }
    node.stop();
}
