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
        (ExecutionError::ConnectionPoolError(ConnectionPoolError::Initializing), [Unavailable; 3]),
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
        (write_timeout(WriteType::UnloggedBatch), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
        (write_timeout(WriteType::Cas), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
        (refused(write_failure), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
        (refused(read_timeout), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
        (refused(DbError::Other(CAS_WRITE_UNKNOWN)), [Unavailable, OutcomeUnknown, OutcomeUnknown]),
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
        let kind = |request: RequestKind| request.failed(error.clone()).kind();
        assert_eq!(kind(RequestKind::Repeatable), repeatable, "{error:?}");
        assert_eq!(kind(RequestKind::Read), repeatable, "{error:?}");
        assert_eq!(kind(RequestKind::Plain), plain, "{error:?}");
        assert_eq!(kind(RequestKind::Conditional), conditional, "{error:?}");
    }
}

/// One of three servers was restarted and joined the cluster again. For a moment the server did
/// not know the table. Its refusal ended a leadership that had most of its time left.
#[test]
fn a_refusal_that_other_servers_may_not_share_is_unavailable() {
    let [repeatable, read] = [RequestKind::Repeatable, RequestKind::Read];
    let rows = [read, RequestKind::Plain, RequestKind::Conditional];
    for text in [
        "table values does not exist",
        "keyspace sys does not exist",
        "Keyspace 'sys' doesn't exist",
        "unconfigured table values",
    ] {
        let error = attempt(RequestAttemptError::DbError(DbError::Invalid, text.to_owned()));
        assert!(is_fault_of_server(&error));
        for request in rows.into_iter().chain([repeatable]) {
            assert_eq!(request.failed(error.clone()).kind(), ErrorKind::Unavailable, "{text}");
        }
    }
    let unauthorized = refused(DbError::Unauthorized);
    assert!(is_fault_of_server(&unauthorized));
    for request in rows {
        assert_eq!(request.failed(unauthorized.clone()).kind(), ErrorKind::Unavailable);
    }
    // The operator that opens a storage must learn that the permission is missing.
    assert_eq!(repeatable.failed(unauthorized).kind(), ErrorKind::Invalid);
}

#[test]
fn only_a_fault_of_the_server_itself_makes_it_a_suspect() {
    let broken = BrokenConnectionErrorKind::ChannelError.into();
    assert!(is_fault_of_server(&attempt(RequestAttemptError::BrokenConnectionError(broken))));
    for error in [
        refused(DbError::IsBootstrapping),
        refused(DbError::Overloaded),
        unavailable(Consistency::Serial),
    ] {
        assert!(is_fault_of_server(&error), "{error:?}");
    }
    for error in [
        write_timeout(WriteType::Cas),
        refused(DbError::Invalid),
        refused(DbError::ServerError),
        ExecutionError::EmptyPlan,
    ] {
        assert!(!is_fault_of_server(&error), "{error:?}");
    }
}

#[test]
fn an_error_keeps_its_cause() {
    let error = RequestKind::Plain.failed(refused(DbError::ServerError));
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

/// A node was started while the servers with the passwords were down. Cassandra reports that as a
/// wrong password, and the node ended and told its operator to correct the configuration.
#[test]
fn a_server_that_cannot_read_the_passwords_does_not_refuse_the_login() {
    let refused = |text: &str| {
        let error = DbError::AuthenticationError;
        is_refusal_of_login(&ConnectionSetupRequestErrorKind::DbError(error, text.to_owned()))
    };
    assert!(refused("Provided username vvm and/or password are incorrect"));
    assert!(!refused("Unable to perform authentication: Cannot achieve consistency level QUORUM"));
    assert!(is_refusal_of_login(&ConnectionSetupRequestErrorKind::MissingAuthentication));
}
