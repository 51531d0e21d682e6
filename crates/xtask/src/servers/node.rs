//! One process of a server.
//!
//! The folder of the process holds everything about it: the data, the log and the process id. A
//! process is taken for the node only if its command line names that folder. So a process that got
//! the same id later is never signalled.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    error::{Error, ErrorContext, Result, failed},
    interrupt,
};

const READY_WITHIN: Duration = Duration::from_secs(180);
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The most time for a node to end after it was asked, before it is killed. Also the most time for
/// the system to kill it.
const STOP_WITHIN: Duration = Duration::from_secs(5);
const LOG_LINES: usize = 30;

/// Starts a Java process that outlives this one. `folder` exists and belongs to the node alone.
pub(crate) fn launch(java: &Path, arguments: &[String], folder: &Path) -> Result<()> {
    let temporary = folder.join("tmp");
    fs::create_dir(&temporary).context(temporary.display())?;
    let log = File::create(folder.join("log")).context("cannot create the log")?;
    let mut command = Command::new(java);
    command.arg(format!("-Djava.io.tmpdir={}", temporary.display()));
    command.args(arguments).current_dir(folder);
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share the log")?)
        .stderr(log);
    // The terminal's Ctrl-C must not reach the node, because the node may outlive this process.
    let mut child = command.process_group(0).spawn().context(java.display())?;
    let noted = fs::write(folder.join("pid"), child.id().to_string());
    if noted.is_err() {
        // Without its id the process would never be found again. If the kill fails, the process has
        // ended by itself.
        let _ = child.kill();
    }
    noted.context("cannot note the process id")?;
    // The system shows the command line of a new process only a little after its start.
    while running(folder).is_none()
        && child.try_wait().context("cannot look at the new process")?.is_none()
    {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Waits until `is_ready` returns true, and prints the progress. Fails early if the process ends,
/// and late if it takes too long.
pub(crate) fn wait_until(what: &str, folder: &Path, is_ready: impl Fn() -> bool) -> Result<()> {
    let started = Instant::now();
    let mut tell_at = TELL_EVERY;
    loop {
        if is_ready() {
            return Ok(());
        }
        if running(folder).is_none() {
            return failed(format!("{what}: the process has ended\n{}", end_of_log(folder)));
        }
        if started.elapsed() > READY_WITHIN {
            return failed(format!(
                "{what}: not ready after {} s\n{}",
                READY_WITHIN.as_secs(),
                end_of_log(folder)
            ));
        }
        if started.elapsed() > tell_at {
            eprintln!("{what} ({} s)", started.elapsed().as_secs());
            tell_at += TELL_EVERY;
        }
        interrupt::pause()?;
    }
}

/// Says that the process of the node has ended, with the end of its log. Returns `None` while the
/// process runs.
pub(crate) fn ended(folder: &Path) -> Option<String> {
    let name = |folder: &Path| folder.file_name().unwrap_or_default().display().to_string();
    let server = folder.parent().map(name).unwrap_or_default();
    let log = || end_of_log(folder);
    running(folder).is_none().then(|| format!("[{server}] {} has ended\n{}", name(folder), log()))
}

/// Returns the process of the node, if it runs.
pub(crate) fn running(folder: &Path) -> Option<Pid> {
    let pid = fs::read_to_string(folder.join("pid")).ok()?.parse().ok().and_then(Pid::from_raw)?;
    // The slash tells the folder from others whose names begin with its name.
    command_line(pid).contains(&format!("{}/", folder.display())).then_some(pid)
}

/// Returns the command line of a process. It is empty if the process is gone, or has ended and was
/// not waited for yet.
fn command_line(pid: Pid) -> String {
    if Path::new("/proc/self/cmdline").exists() {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        return String::from_utf8_lossy(&bytes).replace('\0', " ");
    }
    let ps = Command::new("ps").args(["-ww", "-o", "command=", "-p", &pid.to_string()]).output();
    ps.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Ends the processes of these nodes at the same time: asks them to end, waits, then kills them.
pub(crate) fn stop(folders: &[PathBuf]) -> Result<()> {
    for signal in [Signal::TERM, Signal::KILL] {
        let left = || folders.iter().filter_map(|folder| running(folder)).collect::<Vec<_>>();
        for pid in left() {
            match kill_process(pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => {
                    return Err(Error::Failed(format!("cannot stop process {pid}: {error}")));
                }
            }
        }
        let deadline = Instant::now() + STOP_WITHIN;
        while !left().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(50));
        }
        if left().is_empty() {
            return Ok(());
        }
    }
    failed("a server cannot be stopped, not even by SIGKILL")
}

fn end_of_log(folder: &Path) -> String {
    let path = folder.join("log");
    let log = fs::read(&path).unwrap_or_else(|error: io::Error| error.to_string().into_bytes());
    let kept = keep_log(folder, &path).unwrap_or(path);
    format!(
        "{}\nThe whole log: {}",
        last_lines(&String::from_utf8_lossy(&log), LOG_LINES),
        kept.display()
    )
}

/// Copies the log of a node beside the folders of all servers, where it stays until the next
/// failure. The folder of the node is removed soon afterwards.
fn keep_log(folder: &Path, log: &Path) -> Option<PathBuf> {
    let (server, run) = (folder.parent()?, folder.ancestors().nth(3)?);
    let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let kept = run.join(format!("failed-{}-{}.log", name(server)?, name(folder)?));
    fs::copy(log, &kept).ok().map(|_| kept)
}

fn last_lines(text: &str, count: usize) -> String {
    let lines = text.lines().collect::<Vec<_>>();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
    }

    /// Starts a shell in the place of `java`, with its arguments on its command line. The shell
    /// lives as long as its script.
    fn stand_in(folder: &Path, script: &str) {
        let program = folder.join("java");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mut permissions = fs::metadata(&program).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        fs::set_permissions(&program, permissions).unwrap();
        launch(&program, &[], folder).unwrap();
    }

    #[test]
    fn a_node_runs_until_it_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        stand_in(folder.path(), "while :; do sleep 0.1; done");
        assert!(running(folder.path()).is_some());
        wait_until("ready", folder.path(), || true).unwrap();
        stop(&[folder.path().to_path_buf()]).unwrap();
        assert!(running(folder.path()).is_none());
    }

    #[test]
    fn a_node_that_ends_fails_the_wait_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        stand_in(folder.path(), "echo the disk is full; exit 3");
        let error = wait_until("waiting for it", folder.path(), || false).unwrap_err().to_string();
        assert!(
            error.contains("waiting for it: the process has ended\nthe disk is full\n"),
            "{error}"
        );
    }

    #[test]
    fn another_process_with_the_same_id_is_not_the_node() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pid"), std::process::id().to_string()).unwrap();
        assert!(running(folder.path()).is_none());
        stop(&[folder.path().to_path_buf()]).unwrap();
    }
}
