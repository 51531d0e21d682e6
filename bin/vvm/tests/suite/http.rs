//! HTTP of a node: its stop, its status, its metrics and its bench. A node whose storage must fail
//! runs in this process, and each other node is a process.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{JoinHandle, sleep, spawn},
    time::{Duration, Instant},
};

use clock::Clock;
use http_admin::{AdminEndpoint, AdminSettings};
use istorage::{CallKind, WrappedDriver, mem::MemDriver};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shop::http_client::{answer, command_path, request, try_request, workspace_path};
use tck::storage::{Fault, Faulty};
use tokio::runtime::Runtime;
use vvm::{NodeSettings, Vvm};

use crate::{
    in_memory::{WS, node_with},
    node,
};

/// A command on the wrong port said that its path does not exist, or listed all paths of the port.
#[test]
fn a_command_on_the_other_port_of_a_node_names_the_right_one() {
    let (_folder, node) = node_with("");
    let (api, admin) = (node.api.to_string(), node.admin.to_string());
    let ws = WS.to_string();
    let api_answers = "this port is the API of a node, and is not an admin endpoint: give the \
                       address in `admin.listen` with --admin ADDRESS";
    let admin_answers = "this port is the admin endpoint of a node, and is not its API: give the \
                         address in `http.listen` with --node ADDRESS";
    for (line, part) in [
        (&["inspect", "apps", "--admin", &api][..], api_answers),
        (&["backup", "none", "--admin", &api], api_answers),
        (&["status", "--admin", &api], api_answers),
        (&["status", "--live", "--admin", &api], api_answers),
        (&["cluster", "status", "--admin", &api], api_answers),
        (&["cluster", "pause", "--admin", &api], api_answers),
        (&["repair", "list", "--admin", &api], api_answers),
        (&["logs", "follow", "--ws", &ws, "--node", &admin], admin_answers),
        (&["numbers", "list", "--ws", &ws, "--node", &admin], admin_answers),
        (&["bench", "--node", &admin, "--seconds", "1"], admin_answers),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_vvm")).args(line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{line:?}: {error}");
        assert!(error.contains(part), "{line:?}: {error}");
        assert!(!error.contains("/livez"), "{line:?}: {error}");
        assert!(!error.contains("no node answers"), "{line:?}: {error}");
    }
    node.stop();
}

/// A server that gives the same answer to this many requests. Returns its address.
fn server(head: &'static str, body: &'static str, requests: usize) -> (String, JoinHandle<()>) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let serve = spawn(move || {
        for _ in 0..requests {
            let mut client = server.accept().unwrap().0;
            let mut lines = BufReader::new(&client).lines();
            lines.find(|line| line.as_ref().is_ok_and(String::is_empty)).unwrap().unwrap();
            let length = body.len();
            let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, serve)
}

/// A server that is no node answers each request with JSON, or has no path of a node. An order to
/// such a server was reported as given, or as refused.
#[test]
fn a_server_that_is_no_node_is_no_admin_endpoint() {
    for head in ["200 OK", "404 Not Found"] {
        let lines: [&[&str]; 4] =
            [&["status"], &["cluster", "status"], &["cluster", "pause"], &["cluster", "resume"]];
        let (address, serve) = server(head, "{}", lines.len());
        for line in lines {
            let line = [line, &["--admin", &address]].concat();
            let output = Command::new(env!("CARGO_BIN_EXE_vvm")).args(&line).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(4), "{head} {line:?}: {error}");
            let part = "a server answers, and is not an admin endpoint";
            assert!(error.contains(part), "{head} {line:?}: {error}");
        }
        serve.join().unwrap();
    }
}

