//! What became of a request that failed, and the contract's error for it.
//!
//! Judged by the service's error codes, never by texts. What is not known for sure to have done nothing is *unknown*.

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{BoxError, ProvideErrorMetadata, SdkError};
use istorage::{Error, ErrorKind};

/// The service is too busy for it, or somebody else is at these rows right now.
const REFUSED_FOR_NOW: &[&str] = &[
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "ResourceInUseException",
    "ThrottlingException",
    "TransactionConflictException",
    // Of a row, as the reason to cancel a transaction.
    "ProvisionedThroughputExceeded",
    "ThrottlingError",
    "TransactionConflict",
];

/// The request itself is wrong.
const INVALID: &[&str] = &[
    "ItemCollectionSizeLimitExceededException",
    "SerializationException",
    "ValidationException",
    // Of a row, as the reason to cancel a transaction.
    "DuplicateItem",
    "ItemCollectionSizeLimitExceeded",
    "ValidationError",
];

/// There is no such table.
const NO_TABLE: &[&str] = &["ResourceNotFoundException", "TableNotFoundException"];

/// A request with this one's token is under way: so this one was delivered twice, and the other may still be applied.
const TWICE: &str = "TransactionInProgressException";

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It did nothing, and may succeed soon.
    RefusedForNow,
    /// It did nothing: it was not sent, or its sender was not let in.
    Kept,
    /// It may have been done, or may still be.
    Unknown,
    /// It did nothing, and never will.
    Invalid,
    /// It did nothing: its table is not there.
    NoTable,
    /// It did nothing: the connection is closed.
    Closed,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    fate: Fate,
    message: String,
    source: Option<BoxError>,
}

impl Failure {
    pub(crate) fn of<E>(error: SdkError<E>) -> Failure
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let (fate, message) = match (&error, error.code()) {
            (SdkError::ServiceError(context), Some(code)) => {
                let fate = fate_of(code, context.raw().status().is_client_error());
                (fate, format!("DynamoDB answered {code}"))
            }
            _ => {
                let (fate, message) = fate_without_answer(&error);
                (fate, message.to_owned())
            }
        };
        match error.into_source() {
            Ok(source) => Failure { fate, message, source: Some(source) },
            Err(error) => Failure { fate, message, source: Some(error.into()) },
        }
    }

    /// The service left work undone for now, and told so in an answer without an error.
    pub(crate) fn unfinished(what: &str) -> Failure {
        let message = format!("DynamoDB is too busy: {what}");
        Failure { fate: Fate::RefusedForNow, message, source: None }
    }

    /// A transaction was cancelled: it did nothing, because of this reason that one of its rows has.
    pub(crate) fn cancelled(reason: &str) -> Failure {
        let message = format!("DynamoDB cancelled a transaction: {reason}");
        Failure { fate: fate_of(reason, true), message, source: None }
    }

    /// It did nothing and may succeed soon.
    pub(crate) fn is_for_now(&self) -> bool {
        self.fate == Fate::RefusedForNow
    }

    /// Whether a request that only reads may get an answer if it is sent again.
    pub(crate) fn may_be_asked_again(&self) -> bool {
        matches!(self.fate, Fate::RefusedForNow | Fate::Unknown)
    }

    /// The request is wrong.
    pub(crate) fn is_invalid(&self) -> bool {
        self.fate == Fate::Invalid
    }

    /// The table is not there.
    pub(crate) fn is_no_table(&self) -> bool {
        self.fate == Fate::NoTable
    }

    /// The same, if it may succeed soon.
    pub(crate) fn for_now(self) -> Failure {
        Failure { fate: Fate::RefusedForNow, ..self }
    }

    /// For a caller who wanted to know something.
    pub(crate) fn of_read(self) -> Error {
        self.into_error(ErrorKind::Unavailable)
    }

    /// For a caller who wanted to change something.
    pub(crate) fn of_write(self) -> Error {
        self.into_error(ErrorKind::OutcomeUnknown)
    }

    fn into_error(self, unknown: ErrorKind) -> Error {
        let kind = match self.fate {
            Fate::RefusedForNow | Fate::Kept => ErrorKind::Unavailable,
            Fate::Unknown => unknown,
            Fate::Invalid => ErrorKind::Invalid,
            // All servers knew the table: what was acknowledged is lost, so nobody must go on as if a table that is
            // made anew were the same.
            Fate::NoTable => ErrorKind::Corrupt,
            Fate::Closed => ErrorKind::Closed,
        };
        let error = Error::new(kind, self.message);
        match self.source {
            Some(source) => error.because(source),
            None => error,
        }
    }
}

fn fate_of(code: &str, is_client_error: bool) -> Fate {
    match code {
        code if REFUSED_FOR_NOW.contains(&code) => Fate::RefusedForNow,
        code if INVALID.contains(&code) => Fate::Invalid,
        code if NO_TABLE.contains(&code) => Fate::NoTable,
        TWICE => Fate::Unknown,
        // Signatures, permissions and the like.
        _ if is_client_error => Fate::Kept,
        _ => Fate::Unknown,
    }
}

/// Certain not to have left are requests that could not be made or signed, or found no connection.
fn fate_without_answer<E: StdError + 'static>(error: &SdkError<E>) -> (Fate, &'static str) {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(cause) = next {
        let connecting = cause.downcast_ref::<hyper_util::client::legacy::Error>();
        if connecting.is_some_and(|error| error.is_connect()) {
            return (Fate::Kept, "DynamoDB is out of reach; nothing was sent");
        }
        if cause.is::<CredentialsError>() {
            return (Fate::Kept, "there are no credentials for DynamoDB; nothing was sent");
        }
        if cause.downcast_ref().is_some_and(|error: &Error| error.kind() == ErrorKind::Closed) {
            return (Fate::Closed, "the connection to DynamoDB is closed");
        }
        next = cause.source();
    }
    match error {
        SdkError::ConstructionFailure(_) => {
            (Fate::Invalid, "a request to DynamoDB could not be made")
        }
        _ => (Fate::Unknown, "DynamoDB gave no answer that can be understood"),
    }
}

#[cfg(test)]
mod tests;
