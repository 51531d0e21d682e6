//! The set of keys changes while clients work.

use super::*;

/// The issuer signs with a new key at once, before the node has seen the new file. More clients use
/// the key than may wait for the node. After that the issuer withdraws the former key. Meanwhile a
/// damaged file changes nothing.
///
/// Clients with the new key got 401 if they found no place to wait.
#[test]
fn keys_are_exchanged_under_load_and_no_request_is_lost() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let (api, stop) = (node.api, Arc::new(AtomicBool::new(false)));
    let new = SigningKey::generate().unwrap();
    let sign = |key: &SigningKey| {
        let grants = ALL.parse().unwrap();
        let (issued, expires) = (now() - 1, now() + 600);
        let (issuer, audience, subject) = (ISSUER.into(), "vvm".into(), "a".into());
        key.sign(&NewToken { issuer, audience, subject, issued, expires, grants }).unwrap()
    };
    let former = sign(&issuer.key);
    let load = |token: String, stop: Arc<AtomicBool>| {
        thread::spawn(move || {
            let bearer = format!("Bearer {token}");
            let mut sent = 0;
            while !stop.load(Ordering::SeqCst) {
                let headers = [("authorization", bearer.as_str())];
                let path = command_path(WS, "sys.CUD");
                let (status, answer) = request(api, "POST", &path, &headers, ROW);
                assert_eq!(status, 200, "{answer}");
                sent += 1;
            }
            sent
        })
    };
    let with_former = load(former.clone(), Arc::clone(&stop));
    // The node has just looked at the file, and does so again after a second.
    let numbers = workspace_path(WS) + "/numbers";
    let unknown = sign(&SigningKey::generate().unwrap());
    assert_eq!(ask(&node, "GET", &numbers, Some(&unknown), "").0, 401);
    issuer.publish(&[&issuer.key, &new]);
    let token = sign(&new);
    assert!(asked_again(&node, &token, 48) >= 48 - 32);
    let with_new = load(token, Arc::clone(&stop));
    sleep(Duration::from_millis(1_500));
    assert_eq!(node.metric("httpapi_key_file_refused"), 0.0);
    std::fs::write(issuer.file(), "{").unwrap();
    let start = Instant::now();
    while node.metric("httpapi_key_file_refused") == 0.0 {
        assert!(start.elapsed() < PATIENCE, "the file is not refused");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(2_500));
    stop.store(true, Ordering::SeqCst);
    assert!(with_former.join().unwrap() > 10 && with_new.join().unwrap() > 10);
    // The file was looked at again meanwhile.
    assert_eq!(node.log_text().matches("new keys of tokens refused").count(), 1);
    issuer.publish(&[&new]);
    for _ in 0..400 {
        if ask(&node, "GET", &numbers, Some(&former), "").0 == 401 {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    assert_eq!(
        ask(&node, "GET", &numbers, Some(&former), "").0,
        401,
        "the former key is withdrawn"
    );
    assert_eq!(ask(&node, "GET", &numbers, Some(&sign(&new)), "").0, 200);
    assert_eq!(node.metric("httpapi_key_file_refused"), 0.0);
    node.stop();
}

/// Lets this many clients read with a token until each has its answer. Returns how many of their
/// requests had to be sent again.
fn asked_again(node: &TestNode, token: &str, clients: usize) -> usize {
    let path = workspace_path(WS) + "/numbers";
    let client = || {
        for again in 0..400 {
            match ask(node, "GET", &path, Some(token), "") {
                (200, ..) => return again,
                (status, code, _) => assert_eq!((status, &*code), (503, "keys_unread")),
            }
            sleep(Duration::from_millis(50));
        }
        panic!("the node does not take the new key");
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

/// An empty set of keys shut nobody out, because the former keys stayed.
#[test]
fn an_empty_set_of_keys_shuts_everybody_out() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let (path, token) = (workspace_path(WS) + "/numbers", issuer.token("a", ALL));
    let status = |node: &TestNode| ask(node, "GET", &path, Some(&token), "").0;
    assert_eq!(status(&node), 200);
    issuer.publish(&[]);
    let start = Instant::now();
    while status(&node) != 401 {
        assert!(start.elapsed() < PATIENCE, "the former keys stay");
        sleep(Duration::from_millis(10));
    }
    assert!(node.log_text().contains("the file has no keys, all tokens are refused"));
    // A node that starts now refuses them, too.
    let started = issuer.node_without_workspace();
    assert_eq!(status(&started), 401);
    started.stop();
    issuer.publish(&[&issuer.key]);
    let start = Instant::now();
    while status(&node) != 200 {
        assert!(start.elapsed() < PATIENCE, "the keys do not come back");
        sleep(Duration::from_millis(10));
    }
    node.stop();
}

/// A node read a pipe instead of its file of keys, and ignored all later files, even one that shuts
/// everybody out. The metric said that the file was used.
#[test]
fn a_pipe_in_place_of_the_keys_does_not_end_the_looks() {
    let issuer = Issuer::new();
    let node = issuer.node();
    let (path, token) = (workspace_path(WS) + "/numbers", issuer.token("a", ALL));
    let wait_for = |is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "{}", node.log_text());
            sleep(Duration::from_millis(10));
        }
    };
    let pipe = issuer.folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(pipe, issuer.file()).unwrap();
    wait_for(&|| node.metric("httpapi_key_file_refused") == 1.0);
    assert!(node.log_text().contains("not a regular file"), "{}", node.log_text());
    assert_eq!(ask(&node, "GET", &path, Some(&token), "").0, 200, "the former keys count");
    issuer.publish(&[]);
    wait_for(&|| ask(&node, "GET", &path, Some(&token), "").0 == 401);
    assert_eq!(node.metric("httpapi_key_file_refused"), 0.0);
    node.stop();
}
