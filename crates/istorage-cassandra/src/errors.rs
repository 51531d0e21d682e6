//! The meaning of the client's errors for the caller.
//!
//! The rule for writes: a write counts as not done only if it certainly did not happen. Every other
//! failed write has an unknown outcome.

use std::error::Error as StdError;

use istorage::{Error, ErrorKind};
use scylla::{
    errors::{
        ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
        ExecutionError, MetadataError, NewSessionError, PrepareError, RequestAttemptError,
    },
    statement::Consistency,
};

/// The kind of a failed request, which decides what the failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A request that may be repeated without harm: preparing a statement, reading the schema, or
    /// changing the schema.
    Repeatable,
    /// A read of rows, which may also be repeated without harm.
    Read,
    /// A plain or an ordered write.
    Plain,
    /// A conditional write.
    Conditional,
}

impl RequestKind {
    pub(crate) fn failed(self, error: ExecutionError) -> Error {
        let kind = self.kind(&error);
        let message = match kind {
            ErrorKind::Invalid => "Cassandra refused a request",
            ErrorKind::OutcomeUnknown => "Cassandra gave no definite answer to a write",
            _ => "Cassandra could not serve a request",
        };
        Error::new(kind, message).with_source(error)
    }

    /// The error for an answer that does not have the columns of the request.
    pub(crate) fn unexpected_answer(self, source: impl StdError + Send + Sync + 'static) -> Error {
        let kind = match self {
            RequestKind::Repeatable | RequestKind::Read => ErrorKind::Corrupt,
            RequestKind::Plain | RequestKind::Conditional => ErrorKind::OutcomeUnknown,
        };
        Error::new(kind, "Cassandra sent an answer that does not fit the request")
            .with_source(source)
    }

    fn kind(self, error: &ExecutionError) -> ErrorKind {
        match error {
            ExecutionError::BadQuery(_) => ErrorKind::Invalid,
            // The client could reach no server, so the client sent nothing.
            ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => {
                ErrorKind::Unavailable
            }
            ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt })
            | ExecutionError::LastAttemptError(first_attempt) => {
                self.kind_of_attempt(first_attempt)
            }
            _ => self.kind_without_answer(),
        }
    }

    fn kind_of_attempt(self, error: &RequestAttemptError) -> ErrorKind {
        match error {
            RequestAttemptError::SerializationError(_)
            | RequestAttemptError::CqlRequestSerialization(_) => ErrorKind::Invalid,
            // The client did not send the request; or the server refused the request as not
            // prepared, and the client did not send it again.
            RequestAttemptError::UnableToAllocStreamId
            | RequestAttemptError::RepreparedIdChanged { .. }
            | RequestAttemptError::RepreparedIdMissingInBatch => ErrorKind::Unavailable,
            RequestAttemptError::DbError(error, message) if self.is_temporary(error, message) => {
                ErrorKind::Unavailable
            }
            RequestAttemptError::DbError(error, _) => self.kind_of_db_error(error),
            // The other errors include a broken connection: the server may have read the request
            // before the connection broke.
            _ => self.kind_without_answer(),
        }
    }

    /// Whether a server refuses a request that it will soon serve, or that another server serves.
    /// The server does not know the table yet, for example while it joins the cluster, or it has
    /// not heard of a permission yet. Nothing was done.
    ///
    /// The permissions for rows are known once a storage is open. So a missing permission may pass
    /// only for requests about rows, not for `RequestKind::Repeatable`.
    fn is_temporary(self, error: &DbError, message: &str) -> bool {
        is_unknown_table(error, message)
            || (*error == DbError::Unauthorized && self != RequestKind::Repeatable)
    }

    fn kind_of_db_error(self, error: &DbError) -> ErrorKind {
        match error {
            DbError::SyntaxError
            | DbError::Invalid
            | DbError::Unauthorized
            | DbError::AuthenticationError
            | DbError::ConfigError
            | DbError::AlreadyExists { .. } => ErrorKind::Invalid,
            DbError::IsBootstrapping | DbError::Unprepared { .. } => ErrorKind::Unavailable,
            // Before the decision, Cassandra counts the live replicas by the serial consistency.
            // Cassandra's first version of Paxos counts them again when it commits, by the other
            // consistency. By then the write is already decided.
            DbError::Unavailable {
                consistency: Consistency::Serial | Consistency::LocalSerial,
                ..
            } => ErrorKind::Unavailable,
            // A commit can also reach the limit of hints, and Cassandra reports that as overload.
            DbError::Unavailable { .. }
            | DbError::Overloaded
            | DbError::RateLimitReached { rejected_by_coordinator: true, .. }
                if self != RequestKind::Conditional =>
            {
                ErrorKind::Unavailable
            }
            _ => self.kind_without_answer(),
        }
    }

    fn kind_without_answer(self) -> ErrorKind {
        match self {
            RequestKind::Repeatable | RequestKind::Read => ErrorKind::Unavailable,
            RequestKind::Plain | RequestKind::Conditional => ErrorKind::OutcomeUnknown,
        }
    }
}

