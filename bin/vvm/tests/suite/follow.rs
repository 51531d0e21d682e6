//! `vvm logs follow` beside a node on redb, as processes.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::node::{self, NodeProcess};

const WS: u64 = 1;

const ROW: &str = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;

/// `vvm logs follow`, and the lines that it prints.
struct Followed {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Followed {
    fn start(api: SocketAddr, args: &[&str]) -> Followed {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
        command.args(["logs", "follow", "--node", &api.to_string()]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Followed { child, lines }
    }

    /// The offset of the next event.
    fn offset(&mut self, key: &str) -> u64 {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        event[key].as_u64().unwrap()
    }

    /// Waits for the end, and returns the code and what was printed to stderr.
    fn end(self) -> (Option<i32>, String) {
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

fn write(node: &NodeProcess) {
    let (status, answer) = node.command(WS, "sys.CUD", ROW);
    assert_eq!(status, 200, "{answer}");
}

/// The node is killed and starts again. Events come once, and in order.
#[test]
fn a_log_is_followed_through_the_restart_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let (api, admin) = (node::free(), node::free());
    let start = || NodeProcess::start_at(folder.path(), "", api, admin).ready();
    let mut node = start();
    node.create_workspace(WS);
    write(&node);
    let mut all = Followed::start(api, &["--ws", "1", "--limit", "5"]);
    let mut partition = Followed::start(api, &["--partition", "1", "--from", "2", "--limit", "3"]);
    assert_eq!([1, 2], [(); 2].map(|()| all.offset("wlogOffset")));
    assert_eq!(partition.offset("plogOffset"), 2);
    write(&node);
    assert_eq!(all.offset("wlogOffset"), 3);
    node.signal(Signal::KILL);
    node.ended();
    let node = start();
    write(&node);
    write(&node);
    assert_eq!([4, 5], [(); 2].map(|()| all.offset("wlogOffset")));
    assert_eq!([3, 4], [(); 2].map(|()| partition.offset("plogOffset")));
    assert_eq!(node.logged(WS).len(), 5, "the log has no other events");
    for followed in [all, partition] {
        let (code, stderr) = followed.end();
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.contains("goes on at the next try"), "{stderr}");
    }
    node.stop();
}

/// The place of the former connection was still taken, or another follower of the principal was
/// faster. The command ended.
#[test]
fn a_log_that_was_heard_goes_on_after_it_was_refused_a_place() {
    const EVENTS: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    const NO_PLACE: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let api = listener.local_addr().unwrap();
    let answers = [
        format!("{EVENTS}id: 1\ndata: {{\"wlogOffset\":1}}\n\n"),
        NO_PLACE.to_owned(),
        format!("{EVENTS}id: 2\ndata: {{\"wlogOffset\":2}}\n\n"),
    ];
    let server = thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while !lines.next().unwrap().unwrap().is_empty() {}
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut followed = Followed::start(api, &["--ws", "1", "--limit", "2"]);
    assert_eq!([1, 2], [(); 2].map(|()| followed.offset("wlogOffset")));
    let (code, stderr) = followed.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("429"), "{stderr}");
    server.join().unwrap();
}

#[test]
fn a_log_that_cannot_be_followed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(folder.path(), "").ready();
    for (api, args, expected, part) in [
        (node::free(), &["--ws", "1"][..], 4, "no node answers"),
        (node.api, &[], 2, "--ws"),
        (node.api, &["--ws", "77"], 1, "404"),
        (node.api, &["--partition", "77"], 1, "404"),
        (node.api, &["--ws", "1", "--from", "0"], 2, "1 or more"),
        (node.api, &["--partition", "1", "--ws", "1"], 2, "cannot be used with"),
    ] {
        let (code, stderr) = Followed::start(api, args).end();
        assert_eq!(code, Some(expected), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
    node.stop();
}

/// A reader that was gone made the command fail: `cannot write the result: Broken pipe`.
#[test]
fn a_reader_that_is_gone_ends_the_command_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(folder.path(), "").ready();
    node.create_workspace(WS);
    write(&node);
    let mut followed = Followed::start(node.api, &["--ws", "1"]);
    assert_eq!([1, 2], [(); 2].map(|()| followed.offset("wlogOffset")));
    let Followed { child, lines } = followed;
    drop(lines);
    // The command notices when it prints the next event.
    write(&node);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""));
    node.stop();
}