/// An admin endpoint of an older version lacks a path. The advice was to ask the API.
#[test]
fn an_admin_endpoint_without_the_path_is_not_the_other_port() {
    let problem = r#"{"code":"not_found","reason":"no such path","port":"admin"}"#;
    let lines: [&[&str]; 3] = [&["repair", "list"], &["inspect", "apps"], &["cluster", "pause"]];
    let (address, serve) = server("404 Not Found", problem, lines.len());
    for line in lines {
        let line = [line, &["--admin", &address]].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_vvm")).args(&line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {error}");
        assert!(error.contains("404 Not Found: no such path"), "{line:?}: {error}");
    }
    serve.join().unwrap();
}

/// Connections waited in the queue of the kernel when the node stopped. The node accepted some of
/// them and cut off the rest.
#[test]
fn a_connection_that_waits_to_be_accepted_is_answered_at_a_stop() {
    const CLIENTS: usize = 400;
    let (_folder, mut node) = node_with("[node]\nstop_seconds = 40");
    node.signal(Signal::STOP);
    let body = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    let asks = |_| {
        let mut stream = TcpStream::connect(node.api).unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            command_path(WS, "sys.CUD"),
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let clients: Vec<_> = (0..CLIENTS).map(asks).collect();
    node.signal(Signal::TERM);
    node.signal(Signal::CONT);
    for mut stream in clients {
        let answer = answer(&mut stream);
        assert!(matches!(answer, Ok((200, _))), "{answer:?}");
    }
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
}

#[test]
fn the_admin_endpoint_reports_the_state_of_the_node() {
    let (_folder, node) = node_with("");
    let get = |path| request(node.admin, "GET", path, &[], "");
    assert_eq!(get("/livez").0, 200);
    let (status, verbose) = get("/readyz?verbose");
    assert_eq!((status, verbose["stage"].as_str()), (200, Some("leading")));
    let (_, status) = get("/status");
    let node_status = &status["node"];
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(node_status["lead"]["seat"], 1);
    assert!(node_status["lead"]["leftMs"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(node_status["leaders"]["1"], node.api.to_string());
    let storage = &node_status["storage"];
    assert_eq!((&storage["driver"], &storage["answers"]), (&"mem".into(), &true.into()));
    assert_eq!(storage["systemKeyspace"], "sysvvm");
    let here = node_status["apps"][0]["here"].as_array().unwrap();
    assert_eq!(here.len(), 10);
    for (number, partition) in here.iter().enumerate() {
        // Only the partition of the one workspace has an event. The numbers of that event may or
        // may not be stored.
        let next = if number as u64 == WS { 2 } else { 1 };
        assert_eq!(partition["number"], number);
        assert_eq!((&partition["status"], &partition["waiting"]), (&"ready".into(), &0.into()));
        assert_eq!(partition["nextOffset"], next, "{partition}");
        assert!(partition["unflushedEvents"].as_u64().unwrap() < next, "{partition}");
    }
    assert_eq!(get("/none").0, 404);
    let output = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["status", "--admin", &node.admin.to_string()])
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("leads seat 1") && output.contains("demo/shop: 10 of 10"), "{output}");
    let output = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .arg("status")
        .env("VVM__ADMIN__LISTEN", node.admin.to_string())
        // The command needs no settings from the file of the node, so this variable must not matter
        // to it.
        .env("VVM__STORAGE__CASSANDRA__CONSISTENCY", "quorum")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let head = try_request(node.admin, "HEAD", "/readyz", &[], "").unwrap();
    assert_eq!(head, (200, String::new()));
    // The API is no admin endpoint, and the command reports that.
    let wrong = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["status", "--admin", &node.api.to_string()])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(4));
    let wrong = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.contains("admin.listen"), "{wrong}");
    node.stop();
}

