//! The host of a request and the site of its page: which requests are refused.

use shop::http_client::{request, workspace_path};

use crate::support::{TestNode, WS, answer_to, code, get};

/// The node took `Host: [::1]evil.com` and `localhost:1@evil.com` for this machine. It also served
/// targets of other hosts, and requests without `Host`. So a web page could send commands through a
/// name that its own DNS resolved to this machine.
#[test]
fn a_request_names_one_host_and_that_is_this_machine() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let host = |host: &str| get(&format!("Host: {host}\r\n"));
    let at = |target: &str, host: &str| {
        let path = format!("{}/cdocs/shop.Article", workspace_path(WS));
        format!("GET {} HTTP/1.1\r\n{host}\r\n", target.replace("{path}", &path))
    };
    let own = "Host: localhost\r\n";
    for request in [
        host("localhost"),
        host("LOCALHOST:8822"),
        host("localhost."),
        host("localhost:"),
        host("127.1.2.3:1"),
        host("[::1]:8822"),
        host("[::ffff:127.0.0.1]"),
        at("http://localhost{path}", own),
        at("HTTP://LOCALHOST:1{path}", own),
        // The host of the target counts, not `Host`.
        at("http://localhost{path}", "Host: evil.example\r\n"),
        format!("GET {}/cdocs/shop.Article HTTP/1.0\r\n\r\n", workspace_path(WS)),
    ] {
        let answer = answer_to(node.api, &request);
        assert_eq!(answer.status, 200, "{request}: {answer:?}");
    }
    let bad = (400, "bad_request");
    let misdirected = (421, "misdirected");
    for (request, expected) in [
        // The first ones have lines in the log.
        (host("evil.example"), misdirected),
        (get(""), bad),
        (get("Host: localhost\r\nHost: localhost\r\n"), bad),
        (get("Host: localhost\r\nHost: evil.example\r\n"), bad),
        (host(""), bad),
        (host("localhost, localhost"), bad),
        (host("[::1]evil.com"), bad),
        (host("localhost:1@evil.com"), bad),
        (host("user@localhost"), bad),
        (host("localhost:http"), bad),
        (host("localhost:65536"), bad),
        (host("[::1%25lo]"), bad),
        (host("::1"), bad),
        (host("localhost.evil.example:8822"), misdirected),
        (host("127.0.0.1.evil.example"), misdirected),
        (host("10.0.0.1:8822"), misdirected),
        (host("0.0.0.0:8822"), misdirected),
        (at("http://evil.example{path}", own), misdirected),
        (at("https://localhost{path}", own), misdirected),
        (at("ftp://localhost{path}", own), misdirected),
        (at("http://localhost{path}", ""), bad),
        (at("http://user@localhost{path}", own), bad),
        (at("http://localhost:1@evil.com{path}", own), bad),
        (at("http://[::1]evil.com{path}", own), bad),
        (at("localhost:8822", own), bad),
        (format!("CONNECT localhost:8822 HTTP/1.1\r\n{own}\r\n"), (501, "not_implemented")),
    ] {
        for address in [node.api, node.admin] {
            let answer = answer_to(address, &request);
            assert_eq!((answer.status, &*answer.code()), expected, "{request}: {answer:?}");
        }
    }
    let log = node.log_text();
    assert!(log.contains("the request is for the host evil.example"), "{log}");
    node.stop();
}

/// The node took `Origin: http://[::1]evil.com` for a page of this machine, and ignored the header
/// that browsers use to report the site of a page.
#[test]
fn a_page_of_another_site_is_refused() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let with = |header: &str| get(&format!("Host: localhost\r\n{header}\r\n"));
    for header in [
        "Origin: http://localhost:3000",
        "Origin: http://[::1]:3000",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Site: same-origin",
        "Sec-Fetch-Site: same-site",
        "Sec-Fetch-Site: of-another-day",
    ] {
        assert_eq!(answer_to(node.api, &with(header)).status, 200, "{header}");
    }
    for header in [
        "Origin: null",
        "Origin:",
        "Origin: localhost",
        "Origin: http://[::1]evil.com",
        "Origin: http://localhost:1@evil.com",
        "Origin: http://localhost/",
        "Origin: https://evil.example",
        "Origin: http://localhost\r\nOrigin: https://evil.example",
        "Sec-Fetch-Site: cross-site",
        "Origin: http://localhost:3000\r\nSec-Fetch-Site: cross-site",
    ] {
        for address in [node.api, node.admin] {
            let answer = answer_to(address, &with(header));
            assert_eq!((answer.status, &*answer.code()), (403, "foreign"), "{header}: {answer:?}");
        }
    }
    node.stop();
}

/// A browser sends these requests for any page that its user opens.
#[test]
fn web_pages_of_other_sites_are_refused() {
    let node = TestNode::start();
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    let evil = [("origin", "https://evil.example"), ("content-type", "text/plain")];
    let refused = (403, "foreign".to_owned());
    assert_eq!(code(request(node.api, "POST", &docs, &evil, "{}")), refused);
    assert_eq!(code(request(node.admin, "POST", "/step-down", &evil, "")), refused);
    let own = [("origin", "http://localhost:3000")];
    assert_eq!(request(node.api, "POST", &docs, &own, "{}").0, 201);
    node.stop();
}
