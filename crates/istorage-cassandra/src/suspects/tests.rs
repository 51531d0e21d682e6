use std::future::{pending, ready};

use clock::ManualClock;
use scylla::{
    errors::{BrokenConnectionErrorKind, DbError, RequestAttemptError, WriteType},
    statement::Consistency,
};

use super::*;

fn server(number: u8) -> SocketAddr {
    ([127, 0, 0, number], 9042).into()
}

async fn sent_to(server: SocketAddr) -> Result<(), ExecutionError> {
    record_server(server);
    pending().await
}

/// A server stood still, and every renewal of a lease went to that server again. The caller
/// dropped each request at its deadline, and the driver did not notice.
#[tokio::test]
async fn a_server_without_an_answer_at_the_deadline_is_avoided_for_a_while() {
    let manual = ManualClock::new(1);
    let clock = manual.clock();
    let suspects = Suspects::new(clock.clone());
    let deadline = clock.now() + Duration::from_millis(200);
    let late = clock.timeout_at(deadline, suspects.watch(deadline, sent_to(server(1))));
    let (late, ()) = futures::join!(late, async { manual.advance(Duration::from_millis(200)) });
    assert!(late.is_err());
    assert_eq!(suspects.since(server(1)), Some(clock.now()));
    assert_eq!(suspects.since(server(2)), None);
    manual.advance(AVOIDED_FOR);
    assert_eq!(suspects.since(server(1)), None);
}

/// Conditional writes delayed each other. Some clients then left the server that coordinated these
/// writes, other clients stayed, and even more writes were late. On three servers under load no
/// lease could be renewed.
#[tokio::test]
async fn a_server_that_answers_other_requests_meanwhile_is_not_avoided() {
    let manual = ManualClock::new(1);
    let clock = manual.clock();
    let suspects = Suspects::new(clock.clone());
    let deadline = clock.now() + Duration::from_millis(200);
    let late = clock.timeout_at(deadline, suspects.watch(deadline, sent_to(server(1))));
    let other = async {
        manual.advance(Duration::from_millis(100));
        let answered = async {
            record_server(server(1));
            Ok(())
        };
        suspects.watch(deadline, answered).await.unwrap();
        manual.advance(Duration::from_millis(100));
    };
    let (late, ()) = futures::join!(late, other);
    assert!(late.is_err());
    assert_eq!(suspects.since(server(1)), None);
}

/// Sends a request to these servers, one after another. The request has no answer one second
/// later. Meanwhile the same server or another one may answer another request.
async fn late(
    manual: &ManualClock,
    suspects: &Suspects,
    asked: &[u8],
    meanwhile: Option<(u8, Result<(), ExecutionError>)>,
) {
    let deadline = suspects.clock.now() + Duration::from_secs(1);
    let request = async {
        asked.iter().for_each(|number| record_server(server(*number)));
        pending::<Result<(), ExecutionError>>().await
    };
    let late = suspects.clock.timeout_at(deadline, suspects.watch(deadline, request));
    let others = async {
        manual.advance(Duration::from_millis(500));
        if let Some((number, answer)) = meanwhile {
            let answered = async {
                record_server(server(number));
                answer
            };
            let _ = suspects.watch(deadline, answered).await;
        }
        manual.advance(Duration::from_millis(500));
    };
    let (late, ()) = futures::join!(late, others);
    assert!(late.is_err());
}

fn new() -> (ManualClock, Suspects) {
    let manual = ManualClock::new(1);
    let suspects = Suspects::new(manual.clock());
    (manual, suspects)
}

#[tokio::test]
async fn only_a_later_answer_of_the_same_server_keeps_it_from_becoming_a_suspect() {
    let (manual, suspects) = new();
    late(&manual, &suspects, &[1], Some((1, Ok(())))).await;
    assert_eq!(suspects.since(server(1)), None, "the server answered meanwhile");
    late(&manual, &suspects, &[1], None).await;
    assert!(suspects.since(server(1)).is_some(), "the server answered before the request");
    late(&manual, &suspects, &[2], Some((1, Ok(())))).await;
    assert!(suspects.since(server(2)).is_some(), "another server answered");
}

/// The client may send a request to a second server.
#[tokio::test]
async fn the_server_to_which_a_request_was_sent_last_is_avoided() {
    let (manual, suspects) = new();
    late(&manual, &suspects, &[1, 2], None).await;
    assert_eq!(suspects.since(server(1)), None);
    assert!(suspects.since(server(2)).is_some());
}

#[tokio::test]
async fn a_server_is_avoided_from_its_last_failure_on() {
    let (manual, suspects) = new();
    late(&manual, &suspects, &[1], None).await;
    manual.advance(Duration::from_secs(8));
    late(&manual, &suspects, &[1], None).await;
    assert_eq!(suspects.since(server(1)), Some(suspects.clock.now()));
    manual.advance(AVOIDED_FOR - Duration::from_millis(1));
    assert!(suspects.since(server(1)).is_some());
}

