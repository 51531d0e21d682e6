//! The outcome of a request that failed, and the contract's error for it.
//!
//! The service's error codes decide, never its texts. A request counts as *unknown* unless it
//! certainly did nothing.

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{BoxError, ProvideErrorMetadata, SdkError};
use istorage::{Error, ErrorKind};

/// The service is too busy, or another request works on these rows now.
const REFUSED_FOR_NOW: &[&str] = &[
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "ResourceInUseException",
    "ThrottlingException",
    "TransactionConflictException",
    // Codes of a single row, as the reason to cancel a transaction.
    "ProvisionedThroughputExceeded",
    "ThrottlingError",
    "TransactionConflict",
];

/// The request itself is wrong.
const INVALID: &[&str] = &[
    "ItemCollectionSizeLimitExceededException",
    "SerializationException",
    "ValidationException",
    // Codes of a single row, as the reason to cancel a transaction.
    "DuplicateItem",
    "ItemCollectionSizeLimitExceeded",
    "ValidationError",
];

/// The table does not exist.
const NO_TABLE: &[&str] = &["ResourceNotFoundException", "TableNotFoundException"];

/// Another request with the same token is under way. So the network delivered this request twice,
/// and the other delivery may still be applied.
const TWICE: &str = "TransactionInProgressException";

/// The outcome of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// The request did nothing, and may succeed soon.
    RefusedForNow,
    /// The request did nothing: it was not sent, or the service did not accept its sender.
    NotAccepted,
    /// The request may have been done, or may still be done.
    Unknown,
    /// The request did nothing, and never will.
    Invalid,
    /// The request did nothing, because its table does not exist.
    NoTable,
    /// The request did nothing, because the connection is closed.
    Closed,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    kind: FailureKind,
    message: String,
    source: Option<BoxError>,
}

impl RequestFailure {
    pub(crate) fn new<E>(error: SdkError<E>) -> RequestFailure
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let (kind, message) = match (&error, error.code()) {
            (SdkError::ServiceError(context), Some(code)) => {
                let kind = kind_of_code(code, context.raw().status().is_client_error());
                (kind, format!("DynamoDB answered {code}"))
            }
            _ => {
                let (kind, message) = kind_without_answer(&error);
                (kind, message.to_owned())
            }
        };
        match error.into_source() {
            Ok(source) => RequestFailure { kind, message, source: Some(source) },
            Err(error) => RequestFailure { kind, message, source: Some(error.into()) },
        }
    }

    /// The failure for work that the service left undone for now, in an answer without an error.
    pub(crate) fn unfinished(what: &str) -> RequestFailure {
        let message = format!("DynamoDB is too busy: {what}");
        RequestFailure { kind: FailureKind::RefusedForNow, message, source: None }
    }

    /// The failure of a transaction that was cancelled. The transaction did nothing, because one of
    /// its rows has this reason.
    pub(crate) fn cancelled(reason: &str) -> RequestFailure {
        let message = format!("DynamoDB cancelled a transaction: {reason}");
        RequestFailure { kind: kind_of_code(reason, true), message, source: None }
    }

    /// Whether the request did nothing and may succeed soon.
    pub(crate) fn is_temporary(&self) -> bool {
        self.kind == FailureKind::RefusedForNow
    }

    /// Whether a request that only reads may get an answer if it is sent again.
    pub(crate) fn may_be_retried(&self) -> bool {
        matches!(self.kind, FailureKind::RefusedForNow | FailureKind::Unknown)
    }

    /// Whether the request is wrong.
    pub(crate) fn is_invalid(&self) -> bool {
        self.kind == FailureKind::Invalid
    }

    /// Whether the table does not exist.
    pub(crate) fn is_no_table(&self) -> bool {
        self.kind == FailureKind::NoTable
    }

    /// The same failure of a request that did nothing and may succeed soon.
    pub(crate) fn into_temporary(self) -> RequestFailure {
        RequestFailure { kind: FailureKind::RefusedForNow, ..self }
    }

    /// The error for a call that reads.
    pub(crate) fn into_read_error(self) -> Error {
        self.into_error(ErrorKind::Unavailable)
    }

    /// The error for a call that writes.
    pub(crate) fn into_write_error(self) -> Error {
        self.into_error(ErrorKind::OutcomeUnknown)
    }

    fn into_error(self, unknown: ErrorKind) -> Error {
        let kind = match self.kind {
            FailureKind::RefusedForNow | FailureKind::NotAccepted => ErrorKind::Unavailable,
            FailureKind::Unknown => unknown,
            FailureKind::Invalid => ErrorKind::Invalid,
            // All servers knew the table, so acknowledged rows are lost. No node must go on as if a
            // table that is created again were the same table.
            FailureKind::NoTable => ErrorKind::Corrupt,
            FailureKind::Closed => ErrorKind::Closed,
        };
        let error = Error::new(kind, self.message);
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

fn kind_of_code(code: &str, is_client_error: bool) -> FailureKind {
    match code {
        code if REFUSED_FOR_NOW.contains(&code) => FailureKind::RefusedForNow,
        code if INVALID.contains(&code) => FailureKind::Invalid,
        code if NO_TABLE.contains(&code) => FailureKind::NoTable,
        TWICE => FailureKind::Unknown,
        // Errors of signatures, of permissions, and similar errors.
        _ if is_client_error => FailureKind::NotAccepted,
        _ => FailureKind::Unknown,
    }
}

/// The outcome of a request without an answer of the service. The request was certainly not sent if
/// the client could not make or sign it, or found no connection.
fn kind_without_answer<E: StdError + 'static>(error: &SdkError<E>) -> (FailureKind, &'static str) {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(cause) = next {
        let connecting = cause.downcast_ref::<hyper_util::client::legacy::Error>();
        if connecting.is_some_and(|error| error.is_connect()) {
            return (FailureKind::NotAccepted, "DynamoDB is out of reach; nothing was sent");
        }
        if cause.is::<CredentialsError>() {
            return (
                FailureKind::NotAccepted,
                "there are no credentials for DynamoDB; nothing was sent",
            );
        }
        if cause.downcast_ref().is_some_and(|error: &Error| error.kind() == ErrorKind::Closed) {
            return (FailureKind::Closed, "the connection to DynamoDB is closed");
        }
        next = cause.source();
    }
    match error {
        SdkError::ConstructionFailure(_) => {
            (FailureKind::Invalid, "a request to DynamoDB could not be made")
        }
        _ => (FailureKind::Unknown, "DynamoDB sent no answer, or an answer that cannot be read"),
    }
}

#[cfg(test)]
mod tests;
