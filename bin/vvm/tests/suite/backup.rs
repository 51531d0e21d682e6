//! `vvm backup` and `vvm restore`, as processes.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use rustix::{fs::Mode, process::Signal};

use crate::{
    load::{self, CommandLoad},
    node::{self, NodeProcess},
};

const WORKSPACES: u64 = 4;

/// The restored node waits for the end of the lease that the backup has.
const SHORT_LEASE: &str = "[node]\nlease_seconds = 4\n";

/// Runs a command in a folder.
fn vvm(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.args(args).current_dir(folder).output().unwrap()
}

fn failed(folder: &Path, args: &[&str], code: i32, part: &str) {
    let output = vvm(folder, args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    assert!(errors.contains(part), "{args:?}: {part}: {errors}");
}

fn done(folder: &Path, args: &[&str]) -> String {
    let output = vvm(folder, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A node is backed up under load, and killed. The node on the restored file has each command that
/// was acknowledged before the backup began, and of the later commands the first ones.
#[test]
fn a_backup_under_load_becomes_a_node_with_a_prefix_of_each_log() {
    let (home, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut node = NodeProcess::start(home.path(), SHORT_LEASE).ready();
    (1..=WORKSPACES).for_each(|ws| node.create_workspace(ws));
    let load = CommandLoad::start("a", vec![node.api], WORKSPACES, false);
    load.until_more(200);
    let before = load.done();
    let backup = away.path().join("backup").to_str().unwrap().to_owned();
    let text = done(home.path(), &["backup", &backup, "--admin", &node.admin.to_string()]);
    assert!(text.contains("rows in 2 keyspaces are whole"), "{text}");
    load.until_more(50);
    node.signal(Signal::KILL);
    node.ended();
    let known = load.stop();

    let restored = done(away.path(), &["restore", &backup]);
    assert_eq!(rows(&restored), rows(&text));
    let copy = NodeProcess::start(away.path(), SHORT_LEASE).ready();
    let original = NodeProcess::start(home.path(), SHORT_LEASE).ready();
    known.check(&[&original], WORKSPACES);
    let mut behind = 0;
    for ws in 1..=WORKSPACES {
        let (copied, whole) = (copy.logged(ws), original.logged(ws));
        assert!(whole.starts_with(&copied), "workspace {ws}: {copied:?} of {whole:?}");
        behind += whole.len() - copied.len();
        let prefix = format!("{ws}-");
        let acknowledged =
            known.done[..before].iter().filter(|(name, ..)| name.starts_with(&prefix));
        for (name, _, offset) in acknowledged {
            assert_eq!(copied.get(*offset as usize - 1), Some(name), "workspace {ws}");
        }
    }
    assert!(behind > 0, "the backup was made after the load");
    original.stop();
    // The copy goes on, and draws the next number of each sequence.
    let (status, answer) = copy.command(1, "sys.CUD", load::NEW_ARTICLE);
    assert_eq!(status, 200, "{answer}");
    copy.stop();
    done(away.path(), &["storage", "check"]);
}

/// The part of a text that counts rows.
fn rows(text: &str) -> &str {
    text.split(": ").nth(1).unwrap().split(" (").next().unwrap()
}

#[test]
fn a_file_without_a_node_is_backed_up_and_nothing_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let node = NodeProcess::start(here, "").ready();
    node.create_workspace(1);
    let file = ["--storage", "redb:data/vvm.redb"];
    let offline = |name| [&["backup", name], &file[..]].concat();
    failed(here, &offline("used"), 4, "ask the node");
    let admin = node.admin.to_string();
    node.stop();
    failed(here, &["backup", "none/of/it", "--admin", &admin], 4, "admin.listen");
    assert!(!here.join("used").exists());
    assert_eq!(fs::read_dir(here.join("none/of")).unwrap().count(), 0);

    let before = fs::read(here.join("data/vvm.redb")).unwrap();
    let text = done(here, &offline("backup"));
    // A missing folder is made.
    let below = done(here, &offline("backups/monday"));
    assert_eq!(rows(&below), rows(&text));
    assert!(before == fs::read(here.join("data/vvm.redb")).unwrap(), "the file was changed");
    failed(here, &offline("backup"), 2, "backup exists");
    failed(here, &["restore", "backup"], 2, "data/vvm.redb exists");
    failed(here, &["restore", "absent", "--storage", "redb:new"], 2, "absent");
    failed(here, &["restore", "backup", "--storage", "mem"], 2, "redb files only");
    // A pipe waited for a writer.
    rustix::fs::mkfifoat(rustix::fs::CWD, here.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    for (command, what) in [("restore", "the backup"), ("import", "the export")] {
        for path in ["pipe", "data", "/dev/null"] {
            let part = format!("cannot read {what} {path}: it is no file");
            failed(here, &[command, path, "--storage", "redb:new"], 2, &part);
        }
    }
    // The kernel calls this file regular, and no byte at its beginning can be read.
    for command in ["restore", "import"] {
        failed(here, &[command, "/proc/self/mem", "--storage", "redb:new"], 4, "/proc/self/mem");
    }
    fs::create_dir(here.join("copy")).unwrap();
    fs::write(here.join("copy/vvm.redb.log-0"), "").unwrap();
    let copy = ["restore", "backup", "--storage", "redb:copy/vvm.redb"];
    failed(here, &copy, 2, "copy/vvm.redb.log-0 exists: the log of a former");
    fs::remove_dir_all(here.join("copy")).unwrap();
    let copied = done(here, &copy);
    assert_eq!(rows(&copied), rows(&text));

    let mut bytes = fs::read(here.join("backup")).unwrap();
    bytes.pop();
    fs::write(here.join("cut"), bytes).unwrap();
    failed(here, &["restore", "cut", "--storage", "redb:new/of/it"], 3, "cut off");
    let names = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name());
    let new: Vec<_> = names.filter(|name| name.to_str().unwrap().contains("new")).collect();
    assert_eq!(new, ["new"]);
    assert_eq!(fs::read_dir(here.join("new/of")).unwrap().count(), 0);
}

/// The same full disk gave exit code 1 with a node, and 4 with a file.
#[test]
fn a_backup_that_cannot_be_written_ends_alike_with_a_node_and_with_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let node = NodeProcess::start(here, "").ready();
    let admin = node.admin.to_string();
    // A file that grows beyond this limit cannot be written, as on a full disk.
    let limited = |args: &[&str]| {
        let vvm = env!("CARGO_BIN_EXE_vvm");
        let script = format!("trap '' XFSZ; ulimit -f 1; exec {vvm} \"$@\"");
        let mut command = Command::new("sh");
        let output = command.args(["-c", &script, "sh"]).args(args).current_dir(here).output();
        let output = output.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        assert!(errors.contains("File too large") && errors.contains("copy"), "{args:?}: {errors}");
    };
    limited(&["backup", "copy", "--admin", &admin]);
    node.stop();
    limited(&["backup", "copy", "--storage", "redb:data/vvm.redb"]);
    assert!(!here.join("copy").exists());
}

/// A storage with servers has tools of its own, even if no server answers.
#[test]
fn a_node_without_a_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(folder.path(), "[storage]\ndriver = \"mem\"\n").ready();
    let admin = node.admin.to_string();
    let no_file = "a storage in memory has no file, and ends with its node";
    failed(folder.path(), &["backup", "file", "--admin", &admin], 1, no_file);
    failed(folder.path(), &["backup", "file", "--storage", "mem"], 2, no_file);
    let free = node::free().to_string();
    failed(folder.path(), &["backup", "file", "--admin", &free], 4, &free);
    let both = ["backup", "file", "--admin", &admin, "--storage", "mem"];
    failed(folder.path(), &both, 2, "cannot be used with");
    assert_eq!(fs::read_dir(folder.path()).unwrap().filter(is_backup).count(), 0);
    node.stop();
}

fn is_backup(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("file")
}
