use istorage::{
    AppStorageExt, Consistency, Error,
    ErrorKind::{self, Corrupt, Invalid, OutcomeUnknown, Unavailable},
    Key,
};

use crate::tests::{ScriptedDynamoDb, ScriptedReply, refused};

/// The kinds of error of a read and of a write, if the service gives this reply to every attempt.
async fn kinds(reply: ScriptedReply) -> (ErrorKind, ErrorKind) {
    let service = ScriptedDynamoDb::new(vec![reply; 100]);
    let (storage, key) = (service.storage(), Key::new("p", "c"));
    let read = storage.get(&key, Consistency::Plain, service.soon());
    let read = service.patiently(read).await.unwrap_err();
    let write = storage.insert_if_not_exists(key.clone(), "v".into(), None, service.soon());
    let write = service.patiently(write).await.unwrap_err();
    (read.kind(), write.kind())
}

#[tokio::test]
async fn errors_are_judged_by_their_code() {
    for (code, read, write) in [
        ("ProvisionedThroughputExceededException", Unavailable, Unavailable),
        ("ThrottlingException", Unavailable, Unavailable),
        ("TransactionConflictException", Unavailable, Unavailable),
        ("AccessDeniedException", Unavailable, Unavailable),
        ("ExpiredTokenException", Unavailable, Unavailable),
        ("UnrecognizedClientException", Unavailable, Unavailable),
        ("ValidationException", Invalid, Invalid),
        ("ItemCollectionSizeLimitExceededException", Invalid, Invalid),
        ("ResourceNotFoundException", Corrupt, Corrupt),
        ("TransactionInProgressException", Unavailable, OutcomeUnknown),
    ] {
        assert_eq!(kinds(refused(code)).await, (read, write), "{code}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_definite_leaves_the_outcome_unknown() {
    let raw = |status, body: &str| ScriptedReply::Raw(status, body.to_owned());
    for reply in [
        raw(500, r#"{"__type":"InternalServerError"}"#),
        raw(503, r#"{"__type":"SomethingNew"}"#),
        raw(502, "<html>bad gateway</html>"),
        raw(400, "no code"),
        raw(400, "{}"),
        raw(200, "{"),
        ScriptedReply::Lost,
        ScriptedReply::Never,
    ] {
        assert_eq!(kinds(reply.clone()).await, (Unavailable, OutcomeUnknown), "{reply:?}");
    }
}

#[tokio::test]
async fn an_error_keeps_its_cause() {
    let service = ScriptedDynamoDb::new([refused("AccessDeniedException")]);
    let (storage, key) = (service.storage(), Key::new("p", "c"));
    let read = storage.get(&key, Consistency::Plain, service.soon());
    let error = service.patiently(read).await;
    let error: Error = error.unwrap_err();
    assert!(error.to_string().contains("AccessDeniedException"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}
