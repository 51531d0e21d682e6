//! The exit codes 6, 8 and 10 of a node, as a process. `node.rs` has the other codes: 3, 4, 5, 7,
//! 9, 11 and 12.

use std::{fs, path::Path, process::Command, time::Duration};

use rustix::process::Signal;

use crate::node::{NodeProcess, free};

/// The lease of a killed node is still in the storage, and the proof that this node is gone is
/// lost. The next node gives up before the lease expires.
#[test]
fn code_6_leadership_is_not_acquired_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[node]\nlease_seconds = 60\nacquire_seconds = 1\n";
    let mut first = NodeProcess::start(folder.path(), config).ready();
    first.signal(Signal::KILL);
    first.ended();
    fs::remove_file(folder.path().join("data/lease.lock")).unwrap();
    let mut second = NodeProcess::start(folder.path(), config);
    assert_eq!(second.ended().code(), Some(6), "{}", second.log_text());
    assert!(second.log_text().contains("was not acquired"), "{}", second.log_text());
}

/// No request and no file makes a service end. So a library is preloaded: the system takes away
/// what the services need after they have taken their ports.
#[test]
fn code_8_a_service_ends() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("no_watch.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/no_watch.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(compiler.status().unwrap().success());
    let mut vvm = Command::new(env!("CARGO_BIN_EXE_vvm"));
    vvm.env("LD_PRELOAD", &library);
    let mut node = NodeProcess::spawn(vvm, folder.path(), "", free(), free());
    assert_eq!(node.ended().code(), Some(8), "{}", node.log_text());
    assert!(node.log_text().contains(" ended: No space left on device"), "{}", node.log_text());
}

/// A process stands still past the end of its lease. When it goes on, it either finds that it has
/// lost the leadership, and ends with code 7, or its killer is faster.
#[test]
fn code_10_work_goes_on_after_the_leadership_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[node]\nlease_seconds = 4\n";
    let is_killed = (0..10).any(|_| {
        let mut node = NodeProcess::start(folder.path(), config).ready();
        node.create_workspace(1);
        node.signal(Signal::STOP);
        std::thread::sleep(Duration::from_secs(5));
        node.signal(Signal::CONT);
        let code = node.ended().code();
        assert!(matches!(code, Some(7 | 10)), "{code:?}: {}", node.log_text());
        let says_so = node.log_text().contains("error: killed: ");
        assert_eq!(says_so, code == Some(10), "{}", node.log_text());
        says_so
    });
    assert!(is_killed, "the killer was never faster");
    let node = NodeProcess::start(folder.path(), config).ready();
    assert_eq!(node.logged(1).len(), 1);
    node.stop();
}