/// A server that waited in vain for other servers still answers. A server with a broken
/// connection does not.
#[tokio::test]
async fn an_error_that_is_a_fault_of_the_server_is_no_sign_of_life() {
    let (manual, suspects) = new();
    let in_vain = RequestAttemptError::DbError(DbError::ServerError, String::new());
    let in_vain = ExecutionError::LastAttemptError(in_vain);
    late(&manual, &suspects, &[1], Some((1, Err(in_vain)))).await;
    assert_eq!(suspects.since(server(1)), None);
    let broken = BrokenConnectionErrorKind::ChannelError.into();
    let broken = RequestAttemptError::BrokenConnectionError(broken);
    let broken = ExecutionError::LastAttemptError(broken);
    late(&manual, &suspects, &[1], Some((1, Err(broken)))).await;
    assert_eq!(
        suspects.since(server(1)),
        Some(suspects.clock.now()),
        "also at the missed deadline"
    );
}

/// The peers could not reach one server. After 1.8 s that server answered that no peer had
/// answered, before the client's own deadline of 2 s. Each such answer counted as a sign of
/// life, so all writes of its partitions went to that server again.
#[tokio::test]
async fn a_server_whose_peers_do_not_answer_is_avoided_unless_it_serves_other_requests() {
    let (manual, suspects) = new();
    let in_vain = || {
        let timeout = DbError::WriteTimeout {
            consistency: Consistency::Serial,
            received: 1,
            required: 2,
            write_type: WriteType::Cas,
        };
        let error = RequestAttemptError::DbError(timeout, String::new());
        ExecutionError::LastAttemptError(error)
    };
    late(&manual, &suspects, &[2], Some((1, Err(in_vain())))).await;
    assert!(suspects.since(server(1)).is_some());
    manual.advance(AVOIDED_FOR);
    late(&manual, &suspects, &[1], Some((1, Err(in_vain())))).await;
    assert!(suspects.since(server(1)).is_some(), "such an answer is no sign of life");
    manual.advance(AVOIDED_FOR);

    let deadline = suspects.clock.now() + Duration::from_secs(2);
    let contended = async {
        record_server(server(1));
        let served = async {
            record_server(server(1));
            Ok(())
        };
        manual.advance(Duration::from_millis(900));
        suspects.watch(deadline, served).await.unwrap();
        manual.advance(Duration::from_millis(900));
        Err::<(), _>(in_vain())
    };
    let answer = suspects.watch(deadline, contended).await;
    assert!(
        answer.is_err() && suspects.since(server(1)).is_none(),
        "the server serves other requests"
    );
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_deadline_makes_no_suspect() {
    let manual = ManualClock::new(1);
    let clock = manual.clock();
    let suspects = Suspects::new(clock.clone());
    let deadline = clock.now() + Duration::from_secs(5);
    let early = clock.now() + Duration::from_secs(1);
    let dropped = clock.timeout_at(early, suspects.watch(deadline, sent_to(server(1))));
    let (dropped, ()) = futures::join!(dropped, async { manual.advance(Duration::from_secs(1)) });
    assert!(dropped.is_err());
    assert_eq!(suspects.since(server(1)), None);
}

#[tokio::test]
async fn an_answer_makes_a_suspect_only_if_another_server_may_do_better() {
    let suspects = Suspects::new(ManualClock::new(1).clock());
    let answered = async |number, answer: Result<(), ExecutionError>| {
        let request = async {
            record_server(server(number));
            ready(answer).await
        };
        // The answer counts although the deadline has passed.
        let _ = suspects.watch(suspects.clock.now(), request).await;
        suspects.since(server(number)).is_some()
    };
    assert!(!answered(1, Ok(())).await);
    let broken = BrokenConnectionErrorKind::ChannelError.into();
    let broken = RequestAttemptError::BrokenConnectionError(broken);
    assert!(answered(2, Err(ExecutionError::LastAttemptError(broken))).await);
    assert!(!answered(3, Err(ExecutionError::EmptyPlan)).await);
}

#[test]
fn the_first_server_that_is_no_suspect_is_chosen_or_else_the_oldest_suspect() {
    let start = ManualClock::new(1).clock().now();
    let at = |seconds| Some(start + Duration::from_secs(seconds));
    let chosen = |since: [Option<Instant>; 3]| first_unsuspected(0..3, |i| since[*i]);
    assert_eq!(chosen([None, None, None]), Some(0));
    assert_eq!(chosen([at(1), None, None]), Some(1));
    assert_eq!(chosen([at(1), at(2), None]), Some(2));
    assert_eq!(chosen([at(3), at(1), at(2)]), Some(1));
    assert_eq!(first_unsuspected(0..0, |_| None), None);
}
