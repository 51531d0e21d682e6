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

/// The kind of a request that failed, as far as the kind decides about the meaning of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
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

impl Request {
    pub(crate) fn failed(self, error: ExecutionError) -> Error {
        let kind = self.kind(&error);
        let message = match kind {
            ErrorKind::Invalid => "Cassandra refused a request",
            ErrorKind::OutcomeUnknown => "Cassandra gave no definite answer to a write",
            _ => "Cassandra could not serve a request",
        };
        Error::new(kind, message).because(error)
    }

    /// The error for an answer that does not have the columns of the request.
    pub(crate) fn strange_answer(self, source: impl StdError + Send + Sync + 'static) -> Error {
        let kind = match self {
            Request::Repeatable | Request::Read => ErrorKind::Corrupt,
            Request::Plain | Request::Conditional => ErrorKind::OutcomeUnknown,
        };
        Error::new(kind, "Cassandra sent an answer that does not fit the request").because(source)
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
            _ => self.unanswered(),
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
            RequestAttemptError::DbError(error, message) if self.is_for_now(error, message) => {
                ErrorKind::Unavailable
            }
            RequestAttemptError::DbError(error, _) => self.kind_of_refusal(error),
            // The other errors include a broken connection: the server may have read the request
            // before the connection broke.
            _ => self.unanswered(),
        }
    }

    /// Whether a server refuses a request that it will soon serve, or that another server serves.
    /// The server does not know the table yet, for example while it joins the cluster, or it has
    /// not heard of a permission yet. Nothing was done.
    ///
    /// The permissions for rows are known once a storage is open. So a missing permission may pass
    /// only for requests about rows, not for `Request::Repeatable`.
    fn is_for_now(self, error: &DbError, message: &str) -> bool {
        is_of_unknown_table(error, message)
            || (*error == DbError::Unauthorized && self != Request::Repeatable)
    }

    fn kind_of_refusal(self, error: &DbError) -> ErrorKind {
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
            // consistency. At that time the write is already decided.
            DbError::Unavailable {
                consistency: Consistency::Serial | Consistency::LocalSerial,
                ..
            } => ErrorKind::Unavailable,
            // A commit can also reach the limit of hints, and Cassandra reports that as overload.
            DbError::Unavailable { .. }
            | DbError::Overloaded
            | DbError::RateLimitReached { rejected_by_coordinator: true, .. }
                if self != Request::Conditional =>
            {
                ErrorKind::Unavailable
            }
            _ => self.unanswered(),
        }
    }

    fn unanswered(self) -> ErrorKind {
        match self {
            Request::Repeatable | Request::Read => ErrorKind::Unavailable,
            Request::Plain | Request::Conditional => ErrorKind::OutcomeUnknown,
        }
    }
}

