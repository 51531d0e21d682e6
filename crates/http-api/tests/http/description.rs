//! The description of the API, and the page to try it.

use std::io::Write;

use crate::support::{Answer, TestNode, WS, answer_to, connect};

const PATH: &str = "/api/v2/openapi.json";

/// Sends a request without a body.
fn ask(node: &TestNode, method: &str, target: &str, headers: &str) -> Answer {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    match method {
        "HEAD" => {
            let mut stream = connect(node.api);
            stream.write_all(request.as_bytes()).unwrap();
            Answer::read_head(&mut stream).unwrap()
        }
        _ => answer_to(node.api, &request),
    }
}

/// The number of descriptions and pages that the node answered with a status.
fn count(node: &TestNode, kind: &str, status: u16) -> f64 {
    let name = "httpapi_request_seconds_count";
    node.metric(&format!("{name}{{kind=\"{kind}\",status=\"{status}\"}}"))
}

#[test]
fn a_client_that_has_the_description_gets_it_only_once() {
    let node = TestNode::start();
    let whole = ask(&node, "GET", PATH, "");
    assert_eq!(whole.status, 200, "{whole:?}");
    assert_eq!(whole.header("content-type"), Some("application/json"));
    assert_eq!(whole.header("cache-control"), Some("private, no-cache"));
    let described = whole.json();
    assert_eq!(described["openapi"], "3.1.0");
    let tag = whole.header("etag").unwrap().to_owned();
    let again = ask(&node, "HEAD", PATH, "");
    assert_eq!((again.status, again.header("etag")), (200, Some(&*tag)));
    assert_eq!(again.header("content-length"), whole.header("content-length"));
    let known = ask(&node, "HEAD", PATH, &format!("If-None-Match: \"x\", {tag}\r\n"));
    assert_eq!((known.status, known.header("etag")), (304, Some(&*tag)));
    let other = ask(&node, "GET", PATH, "If-None-Match: \"x\"\r\n");
    assert_eq!(other.status, 200);
    assert_eq!(count(&node, "description", 200), 3.0, "{}", node.metrics());
    assert_eq!(count(&node, "description", 304), 1.0, "{}", node.metrics());
    node.stop();
}

#[test]
fn a_client_may_ask_for_one_application() {
    let node = TestNode::start();
    let one = ask(&node, "GET", &format!("{PATH}?app=demo/shop"), "");
    assert_eq!(one.status, 200, "{one:?}");
    let all = ask(&node, "GET", PATH, "");
    assert_eq!(one.body, all.body, "the node has only one application");
    let coded = ask(&node, "GET", &format!("{PATH}?app=demo%2Fshop"), "");
    assert_eq!(coded.body, one.body);
    for (query, status, code) in [
        ("app=demo/none", 404, "not_deployed"),
        ("app=", 404, "not_deployed"),
        ("apps=demo/shop", 400, "bad_request"),
        ("app=demo/shop&app=demo/shop", 400, "bad_request"),
    ] {
        let answer = ask(&node, "GET", &format!("{PATH}?{query}"), "");
        assert_eq!((answer.status, &*answer.code()), (status, code), "{query}");
    }
    node.stop();
}

#[test]
fn the_description_and_the_page_are_only_read() {
    let node = TestNode::start();
    for path in [PATH, "/api/v2/"] {
        let refused = ask(&node, "POST", path, "Content-Length: 0\r\n");
        assert_eq!((refused.status, &*refused.code()), (405, "method_not_allowed"), "{path}");
        assert_eq!(refused.header("allow"), Some("get, head"), "{path}");
    }
    for path in ["/api/v2", "/api/v2/openapi.json/", "/api/v2/other"] {
        assert_eq!(ask(&node, "GET", path, "").status, 404, "{path}");
    }
    let page = ask(&node, "GET", "/api/v2/?x=1", "");
    assert_eq!((page.status, &*page.code()), (400, "bad_request"));
    node.stop();
}

/// Clients of the platform's API and load balancers ask for this path.
#[test]
fn the_check_says_only_that_the_port_answers() {
    const CHECK: &str = "/api/check";
    let node = TestNode::start();
    for method in ["GET", "POST"] {
        let answer = ask(&node, method, CHECK, "Content-Length: 0\r\n");
        assert_eq!((answer.status, &*answer.body), (200, "ok"), "{method}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("text/plain"), "{method}");
    }
    assert_eq!(ask(&node, "HEAD", CHECK, "").status, 200);
    assert_eq!(count(&node, "check", 200), 3.0, "{}", node.metrics());
    let refused = ask(&node, "DELETE", CHECK, "");
    assert_eq!((refused.status, &*refused.code()), (405, "method_not_allowed"));
    assert_eq!(refused.header("allow"), Some("get, head, post"));
    let query = ask(&node, "GET", "/api/check?x=1", "");
    assert_eq!((query.status, &*query.code()), (400, "bad_request"));
    assert_eq!(ask(&node, "GET", "/api/check/", "").status, 404);
    node.stop();
}

/// A page of another site must not learn the tables of the node.
#[test]
fn a_page_of_another_site_gets_no_description() {
    let node = TestNode::start();
    for path in [PATH, "/api/v2/"] {
        let foreign = ask(&node, "GET", path, "Origin: https://evil.example\r\n");
        assert_eq!((foreign.status, &*foreign.code()), (403, "foreign"), "{path}");
        let own = ask(&node, "GET", path, "Sec-Fetch-Site: same-origin\r\n");
        assert_eq!(own.status, 200, "{path}");
    }
    node.stop();
}

/// The router refuses a path or a method that it does not have before it looks at parameters.
#[test]
fn each_path_of_the_description_is_one_of_the_router() {
    let node = TestNode::start();
    let described = ask(&node, "GET", PATH, "").json();
    let mut count = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let path =
            path.replace("{workspace}", "1").replace("{partition}", "1").replace("{id}", "7");
        for method in methods.as_object().unwrap().keys() {
            let (method, target) = (method.to_ascii_uppercase(), format!("{path}?none=1"));
            let answer = ask(&node, &method, &target, "Content-Length: 0\r\n");
            assert_eq!((answer.status, &*answer.code()), (400, "bad_request"), "{method} {path}");
            assert!(answer.body.contains("`none` is unknown"), "{method} {path}: {}", answer.body);
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
    node.stop();
}

/// The example of a list named fields that the table did not have, and the example of a period was
/// not one of the series.
#[test]
fn each_example_of_a_parameter_is_accepted() {
    let node = TestNode::start();
    let described = ask(&node, "GET", PATH, "").json();
    let mut count = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let path = path.replace("{workspace}", &WS.to_string());
        for parameter in methods["get"]["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap_or_default();
            for example in parameter["schema"]["examples"].as_array().into_iter().flatten() {
                let example = example.as_str().unwrap().replace('{', "%7B").replace('}', "%7D");
                let target = format!("{path}?{name}={}", example.replace('"', "%22"));
                let is_app = name == "app";
                let answer = ask(&node, "GET", &target, "");
                assert_eq!(answer.status, if is_app { 404 } else { 200 }, "{target} {answer:?}");
                count += 1;
            }
        }
    }
    assert!(count >= 7, "{count}");
    node.stop();
}
