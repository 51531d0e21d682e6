//! What the client's errors mean to the caller.
//!
//! The rule for writes: only what certainly did not happen is called so; everything else is an unknown outcome.

use std::error::Error as StdError;

use istorage::{Error, ErrorKind};
use scylla::{
    errors::{
        ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
        ExecutionError, MetadataError, NewSessionError, PrepareError, RequestAttemptError,
    },
    statement::Consistency,
};

/// A request that failed, as far as it matters for what its failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Doing it again does no harm: a prepared statement, a look at the schema, a change of the schema.
    Repeatable,
    /// A read of rows. Doing it again does no harm either.
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

    /// The answer does not have the columns that were asked for.
    pub(crate) fn strange_answer(self, source: impl StdError + Send + Sync + 'static) -> Error {
        let kind = match self {
            Request::Repeatable | Request::Read => ErrorKind::Corrupt,
            Request::Plain | Request::Conditional => ErrorKind::OutcomeUnknown,
        };
        Error::new(kind, "Cassandra's answer is not what was asked for").because(source)
    }

    fn kind(self, error: &ExecutionError) -> ErrorKind {
        match error {
            ExecutionError::BadQuery(_) => ErrorKind::Invalid,
            // No node could be reached, so nothing was sent.
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
            // Not sent; or sent and refused as not prepared, and then not sent again.
            RequestAttemptError::UnableToAllocStreamId
            | RequestAttemptError::RepreparedIdChanged { .. }
            | RequestAttemptError::RepreparedIdMissingInBatch => ErrorKind::Unavailable,
            RequestAttemptError::DbError(error, message) if self.is_for_now(error, message) => {
                ErrorKind::Unavailable
            }
            RequestAttemptError::DbError(error, _) => self.kind_of_refusal(error),
            // A broken connection among them: the request may have been read before it broke.
            _ => self.unanswered(),
        }
    }

    /// Whether a server refuses what it will do soon, or what another server does: it does not know the table yet, as
    /// while it joins, or it has not heard of a permission yet. Nothing was done.
    ///
    /// Who may read or write rows is known once a storage is open, so a missing permission is news only there.
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
            // Cassandra's first version of Paxos counts the live replicas once more when it commits, by the other
            // consistency; by then the write is decided.
            DbError::Unavailable {
                consistency: Consistency::Serial | Consistency::LocalSerial,
                ..
            } => ErrorKind::Unavailable,
            // A commit can also run into the limit of hints, which is reported as overload.
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

/// Whether another server may do what this one did not. A timeout that a server reports is none of these: the server
/// waited for others.
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

/// Whether a server waited for others in vain. It answers, and may yet be the one that others cannot reach.
pub(crate) fn is_of_its_peers(error: &ExecutionError) -> bool {
    use DbError::{ReadTimeout, WriteTimeout};
    let ExecutionError::LastAttemptError(error) = error else { return false };
    matches!(error, RequestAttemptError::DbError(ReadTimeout { .. } | WriteTimeout { .. }, _))
}

/// Cassandra has no code of its own for this.
fn is_of_unknown_table(error: &DbError, message: &str) -> bool {
    const TEXTS: [&str; 3] = ["does not exist", "doesn't exist", "unconfigured table"];
    *error == DbError::Invalid && TEXTS.iter().any(|text| message.contains(text))
}

/// A statement could not be prepared.
pub(crate) fn not_prepared(error: PrepareError) -> Error {
    Request::Repeatable.failed(ExecutionError::PrepareError(error))
}

/// The session could not be made.
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

    /// Each error with what it means for a read, for a plain write and for a conditional one.
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
            // Certainly not done, unless it comes from the commit of a conditional write.
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
    fn only_what_certainly_did_not_happen_is_called_so() {
        for (error, [repeatable, plain, conditional]) in meanings() {
            let kind = |request: Request| request.failed(error.clone()).kind();
            assert_eq!(kind(Request::Repeatable), repeatable, "{error:?}");
            assert_eq!(kind(Request::Read), repeatable, "{error:?}");
            assert_eq!(kind(Request::Plain), plain, "{error:?}");
            assert_eq!(kind(Request::Conditional), conditional, "{error:?}");
        }
    }

    /// One of three servers was restarted and joined again. It did not know the table for a moment, and its refusal ended a
    /// lead that had most of its time left.
    #[test]
    fn a_refusal_that_another_server_may_not_give_is_worth_another_try() {
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
        // To an operator who opens a storage it is news.
        assert_eq!(repeatable.failed(unauthorized).kind(), ErrorKind::Invalid);
    }

    #[test]
    fn only_what_the_server_itself_is_to_blame_for_is_held_against_it() {
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
    fn the_cause_is_kept() {
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
