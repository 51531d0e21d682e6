//! The errors that end the program, and their exit codes.

use std::{error::Error, fmt};

use istorage::ErrorKind;
use vvm::Problem;

/// An error that ends the program, in words for the operator.
#[derive(Debug)]
pub struct CommandError {
    reason: ExitReason,
    message: String,
}

/// The kinds of errors. The number of a kind is its exit code, and is never reused. 0 is success,
/// and 2 is also the exit code of clap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    Failed = 1,
    Usage = 2,
    Config = 3,
    Unreachable = 4,
    /// A port is taken.
    NotBound = 5,
    /// The node got no seat in time: other nodes lead.
    NotAcquired = 6,
    LeadershipLost = 7,
    ServiceEnded = 8,
    /// A part of the node did not stop in time or in order.
    NotStopped = 9,
    /// Work went on after the leadership was lost.
    Killed = 10,
    SteppedDown = 11,
    /// A second signal stopped the process at once.
    AtOnce = 12,
}

/// The advice of a command that asks for an application that does not exist.
pub(crate) const CHOOSE_APP: &str = ": choose one with --app OWNER/NAME";

impl CommandError {
    /// The operating system refused a resource that the program needs to run.
    pub fn runtime(error: std::io::Error) -> CommandError {
        CommandError { reason: ExitReason::Failed, message: format!("cannot start: {error}") }
    }

    /// The command began and could not be finished.
    pub fn unfinished(message: impl Into<String>) -> CommandError {
        CommandError { reason: ExitReason::Failed, message: message.into() }
    }

    /// The command line cannot be followed: its arguments contradict each other, or one of them
    /// names a file or a node that is not there, cannot be used, or must not be replaced.
    pub fn usage(message: impl Into<String>) -> CommandError {
        CommandError { reason: ExitReason::Usage, message: message.into() }
    }

    /// The configuration is wrong.
    pub fn config(message: impl Into<String>) -> CommandError {
        CommandError { reason: ExitReason::Config, message: message.into() }
    }

    /// No answer came from the other side.
    pub fn unreachable(message: impl Into<String>) -> CommandError {
        CommandError { reason: ExitReason::Unreachable, message: message.into() }
    }

    /// The storage cannot be opened.
    pub(crate) fn storage(what: &str, error: &istorage::Error) -> CommandError {
        let reason = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Corrupt => ExitReason::Config,
            _ => ExitReason::Unreachable,
        };
        CommandError::because(reason, what, error)
    }

    /// The system keyspace or an application cannot be opened.
    pub(crate) fn system(what: &str, error: &sysvvm::Error) -> CommandError {
        match error {
            sysvvm::Error::Storage(error) => CommandError::storage(what, error),
            sysvvm::Error::Importing { app } => CommandError::config(format!(
                "{what}: {error}\n  wait for it, repeat it with `vvm import FILE --app {app} --again`, or \
                 drop it with `vvm import --discard --app {app}`: give both the same --storage or \
                 --config as the import"
            )),
            other => {
                let why = with_causes_on_lines(other);
                CommandError::config(format!("{what}: {why}{}", CommandError::choose_app(other)))
            }
        }
    }

    /// The advice after an error that names the applications that exist.
    pub(crate) fn choose_app(error: &sysvvm::Error) -> &'static str {
        match error {
            sysvvm::Error::DoesNotExist { known, .. } if !known.is_empty() => CHOOSE_APP,
            _ => "",
        }
    }

    /// An error of this kind, with the causes of `error`.
    pub(crate) fn because(reason: ExitReason, what: &str, error: &dyn Error) -> CommandError {
        CommandError { reason, message: format!("{what}: {}", with_causes_on_lines(error)) }
    }

    /// The exit code of a process that the killer ended.
    pub const KILLED: u8 = ExitReason::Killed as u8;

    /// A second signal asked to stop at once.
    pub fn at_once(signal: &str) -> CommandError {
        let message = format!("second signal ({signal}) received: the process ends at once");
        CommandError { reason: ExitReason::AtOnce, message }
    }

    /// A node cannot go on.
    pub fn node(problem: &Problem) -> CommandError {
        let reason = match problem {
            Problem::NotBound { .. } => ExitReason::NotBound,
            Problem::Refused(_) => ExitReason::Config,
            Problem::Storage(_) => ExitReason::Unreachable,
            Problem::NotAcquired(_) => ExitReason::NotAcquired,
            Problem::LeadershipLost(_) | Problem::OwnershipLost(_) | Problem::LevelChanged(_) => {
                ExitReason::LeadershipLost
            }
            Problem::SteppedDown => ExitReason::SteppedDown,
            Problem::ServiceEnded { .. } => ExitReason::ServiceEnded,
            Problem::NotEnded(_) | Problem::NotStopped(_) => ExitReason::NotStopped,
        };
        let mut message = with_causes_on_lines(problem);
        if reason == ExitReason::NotBound {
            message +=
                "\n  choose another address: `http.listen` (--listen) or `admin.listen` (--admin)";
        }
        CommandError { reason, message }
    }

    /// Returns the exit code of the program.
    pub fn code(&self) -> u8 {
        self.reason as u8
    }

    /// Adds a text to the end of the message.
    pub(crate) fn followed_by(self, text: &str) -> CommandError {
        CommandError { message: self.message + text, ..self }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns the text of an error, and each of its causes on a line of its own.
pub(crate) fn with_causes_on_lines(error: &dyn Error) -> String {
    base::with_causes_separated_by(error, "\n  because: ")
}