/// Whether another server may serve a request that this server did not serve. A timeout that a
/// server reports is not such an error, because the server waited for other servers.
pub(crate) fn is_fault_of_server(error: &ExecutionError) -> bool {
    let ExecutionError::LastAttemptError(error) = error else { return false };
    match error {
        RequestAttemptError::BrokenConnectionError(_) => true,
        RequestAttemptError::DbError(error, message) => {
            is_unknown_table(error, message)
                || matches!(
                    error,
                    DbError::IsBootstrapping
                        | DbError::Overloaded
                        | DbError::Unauthorized
                        | DbError::Unavailable { .. }
                )
        }
        _ => false,
    }
}

/// Whether a server waited for other servers in vain. Such a server answers, but may be the one
/// that the other servers cannot reach.
pub(crate) fn is_timeout_of_peers(error: &ExecutionError) -> bool {
    use DbError::{ReadTimeout, WriteTimeout};
    let ExecutionError::LastAttemptError(error) = error else { return false };
    matches!(error, RequestAttemptError::DbError(ReadTimeout { .. } | WriteTimeout { .. }, _))
}

/// Whether the server does not know the table. Cassandra has no error code for an unknown table, so
/// the text of the message decides.
fn is_unknown_table(error: &DbError, message: &str) -> bool {
    const TEXTS: [&str; 3] = ["does not exist", "doesn't exist", "unconfigured table"];
    *error == DbError::Invalid && TEXTS.iter().any(|text| message.contains(text))
}

/// The error for a statement that could not be prepared.
pub(crate) fn not_prepared(error: PrepareError) -> Error {
    RequestKind::Repeatable.failed(ExecutionError::PrepareError(error))
}

/// The error for a session that could not be set up.
pub(crate) fn not_connected(error: NewSessionError) -> Error {
    if is_wrong_login(&error) {
        return Error::invalid("Cassandra refuses the user name or the password")
            .with_source(error);
    }
    Error::unavailable("no contact point of the Cassandra cluster can be used").with_source(error)
}

fn is_wrong_login(error: &NewSessionError) -> bool {
    let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
        ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(error),
        },
    )) = error
    else {
        return false;
    };
    is_refusal_of_login(error.get_error())
}

/// Whether a server refuses the user or the password, and will go on refusing them. A server that
/// cannot read the stored passwords answers with the same error code, so only the text of the error
/// tells that waiting may help.
fn is_refusal_of_login(error: &ConnectionSetupRequestErrorKind) -> bool {
    match error {
        ConnectionSetupRequestErrorKind::MissingAuthentication
        | ConnectionSetupRequestErrorKind::DbError(DbError::Unauthorized, _) => true,
        ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, text) => {
            !text.contains("Unable to perform authentication")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
