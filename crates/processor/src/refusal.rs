//! The reasons why a command was not done.

use std::time::Duration;

use eventlog::Offset;

/// The reason why a command was not done. Each variant tells the sender the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nothing was done. The sender may send the command again later.
    #[error("busy: {0}")]
    Busy(Busy),
    /// The command cannot be done, and nothing was done.
    #[error(transparent)]
    Rejected(Rejection),
    /// The event of the command is in the PLog. The event will be applied when the cause of
    /// the named error is gone.
    #[error("the event of the command is in the log at offset {}, and cannot be applied yet: {why}", .plog.0)]
    NotApplied {
        /// The offset of the event in the PLog.
        plog: Offset,
        /// The error that keeps the event from being applied.
        why: String,
    },
    /// It is not known whether the command was done or will be done. A command with an idempotency
    /// key can be sent again, and is done once.
    #[error("the outcome of the command is unknown: {0}")]
    Unknown(String),
}

/// The queue of a partition that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FullQueue {
    /// The limit of waiting commands is reached.
    #[error("too many commands wait")]
    Commands,
    /// The limit of numbers that wait to be stored is reached: the storage takes them slowly.
    #[error("too many numbers wait to be stored")]
    Numbers,
}

/// The reason why nothing was done now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// The partition takes no more commands now. At the measured rate, the partition does the
    /// commands of a full queue within `retry_after`.
    #[error("{full}")]
    QueueFull {
        /// The queue that is full.
        full: FullQueue,
        /// How long to wait before another try.
        retry_after: Duration,
    },
    /// The partition is recovering. The text is the error that delays the recovery.
    #[error("the partition is recovering{}", with_colon(.0))]
    Recovering(Option<String>),
    /// A row holds something else than it must. An operator must look at the row.
    #[error("the partition is blocked by a violation: {0}")]
    Violation(String),
    /// Another node leads.
    #[error("this node does not lead any more: {0}")]
    LeadershipLost(String),
    /// The partition has ended. It must be deployed again under a new leadership.
    #[error("the partition has failed, and must be deployed under a new leadership: {0}")]
    Failed(String),
    /// The partition is being stopped.
    #[error("the partition is stopping")]
    Stopping,
    /// The deadline came before the turn of the command, or the handler took too long.
    #[error("the command was not done before its deadline")]
    TimedOut,
    /// The commands of the sender wrote too much, compared with what they carry: see
    /// [`WriteAllowance`](crate::WriteAllowance).
    #[error(
        "commands of this sender changed large records, or thousands of records at once, and so \
         wrote much more than they carried: the next one may run in {} s. Put a large text into a \
         record of its own",
        .0.as_secs_f64().ceil()
    )]
    WroteTooMuch(Duration),
    /// A storage error, or the log has an event, or a row names one, that this node has not
    /// replayed.
    #[error("{0}")]
    Storage(String),
}

fn with_colon(error: &Option<String>) -> String {
    error.as_ref().map_or_else(String::new, |error| format!(": {error}"))
}

/// A mistake in a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// The kind of the mistake.
    pub kind: RejectionKind,
    /// The description of the mistake.
    pub message: String,
}

/// The kind of a mistake in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectionKind {
    /// The command makes no sense.
    Invalid,
    /// The workspace, the row or the command does not exist.
    NotFound,
    /// A row is not, or is no longer, in the state that the command expects.
    Conflict,
    /// The command breaks a rule of a table.
    Rule,
    /// A gapless series or a sequence has no number for the command, for example because its
    /// counter is full or its range is used up.
    NoNumber,
    /// An earlier command with the same idempotency key had another body.
    KeyReused,
    /// The command writes too much.
    TooLarge,
    /// The result of the command is larger than
    /// [`Command::most_result_bytes`](crate::Command::most_result_bytes) allows.
    ResultTooLarge,
    /// The command is not wrong: its handler failed, or a stored row cannot be read.
    Internal,
}

impl Rejection {
    /// Creates a rejection of this kind.
    pub fn new(kind: RejectionKind, message: impl Into<String>) -> Rejection {
        Rejection { kind, message: message.into() }
    }

    /// Creates a rejection of the kind [`RejectionKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Rejection {
        Rejection::new(RejectionKind::Invalid, message)
    }

    /// Creates a rejection of the kind [`RejectionKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Rejection {
        Rejection::new(RejectionKind::NotFound, message)
    }

    /// Creates a rejection of the kind [`RejectionKind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Rejection {
        Rejection::new(RejectionKind::Conflict, message)
    }
}

/// The reason why a handler does not do a command.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The command cannot be done.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// A row that the command needs cannot be read.
    #[error(transparent)]
    Storage(#[from] eventlog::Error),
}