/// The error had no cause: `the store is unavailable, and nothing was done`. `vvm status` reads the
/// key `lastError`: under another key, the command would report that the storage works.
#[test]
fn a_storage_that_fails_is_reported_with_its_error() {
    let (clock, is_down) = (Clock::system(), Arc::new(AtomicBool::new(false)));
    let mem = Arc::new(MemDriver::new(clock.clone()));
    let (faults_clock, down) = (clock.clone(), Arc::clone(&is_down));
    let driver = WrappedDriver::new(mem, move |storage| {
        let down = Arc::clone(&down);
        let script = move |op| match op {
            CallKind::Read if down.load(Ordering::SeqCst) => Fault::Unavailable,
            _ => Fault::None,
        };
        Arc::new(Faulty::scripted(storage, faults_clock.clone(), script))
    });
    let admin = node::free();
    let endpoint = AdminEndpoint::new(AdminSettings::new(admin, Arc::new(String::new), "1.2.3"));
    let settings = NodeSettings::new(node::free());
    let node = Vvm::builder(Arc::new(driver), clock.clone(), settings).with_admin(endpoint);
    let runtime = Runtime::new().unwrap();
    let node = runtime.block_on(async { node.build().unwrap().launch() });
    runtime.block_on(node.ready(clock.now() + node::PATIENCE)).unwrap();
    let storage = || request(admin, "GET", "/status", &[], "").1["node"]["storage"].clone();
    let works = storage();
    assert_eq!((&works["answers"], works.get("lastError")), (&true.into(), Some(&Value::Null)));

    is_down.store(true, Ordering::SeqCst);
    let start = Instant::now();
    // The status may contain the last answer for half a second.
    let failed = loop {
        let storage = storage();
        if storage["answers"] == false {
            break storage;
        }
        assert!(start.elapsed() < node::PATIENCE, "{storage}");
        sleep(Duration::from_millis(20));
    };
    let error = failed["lastError"].as_str().unwrap_or_else(|| panic!("{failed}"));
    assert!(error.contains("injected fault: the read failed"), "{failed}");
    let output = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["status", "--admin", &admin.to_string()])
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains(&format!("storage: mem does not answer: {error}\n")), "{output}");
    is_down.store(false, Ordering::SeqCst);
    runtime.block_on(node.shutdown()).unwrap();
}

/// Each metric is explained in the documents, and each metric in the documents exists.
#[test]
fn each_documented_metric_exists_and_each_metric_is_documented() {
    // No collector is there. The file of the node has metrics of its own.
    let folder = tempfile::tempdir().unwrap();
    let config = "[traces]\nendpoint = \"http://127.0.0.1:9\"\n";
    let node = node::NodeProcess::start(folder.path(), config).ready();
    node.create_workspace(WS);
    let draw = format!("{}/numbers/order/next", workspace_path(WS));
    assert_eq!(request(node.api, "POST", &draw, &[], "").0, 200);
    assert_eq!(request(node.api, "GET", "/none", &[], "").0, 404);
    let docs = ["operations", "commands", "sequencing", "elections", "numbers"].map(|name| {
        let path = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    });
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    let metrics = metrics.as_str().unwrap();
    let there: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for name in &there {
        assert!(docs.iter().any(|text| text.contains(&format!("`{name}"))), "{name} means nothing");
    }
    // The check leaves out metrics of things that have not happened.
    let tables = [(0, "### Metrics"), (4, "## Metrics")];
    let tables = tables.map(|(page, title)| docs[page].split(title).nth(1).unwrap());
    let named = tables.iter().flat_map(|table| table.split('`'));
    let is_metric = |name: &&str| {
        let of = ["httpapi_", "processor_", "istorage_", "docnumbers_", "vvm_"];
        of.iter().any(|of| name.starts_with(of)) && !name.contains('…')
    };
    for name in named.filter(is_metric) {
        assert!(there.contains(&name), "{name} is not there: {there:?}");
    }
    for stage in ["wait", "run", "log", "apply"] {
        let partition = format!("partition=\"demo/shop/{WS}\"");
        let is_it = |line: &&str| {
            line.starts_with("processor_stage_seconds_count")
                && line.contains(&partition)
                && line.contains(&format!("stage=\"{stage}\""))
        };
        let line = metrics.lines().find(is_it).unwrap();
        assert!(line.ends_with(" 1"), "{line}");
    }
    // The upkeep service runs, so metrics that no client reads do not fill the memory.
    assert!(node.log_text().contains("\"metrics\""), "{}", node.log_text());
    node.stop();
}