/// Whether another server may serve a request that this server did not serve. A timeout that a
/// server reports is no such error, because the server waited for other servers.
pub(crate) fn is_of_this_server(error: &ExecutionError) -> bool {
    let ExecutionError::LastAttemptError(error) = error else { return false };
    match error {
        RequestAttemptError::BrokenConnectionError(_) => true,
        RequestAttemptError::DbError(error, message) => {
            is_of_unknown_table(error, message)
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
pub(crate) fn is_of_its_peers(error: &ExecutionError) -> bool {
    use DbError::{ReadTimeout, WriteTimeout};
    let ExecutionError::LastAttemptError(error) = error else { return false };
    matches!(error, RequestAttemptError::DbError(ReadTimeout { .. } | WriteTimeout { .. }, _))
}

/// Whether the server does not know the table. Cassandra has no error code for an unknown table, so
/// the text of the message decides.
fn is_of_unknown_table(error: &DbError, message: &str) -> bool {
    const TEXTS: [&str; 3] = ["does not exist", "doesn't exist", "unconfigured table"];
    *error == DbError::Invalid && TEXTS.iter().any(|text| message.contains(text))
}

/// The error for a statement that could not be prepared.
pub(crate) fn not_prepared(error: PrepareError) -> Error {
    Request::Repeatable.failed(ExecutionError::PrepareError(error))
}

/// The error for a session that could not be set up.
pub(crate) fn not_connected(error: NewSessionError) -> Error {
    if is_wrong_login(&error) {
        return Error::invalid("Cassandra refuses the user name or the password").because(error);
    }
    Error::unavailable("no contact point of the Cassandra cluster can be used").because(error)
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
    matches!(
        error.get_error(),
        ConnectionSetupRequestErrorKind::MissingAuthentication
            | ConnectionSetupRequestErrorKind::DbError(
                DbError::AuthenticationError | DbError::Unauthorized,
                _
            )
    )
}

#[cfg(test)]
mod tests {
    use scylla::errors::{BrokenConnectionErrorKind, WriteType};

    use super::*;

    fn attempt(error: RequestAttemptError) -> ExecutionError {
        ExecutionError::LastAttemptError(error)
    }

    fn refused(error: DbError) -> ExecutionError {
        attempt(RequestAttemptError::DbError(error, "why".to_owned()))
    }

    fn unavailable(consistency: Consistency) -> ExecutionError {
        refused(DbError::Unavailable { consistency, required: 2, alive: 1 })
    }

    fn write_timeout(write_type: WriteType) -> ExecutionError {
        refused(DbError::WriteTimeout {
            consistency: Consistency::Quorum,
            received: 1,
            required: 2,
            write_type,
        })
    }

    /// Each error with its meaning for a read, for a plain write and for a conditional write.
    fn meanings() -> Vec<(ExecutionError, [ErrorKind; 3])> {
        use ErrorKind::{Invalid, OutcomeUnknown, Unavailable};
        let broken = || {
            attempt(RequestAttemptError::BrokenConnectionError(
                BrokenConnectionErrorKind::ChannelError.into(),
            ))
        };
        let limited = |rejected_by_coordinator| {
            let op_type = scylla::errors::OperationType::Write;
            refused(DbError::RateLimitReached { op_type, rejected_by_coordinator })
        };
        let read_timeout = DbError::ReadTimeout {
            consistency: Consistency::Serial,
            received: 1,
            required: 2,
            data_present: true,
        };
        let write_failure = DbError::WriteFailure {
            consistency: Consistency::Serial,
            received: 1,
            required: 2,
            numfailures: 1,
            write_type: WriteType::Cas,
        };
        const CAS_WRITE_UNKNOWN: i32 = 0x1700;
        vec![
            // Certainly not done.
            (ExecutionError::EmptyPlan, [Unavailable; 3]),
            (
                ExecutionError::ConnectionPoolError(ConnectionPoolError::Initializing),
                [Unavailable; 3],
            ),
            (attempt(RequestAttemptError::UnableToAllocStreamId), [Unavailable; 3]),
            (attempt(RequestAttemptError::RepreparedIdMissingInBatch), [Unavailable; 3]),
            (refused(DbError::IsBootstrapping), [Unavailable; 3]),
            (unavailable(Consistency::Serial), [Unavailable; 3]),
            (unavailable(Consistency::LocalSerial), [Unavailable; 3]),
            (refused(DbError::SyntaxError), [Invalid; 3]),
            (refused(DbError::Invalid), [Invalid; 3]),
            // Certainly not done, unless the error comes from the commit of a conditional write.
            (unavailable(Consistency::Quorum), [Unavailable, Unavailable, OutcomeUnknown]),
            (refused(DbError::Overloaded), [Unavailable, Unavailable, OutcomeUnknown]),
            (limited(true), [Unavailable, Unavailable, OutcomeUnknown]),
            // Perhaps done.
            (limited(false), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (write_timeout(WriteType::Simple), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (
                write_timeout(WriteType::UnloggedBatch),
                [Unavailable, OutcomeUnknown, OutcomeUnknown],
            ),
            (write_timeout(WriteType::Cas), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (refused(write_failure), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (refused(read_timeout), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (
                refused(DbError::Other(CAS_WRITE_UNKNOWN)),
                [Unavailable, OutcomeUnknown, OutcomeUnknown],
            ),
            (refused(DbError::ServerError), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (refused(DbError::ProtocolError), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (refused(DbError::TruncateError), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (broken(), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
            (
                attempt(RequestAttemptError::NonfinishedPagingState),
                [Unavailable, OutcomeUnknown, OutcomeUnknown],
            ),
            (
                ExecutionError::RequestTimeout(std::time::Duration::ZERO),
                [Unavailable, OutcomeUnknown, OutcomeUnknown],
            ),
        ]
    }

    #[test]
    fn only_a_request_that_certainly_did_nothing_is_reported_as_not_done() {
        for (error, [repeatable, plain, conditional]) in meanings() {
            let kind = |request: Request| request.failed(error.clone()).kind();
            assert_eq!(kind(Request::Repeatable), repeatable, "{error:?}");
            assert_eq!(kind(Request::Read), repeatable, "{error:?}");
            assert_eq!(kind(Request::Plain), plain, "{error:?}");
            assert_eq!(kind(Request::Conditional), conditional, "{error:?}");
        }
    }

    /// One of three servers was restarted and joined the cluster again. For a moment the server did
    /// not know the table. Its refusal ended a leadership that had most of its time left.
    #[test]
    fn a_refusal_that_other_servers_may_not_share_is_unavailable() {
        let [repeatable, read] = [Request::Repeatable, Request::Read];
        let rows = [read, Request::Plain, Request::Conditional];
        for text in [
            "table values does not exist",
            "keyspace sys does not exist",
            "Keyspace 'sys' doesn't exist",
            "unconfigured table values",
        ] {
            let error = attempt(RequestAttemptError::DbError(DbError::Invalid, text.to_owned()));
            assert!(is_of_this_server(&error));
            for request in rows.into_iter().chain([repeatable]) {
                assert_eq!(request.failed(error.clone()).kind(), ErrorKind::Unavailable, "{text}");
            }
        }
        let unauthorized = refused(DbError::Unauthorized);
        assert!(is_of_this_server(&unauthorized));
        for request in rows {
            assert_eq!(request.failed(unauthorized.clone()).kind(), ErrorKind::Unavailable);
        }
        // The operator that opens a storage must learn that the permission is missing.
        assert_eq!(repeatable.failed(unauthorized).kind(), ErrorKind::Invalid);
    }

    #[test]
    fn only_a_fault_of_the_server_itself_makes_it_a_suspect() {
        let broken = BrokenConnectionErrorKind::ChannelError.into();
        assert!(is_of_this_server(&attempt(RequestAttemptError::BrokenConnectionError(broken))));
        for error in [
            refused(DbError::IsBootstrapping),
            refused(DbError::Overloaded),
            unavailable(Consistency::Serial),
        ] {
            assert!(is_of_this_server(&error), "{error:?}");
        }
        for error in [
            write_timeout(WriteType::Cas),
            refused(DbError::Invalid),
            refused(DbError::ServerError),
            ExecutionError::EmptyPlan,
        ] {
            assert!(!is_of_this_server(&error), "{error:?}");
        }
    }

    #[test]
    fn an_error_keeps_its_cause() {
        let error = Request::Plain.failed(refused(DbError::ServerError));
        assert!(StdError::source(&error).unwrap().to_string().contains("why"));
    }

    #[test]
    fn a_prepared_statement_fails_as_its_first_attempt_did() {
        let first_attempt = RequestAttemptError::DbError(DbError::Invalid, String::new());
        let error = not_prepared(PrepareError::AllAttemptsFailed { first_attempt });
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let unreached = PrepareError::ConnectionPoolError(ConnectionPoolError::Initializing);
        assert_eq!(not_prepared(unreached).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn a_cluster_that_cannot_be_reached_is_unavailable() {
        let nowhere = NewSessionError::FailedToResolveAnyHostname(vec!["nowhere".to_owned()]);
        assert_eq!(not_connected(nowhere).kind(), ErrorKind::Unavailable);
    }
}
