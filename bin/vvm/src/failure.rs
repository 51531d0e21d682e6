//! What ends the program, and with which exit code.

use std::{error::Error, fmt, process::ExitCode};

use istorage::ErrorKind;
use vvm::Problem;

/// What went wrong, in words for the operator.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

/// Each kind is an exit code; none is ever reused. 0 is success, and 2 is also clap's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Failed = 1,
    Usage = 2,
    Config = 3,
    Unreachable = 4,
    /// A port is taken.
    NotBound = 5,
    /// Others lead.
    NotAcquired = 6,
    LeadLost = 7,
    ServiceEnded = 8,
    /// Something did not stop in time or in order.
    NotStopped = 9,
    /// Its work went on after the lead was lost.
    Killed = 10,
    SteppedDown = 11,
    /// A second signal.
    AtOnce = 12,
}

impl Failure {
    /// The machine would not run us.
    pub(crate) fn runtime(error: std::io::Error) -> Failure {
        Failure { kind: Kind::Failed, message: format!("cannot start: {error}") }
    }

    /// The run could not be finished.
    pub(crate) fn unfinished(message: impl Into<String>) -> Failure {
        Failure { kind: Kind::Failed, message: message.into() }
    }

    /// The command line asks for what there is not.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { kind: Kind::Usage, message: message.into() }
    }

    /// The configuration is wrong.
    pub(crate) fn config(message: impl Into<String>) -> Failure {
        Failure { kind: Kind::Config, message: message.into() }
    }

    /// Nobody answers.
    pub(crate) fn unreachable(message: impl Into<String>) -> Failure {
        Failure { kind: Kind::Unreachable, message: message.into() }
    }

    /// The storage cannot be opened.
    pub(crate) fn storage(what: &str, error: &istorage::Error) -> Failure {
        let kind = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Corrupt => Kind::Config,
            _ => Kind::Unreachable,
        };
        Failure { kind, message: format!("{what}: {}", with_causes(error)) }
    }

    /// The system keyspace cannot be opened.
    pub(crate) fn system(what: &str, error: &sysvvm::Error) -> Failure {
        match error {
            sysvvm::Error::Storage(error) => Failure::storage(what, error),
            other => Failure::config(format!("{what}: {}", with_causes(other))),
        }
    }

    /// The exit code of a process that the killer ended.
    pub(crate) const KILLED: u8 = Kind::Killed as u8;

    /// Somebody would not wait for the end.
    pub(crate) fn at_once(signal: &str) -> Failure {
        let message = format!("a second signal, {signal}: stopped at once");
        Failure { kind: Kind::AtOnce, message }
    }

    /// A node does not go on.
    pub(crate) fn node(problem: &Problem) -> Failure {
        let kind = match problem {
            Problem::NotBound { .. } => Kind::NotBound,
            Problem::Refused(_) => Kind::Config,
            Problem::Storage(_) => Kind::Unreachable,
            Problem::NotAcquired(_) => Kind::NotAcquired,
            Problem::LeadLost(_) => Kind::LeadLost,
            Problem::SteppedDown => Kind::SteppedDown,
            Problem::ServiceEnded { .. } => Kind::ServiceEnded,
            Problem::NotEnded(_) | Problem::NotStopped(_) => Kind::NotStopped,
        };
        let mut message = with_causes(problem);
        if kind == Kind::NotBound {
            message +=
                "\n  choose another address: `http.listen` (--listen) or `admin.listen` (--admin)";
        }
        Failure { kind, message }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error and what is below it, but for what repeats the line above.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str("\n  because: ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}