/// No metric had a help text, so a person with a dashboard had to find the page of each metric.
#[test]
fn each_metric_of_a_node_under_load_has_a_help_text() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[traces]\nendpoint = \"http://127.0.0.1:9\"\n";
    let node = node::NodeProcess::start(folder.path(), config).ready();
    for send in [&["--workspaces", "2"][..], &["--send", "draws"], &["--send", "reads"]] {
        bench(&node, send);
    }
    assert_eq!(request(node.api, "GET", "/none", &[], "").0, 404);
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    let metrics = metrics.as_str().unwrap();
    let mut families = 0;
    let mut before = "";
    for line in metrics.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            let help = before.strip_prefix(&format!("# HELP {name} "));
            assert!(help.is_some_and(|help| help.len() > 10), "{name} has no help: {before}");
            families += 1;
        }
        before = line;
    }
    assert!(families > 30, "{families}: {metrics}");
    node.stop();
}

/// An operator with a wrong name of the application did not learn which ones exist, nor that there
/// is `--app`.
#[test]
fn a_command_for_an_unknown_application_names_those_that_exist() {
    let (_folder, node) = node_with("");
    let (api, admin, ws) = (node.api.to_string(), node.admin.to_string(), WS.to_string());
    for line in [
        &["logs", "follow", "--ws", &ws, "--node", &api, "--app", "a/b"][..],
        &["numbers", "list", "--ws", &ws, "--node", &api, "--app", "a/b"],
        &["bench", "--node", &api, "--seconds", "1", "--app", "a/b"],
        &["inspect", "wlog", "--ws", &ws, "--admin", &admin, "--app", "a/b"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_vvm")).args(line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{line:?}: {error}");
        for part in ["application", "a/b", "it has demo/shop", "--app OWNER/NAME"] {
            assert!(error.contains(part), "{line:?}: {part}: {error}");
        }
    }
    let to = ["cluster", "move", "a/b/1", "1", "--admin", &admin];
    let output = Command::new(env!("CARGO_BIN_EXE_vvm")).args(to).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no application `a/b`; it has demo/shop"), "{error}");
    node.stop();
}

/// Runs `vvm bench` for a second, and returns its report.
fn bench(node: &node::NodeProcess, rest: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--json", "--seconds", "1", "--node", &node.api.to_string()])
        .args(rest)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_bench_draws_numbers_and_reads() {
    let (_folder, node) = node_with("");
    let draws =
        bench(&node, &["--send", "draws", "--count", "7", "--clients", "4", "--workspaces", "1"]);
    let path = format!("{}/numbers/order/next", workspace_path(1));
    let (_, next) = request(node.api, "POST", &path, &[], "");
    assert_eq!(next["counters"][0], 7 * draws["done"].as_u64().unwrap(), "{draws}");
    let before = node.logged(1).len();
    let reads = bench(&node, &["--send", "reads", "--workspaces", "1"]);
    assert!(reads["done"].as_u64().unwrap() > 20, "{reads}");
    assert_eq!(node.logged(1).len(), before, "a read writes no event");
    node.stop();
}

#[test]
fn the_bench_measures_a_node_that_runs() {
    let (_folder, node) = node_with("");
    let bench = |rest: &[&str]| bench(&node, rest);
    let closed = bench(&["--clients", "4", "--workspaces", "3"]);
    let done = closed["done"].as_u64().unwrap();
    let logged: usize = (1..=3).map(|ws| node.logged(ws).len() - 1).sum();
    assert_eq!(done, logged as u64, "the bench counts other commands than the log has");
    // Each of the four clients waits for its answers. So the times of all commands add up to nearly
    // the time of all clients.
    let mean = closed["micros"]["mean"].as_f64().unwrap();
    let sum = mean * done as f64 / 4_000_000.0;
    assert!((0.8..=1.01 * closed["seconds"].as_f64().unwrap()).contains(&sum), "{closed}");
    // A bench that is stopped reports the commands until then.
    let long = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--json", "--seconds", "600", "--node", &node.api.to_string()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let before = node.logged(1).len();
    while node.logged(1).len() < before + 10 {
        sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&long), Signal::INT).unwrap();
    let report = long.wait_with_output().unwrap();
    assert_eq!(report.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert!(report["done"].as_u64().unwrap() >= 10, "{report}");
    let unreachable = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--node", "127.0.0.1:1"])
        .output()
        .unwrap();
    assert_eq!(unreachable.status.code(), Some(4));
    let other = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--app", "demo/none", "--node", &node.api.to_string()])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(1), "it was reached");
    let other = String::from_utf8(other.stderr).unwrap();
    assert!(other.contains("this node has no application demo/none"), "{other}");
    node.stop();
}

/// A listener that ends each connection after the first bytes of a request.
fn cutting_node() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming() {
            let mut head = [0; 16];
            let _ = std::io::Read::read(&mut stream.unwrap(), &mut head);
        }
    });
    address
}

