//! What ends the program, and with which exit code.

use std::{error::Error, fmt, process::ExitCode};

use istorage::ErrorKind;

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

    /// The storage cannot be opened.
    pub(crate) fn storage(what: &str, error: &istorage::Error) -> Failure {
        let kind = match error.kind() {
            ErrorKind::Invalid => Kind::Config,
            _ => Kind::Unreachable,
        };
        Failure { kind, message: format!("{what}: {}", with_causes(error)) }
    }

    /// The system keyspace cannot be opened.
    pub(crate) fn system(what: &str, error: &sysvvm::Error) -> Failure {
        match error {
            sysvvm::Error::Storage(error) => Failure::storage(what, error),
            other => {
                let message = format!("{what}: {}", with_causes(other));
                Failure { kind: Kind::Unreachable, message }
            }
        }
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
