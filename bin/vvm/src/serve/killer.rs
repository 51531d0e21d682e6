//! The killer of a node: ends the process at once.

use crate::command_error::CommandError;

/// Ends the process at once, whatever other threads do.
///
/// Exit handlers and the flush of stdout do not run: either can block for ever, and the process
/// would live on after the end of its lease.
pub(super) fn kill(why: &str) {
    crate::say(format!("error: killed: {why}"));
    crate::logs::finish_at_once();
    #[expect(clippy::disallowed_methods, reason = "the binary ends the process")]
    signal_hook::low_level::exit(i32::from(CommandError::KILLED));
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{
        io::{self, Read, Write},
        process::{ChildStderr, Command, Stdio},
        time::{Duration, Instant},
    };

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    /// A test sets this variable for the process that it starts. That process runs the same test.
    const IS_KILLED: &str = "VVM_TEST_IS_KILLED";

    fn is_the_killed_process() -> bool {
        std::env::var_os(IS_KILLED).is_some()
    }

    /// Starts a test of this module as a process that is killed, and waits for the end of the
    /// process. Returns the stderr of the process.
    fn killed(test: &str) -> ChildStderr {
        let start = Instant::now();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("serve::killer::tests::{test}"), "--nocapture"])
            .env(IS_KILLED, "yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("the process was not killed");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(i32::from(CommandError::KILLED)));
        child.stderr.take().unwrap()
    }

    /// The killer wrote to stderr before it ended the process. Nobody read stderr, so the write
    /// blocked, and the process lived on after the end of its lease.
    #[test]
    fn a_process_is_killed_although_its_stderr_is_not_read() {
        if is_the_killed_process() {
            for _ in 0..100_000 {
                crate::say(
                    "a line that is not read; all lines together are larger than the buffer of a pipe",
                );
            }
            return kill("the leadership is lost");
        }
        let mut stderr = killed("a_process_is_killed_although_its_stderr_is_not_read");
        let mut output = Vec::new();
        stderr.read_to_end(&mut output).unwrap();
        assert!(output.len() > 10_000, "the process wrote only {} bytes", output.len());
    }

    /// The killer called `exit`, which flushes stdout and runs exit handlers. Nobody read the pipe,
    /// so the flush blocked, and the process lived on after the end of its lease.
    #[test]
    fn a_process_is_killed_although_its_exit_would_block() {
        if is_the_killed_process() {
            let mut stdout = io::stdout();
            let flags = fcntl_getfl(&stdout).unwrap();
            fcntl_setfl(&stdout, flags | OFlags::NONBLOCK).unwrap();
            while rustix::io::write(&stdout, &[b'x'; 1024]).is_ok() {}
            fcntl_setfl(&stdout, flags).unwrap();
            // Text without an end of line stays in the buffer until the flush.
            stdout.write_all(b"the rest").unwrap();
            return kill("the leadership is lost");
        }
        killed("a_process_is_killed_although_its_exit_would_block");
    }
}
