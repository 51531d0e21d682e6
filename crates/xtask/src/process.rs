//! Child processes.
//!
//! Each child is the head of a process group of its own. So the terminal's Ctrl-C reaches only this
//! process. This process then ends the whole group: cargo, the compiler, the test binaries and the
//! processes that they started.

use std::{
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    error::{Error, ErrorContext, Result, failed},
    interrupt,
};

/// The most time for a child that was asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a command to its end. Its output goes to the standard error of this process.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    command.stdout(Stdio::from(io::stderr()));
    let (mut child, what) = start(command)?;
    finish(&mut child, what, None)
}

/// Runs a command as [`run`] does, and ends it if it has not ended within `limit`.
pub(crate) fn run_within(limit: Duration, command: &mut Command) -> Result<()> {
    command.stdout(Stdio::from(io::stderr()));
    let (mut child, what) = start(command)?;
    finish(&mut child, what, Some(limit))
}

/// Runs a command to its end. Passes each line of its output to `see`.
pub(crate) fn run_reading(command: &mut Command, see: impl FnMut(&str) + Send) -> Result<()> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    command.stdout(writer);
    run_and_read(command, reader, None, see)
}

/// Runs a command to its end, and ends it if it has not ended within `limit`. Passes each line of
/// its output and of its standard error to `see`.
pub(crate) fn run_reading_all(
    command: &mut Command,
    limit: Option<Duration>,
    see: impl FnMut(&str) + Send,
) -> Result<()> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    command.stdout(writer.try_clone().context("cannot make a pipe")?).stderr(writer);
    run_and_read(command, reader, limit, see)
}

fn run_and_read(
    command: &mut Command,
    reader: io::PipeReader,
    limit: Option<Duration>,
    see: impl FnMut(&str) + Send,
) -> Result<()> {
    let started = start(command);
    // The output ends when the last process of the group has ended, and this process has no end of
    // the pipe to write to. `finish` ends the group.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, what) = started?;
    thread::scope(|scope| {
        scope.spawn(move || read_lines(BufReader::new(reader), see));
        finish(&mut child, what, limit)
    })
}

fn read_lines(lines: impl BufRead, mut see: impl FnMut(&str)) {
    for line in lines.split(b'\n').map_while(io::Result::ok) {
        see(&String::from_utf8_lossy(&line));
    }
}

fn start(command: &mut Command) -> Result<(Child, String)> {
    let what = describe(command);
    let child = command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .context(format!("cannot run `{what}`"))?;
    Ok((child, what))
}

/// Returns the program and its arguments, as a person would type them.
fn describe(command: &Command) -> String {
    let program =
        std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn finish(child: &mut Child, what: String, limit: Option<Duration>) -> Result<()> {
    let status = wait(child, &what, limit);
    // Processes of the group that outlived its head are ended, so that nothing stays behind.
    signal_group(child, Signal::KILL);
    match status? {
        status if status.success() => Ok(()),
        status => Err(Error::Child { what: format!("`{what}`"), code: status.code().unwrap_or(1) }),
    }
}

fn wait(child: &mut Child, what: &str, limit: Option<Duration>) -> Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a child process")? {
            return interrupt::check().map(|()| status);
        }
        if let Some(limit) = limit.filter(|limit| started.elapsed() > *limit) {
            end(child);
            return failed(format!("`{what}` did not end within {limit:?}"));
        }
        if let Err(interrupted) = interrupt::pause() {
            end(child);
            return Err(interrupted);
        }
    }
}

/// A child that runs while this process does something else. It is killed when the value is
/// dropped.
pub(crate) struct RunningChild {
    child: Child,
    what: String,
}

impl RunningChild {
    /// Starts a command. Its output goes where the command says.
    pub(crate) fn start(command: &mut Command) -> Result<RunningChild> {
        let (child, what) = start(command)?;
        Ok(RunningChild { child, what })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, if the child has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context(format!("cannot wait for `{}`", self.what))
    }

    /// Asks the child to end.
    pub(crate) fn ask_to_end(&self) {
        signal_group(&self.child, Signal::TERM);
    }

    /// Waits until the child has ended, and kills it at the deadline. Returns whether it ended by
    /// itself.
    pub(crate) fn end_by(mut self, deadline: Instant) -> bool {
        end_by(&mut self.child, deadline)
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        signal_group(&self.child, Signal::KILL);
        // If this call fails, only the exit status is lost.
        let _ = self.child.wait();
    }
}

fn end(child: &mut Child) {
    signal_group(child, Signal::TERM);
    end_by(child, Instant::now() + GRACE);
}

fn end_by(child: &mut Child, deadline: Instant) -> bool {
    let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
    while is_running(child) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    let ended = !is_running(child);
    signal_group(child, Signal::KILL);
    // If this call fails, only the exit status is lost.
    let _ = child.wait();
    ended
}

fn signal_group(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // An error means that the group has already ended, and needs no signal.
        let _ = kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_passed_on_by_lines_and_the_exit_code_is_kept() {
        let mut seen = Vec::new();
        let result =
            run_reading(Command::new("sh").args(["-c", "echo one; echo two; exit 7"]), |line| {
                seen.push(line.to_owned());
            });
        assert_eq!(seen, ["one", "two"]);
        assert_eq!(result.unwrap_err().exit_code(), 7);
    }

    #[test]
    fn output_and_errors_are_read_in_their_order() {
        let mut seen = Vec::new();
        let script = "echo one; echo two >&2; echo three";
        let mut command = Command::new("sh");
        run_reading_all(command.args(["-c", script]), None, |line| seen.push(line.to_owned()))
            .unwrap();
        assert_eq!(seen, ["one", "two", "three"]);
        let mut sleep = Command::new("sleep");
        let error = run_reading_all(sleep.arg("60"), Some(Duration::from_millis(50)), |_| {});
        assert!(error.unwrap_err().to_string().contains("`sleep 60` did not end"));
    }

    #[test]
    fn a_process_left_behind_by_a_child_is_ended_with_it() {
        let started = Instant::now();
        // The sleeper holds the pipe open. If the group were not ended, reading would last as long
        // as the sleeper.
        run_reading(Command::new("sh").args(["-c", "sleep 60 & exit 0"]), |_| {}).unwrap();
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_at_its_limit() {
        let mut sleep = Command::new("sleep");
        let error = run_within(Duration::from_millis(50), sleep.arg("60")).unwrap_err();
        assert!(error.to_string().contains("`sleep 60` did not end"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