/// One of the nodes refuses connections, or ends them after it got a request.
#[test]
fn the_bench_counts_what_clients_of_several_nodes_see() {
    let (_folder, node) = node_with("");
    let bench = |other: std::net::SocketAddr, rest: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_vvm"))
            .args(["bench", "--json", "--check", "--seconds", "1", "--workspaces", "2"])
            .args(["--node", &format!("{},{other}", node.api), "--clients", "4"])
            .args(rest)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let (code, report) = bench(node::free(), &[]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report["ends"]["doneAfterTries"].as_u64().unwrap() >= 1, "{report}");
    let answers = &report["nodes"][node.api.to_string()];
    assert_eq!(answers["answers"], report["done"], "{report}");
    assert_eq!(report["check"]["events"], report["done"], "{report}");
    assert!(report["longestPauseMicros"].as_u64().unwrap() > 0, "{report}");

    // A command may have been done, so only a command with a key is sent again.
    let cutting = cutting_node();
    let (code, report) = bench(cutting, &[]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report["ends"]["unknown"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(report["check"]["doneAlthoughUnknown"], 0, "{report}");
    let (code, report) = bench(cutting, &["--keys"]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report["ends"]["doneAfterTries"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(report["check"]["events"], report["done"], "{report}");
    node.stop();
}

/// A bench whose nodes were gone at its end ignored Ctrl-C for a minute while it tried to read the
/// logs, and then printed no measurements.
#[test]
fn the_bench_prints_its_measurements_although_it_cannot_read_the_logs() {
    let (_folder, node) = node_with("");
    node.create_workspace(1);
    let mut bench = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--json", "--check", "--seconds", "600", "--workspaces", "1"])
        .args(["--node", &node.api.to_string()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while node.logged(1).len() < 10 {
        sleep(Duration::from_millis(20));
    }
    node.signal(Signal::KILL);
    kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
    let mut told = BufReader::new(bench.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("checking the logs of 1 workspaces")));
    let start = Instant::now();
    kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
    let report = bench.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(report.status.code(), Some(1));
    assert!(told.any(|line| line.contains("the logs were not checked to their ends")));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert!(report["done"].as_u64().unwrap() >= 1, "{report}");
    assert!(report["check"].is_null(), "{report}");
}

/// A node that stands still accepts connections and answers nothing. The bench waited 30 s for each
/// request.
#[test]
fn the_bench_ends_after_a_second_if_the_node_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let start = Instant::now();
    let bench = Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--node", &address])
        .output()
        .unwrap();
    let (took, text) = (start.elapsed(), String::from_utf8(bench.stderr).unwrap());
    assert_eq!(bench.status.code(), Some(4), "{text}");
    assert!(text.contains(&address) && text.contains("within 1s"), "{text}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
