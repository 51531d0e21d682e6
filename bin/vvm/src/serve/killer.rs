//! The killer of a node: ends the process at once.

use std::time::Duration;

use ctl::{CommandError, terminal};

/// The most time for the last lines of the log: the lease is nearly over.
const LAST_LINES: Duration = Duration::from_millis(50);

/// Ends the process at once, whatever other threads do.
///
/// Exit handlers and the flush of stdout do not run: either can block for ever, and the process
/// would live on after the end of its lease.
pub(super) fn kill(why: &str) {
    terminal::say(format!("error: killed: {why}"));
    terminal::finish(LAST_LINES);
    #[expect(clippy::disallowed_methods, reason = "the binary ends the process")]
    signal_hook::low_level::exit(i32::from(CommandError::KILLED));
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::io::{self, Write};

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::{super::processes, *};

    /// Runs a test of this module as a process that is killed. Returns the stderr of the process.
    fn killed(test: &str) -> String {
        let (status, output) = processes::run(&format!("serve::killer::tests::{test}"));
        assert_eq!(status.code(), Some(i32::from(CommandError::KILLED)), "{output}");
        output
    }

    /// The killer wrote to stderr before it ended the process. Nobody read stderr, so the write
    /// blocked, and the process lived on after the end of its lease.
    #[test]
    fn a_process_is_killed_although_its_stderr_is_not_read() {
        if processes::is_child() {
            for _ in 0..100_000 {
                terminal::say(
                    "a line that is not read; all lines together are larger than the buffer of a pipe",
                );
            }
            return kill("the leadership is lost");
        }
        let output = killed("a_process_is_killed_although_its_stderr_is_not_read");
        assert!(output.len() > 10_000, "the process wrote only {} bytes", output.len());
    }

    /// The killer called `exit`, which flushes stdout and runs exit handlers. Nobody read the pipe,
    /// so the flush blocked, and the process lived on after the end of its lease.
    #[test]
    fn a_process_is_killed_although_its_exit_would_block() {
        if processes::is_child() {
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
