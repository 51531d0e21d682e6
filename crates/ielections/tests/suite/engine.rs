//! Tests of the engine, one step after another.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use clock::{Instant, ManualClock};
use ielections::{
    Budget, ConditionalOutcome, Epoch, EpochRow, GiveUpReason, Incarnation, Lease, LossReason,
    ObservedLease, Seat, Timing,
    engine::{
        Action, Candidacy, Decision, ElectionEngine, EngineInput, Notice, StoreAnswer, StoreCall,
    },
};

const MILLI: Duration = Duration::from_millis(1);
const DONE: EngineInput = EngineInput::Answer(StoreAnswer::Written(ConditionalOutcome::Done));

struct Node {
    engine: ElectionEngine,
    now: Instant,
    until: Instant,
}

impl Node {
    fn new(seats: u32, seed: u64) -> Node {
        Node::timed(seats, seed, Timing::default())
    }

    fn timed(seats: u32, seed: u64, timing: Timing) -> Node {
        Node::with_former(seats, seed, timing, Vec::new())
    }

    fn with_former(seats: u32, seed: u64, timing: Timing, former: Vec<Lease>) -> Node {
        let now = ManualClock::new(seed).clock().now();
        let until = now + Duration::from_secs(60);
        let candidacy = Candidacy {
            owner: ([10, 0, 0, 1], 80).into(),
            last_seat: Seat::new(seats).unwrap(),
            until,
            former,
        };
        let budget = Budget::new(timing, Duration::ZERO).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let engine = ElectionEngine::new(candidacy, budget, Box::new(move || random.u64(..)));
        Node { engine, now, until }
    }

    /// Returns the step of the engine a millisecond later.
    fn then(&mut self, input: EngineInput) -> Decision {
        self.now = self.now + MILLI;
        self.engine.next(self.now, input)
    }

    /// Runs the engine until it has sent a lease that replaces a lease of a former process. The
    /// next step raises the epoch.
    fn comes_back(&mut self, former: Lease) -> Lease {
        let value = former.to_bytes();
        let step = self.looks(vec![ObservedLease { value, ..held(1) }]);
        assert!(matches!(step.next, Action::Call(StoreCall::ReadEpoch(_), _)), "{step:?}");
        let take = self.calls(EngineInput::Answer(StoreAnswer::EpochRow(None)));
        let StoreCall::Take { lease, over: Some(over), .. } = take else { panic!("{take:?}") };
        assert_eq!(over, former);
        let raise = self.calls(DONE);
        assert!(matches!(raise, StoreCall::RaiseEpoch { .. }), "{raise:?}");
        lease
    }

    fn calls(&mut self, input: EngineInput) -> StoreCall {
        match self.then(input).next {
            Action::Call(op, _) => op,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for as long as the step says.
    fn waits(&mut self, step: Decision) -> Decision {
        let Action::Wait(until) = step.next else { panic!("{step:?}") };
        self.now = until;
        self.then(EngineInput::Woke)
    }

    fn looks(&mut self, seen: Vec<ObservedLease>) -> Decision {
        assert_eq!(self.calls(EngineInput::Woke), StoreCall::Look);
        self.then(EngineInput::Answer(StoreAnswer::Leases(seen)))
    }

    /// Runs the engine until it has sent a lease. The next step raises the epoch.
    fn takes(&mut self) -> Lease {
        let step = self.looks(Vec::new());
        assert!(matches!(step.next, Action::Call(StoreCall::ReadEpoch(_), _)), "{step:?}");
        let take = self.calls(EngineInput::Answer(StoreAnswer::EpochRow(None)));
        let StoreCall::Take { lease, .. } = take else { panic!("{take:?}") };
        let raise = self.calls(DONE);
        assert!(matches!(raise, StoreCall::RaiseEpoch { .. }), "{raise:?}");
        lease
    }

    /// Runs the engine until it leads, and returns the step that makes it the leader.
    fn leads(&mut self) -> Decision {
        self.takes();
        let step = self.then(DONE);
        assert!(matches!(step.notice, Some(Notice::Leads { .. })), "{step:?}");
        step
    }
}

fn held(seat: u32) -> ObservedLease {
    let value = Bytes::from_static(b"somebody");
    ObservedLease { seat: Seat::new(seat).unwrap(), value, left: Duration::MAX }
}

#[test]
fn a_store_that_refuses_to_work_ends_the_lead_at_once() {
    let mut node = Node::new(1, 1);
    let leads = node.leads();
    let renews = node.waits(leads);
    assert!(matches!(renews.next, Action::Call(StoreCall::Renew { .. }, _)), "{renews:?}");
    let step = node.then(EngineInput::Answer(StoreAnswer::Broken));
    assert_eq!(step.notice, Some(Notice::Lost(LossReason::Broken)));
}

/// Renewals without an answer do not count, however many there are.
#[test]
fn only_an_answered_renewal_prolongs_the_leadership() {
    // This call timeout makes the deadline of the last call shorter than the timeout.
    let timing = Timing { call_timeout: 1_300 * MILLI, ..Timing::default() };
    let mut node = Node::timed(1, 2, timing);
    let mut step = node.leads();
    let Some(Notice::Leads { valid_until, .. }) = step.notice else { panic!() };
    let mut renewals = 0;
    while step.notice != Some(Notice::Lost(LossReason::Expired)) {
        assert!(node.now < valid_until + MILLI, "it goes on for ever");
        step = match step.next {
            Action::Wait(_) => node.waits(step),
            Action::Call(StoreCall::Renew { .. }, deadline) => {
                renewals += 1;
                assert!(deadline <= valid_until);
                node.now = deadline;
                node.then(EngineInput::Answer(StoreAnswer::Unknown))
            }
            other => panic!("{other:?}"),
        };
    }
    assert!(node.now <= valid_until + 2 * MILLI, "it is told too late");
    assert!(renewals > 2, "{renewals}");
}

/// The first renewal got no answer, so the leadership counts from the second one.
#[test]
fn a_renewal_counts_from_its_own_request() {
    let timing = Timing::default();
    let mut node = Node::new(1, 15);
    let leads = node.leads();
    node.waits(leads);
    let unanswered = node.then(EngineInput::Answer(StoreAnswer::Unknown));
    node.waits(unanswered);
    let sent = node.now;
    let valid_until = sent + timing.renew_every + timing.retry_for;
    let step = node.then(DONE);
    assert_eq!(step.notice, Some(Notice::Extended { valid_until }));
    assert_eq!(step.next, Action::Wait(sent + timing.renew_every));
}

/// An answer that no renewal had asked for ended the engine, and the work was not told to stop.
#[test]
fn an_answer_to_no_renewal_neither_prolongs_nor_ends_the_leadership() {
    let mut node = Node::new(1, 16);
    let leads = node.leads();
    let Some(Notice::Leads { valid_until, .. }) = leads.notice else { panic!("{leads:?}") };
    let step = node.then(DONE);
    assert_eq!(step, Decision { notice: Some(Notice::Extended { valid_until }), ..leads });
}

/// Another node raised the epoch first. The lease that this node took would keep all nodes away
/// until it expires.
#[test]
fn the_lease_of_a_failed_attempt_is_deleted() {
    let mut node = Node::new(1, 3);
    let lease = node.takes();
    let other = EpochRow { epoch: Epoch(1), incarnation: Incarnation(7) }.to_bytes();
    let lost = EngineInput::Answer(StoreAnswer::Written(ConditionalOutcome::Refused(Some(other))));
    assert_eq!(node.calls(lost), StoreCall::Release { seat: Seat::FIRST, lease });
    let step = node.then(DONE);
    assert!(matches!(step.next, Action::Wait(_)), "it looks again later: {step:?}");
}

#[test]
fn a_candidate_whose_lease_a_broken_store_does_not_delete_gives_up() {
    let mut node = Node::new(1, 17);
    node.takes();
    node.now = node.now + Timing::default().duration / 2;
    assert!(matches!(node.calls(DONE), StoreCall::Release { .. }));
    let step = node.then(EngineInput::Answer(StoreAnswer::Broken));
    assert_eq!(step.notice, Some(Notice::GaveUp(GiveUpReason::Broken)));
}

/// The answer came after half of the lease. The leader would not know how long the lease still
/// lasts.
#[test]
fn a_lease_that_is_confirmed_too_late_is_deleted() {
    let mut node = Node::new(1, 4);
    let lease = node.takes();
    node.now = node.now + Timing::default().duration / 2;
    assert_eq!(node.calls(DONE), StoreCall::Release { seat: Seat::FIRST, lease });
}

#[test]
fn candidates_do_not_move_in_step() {
    let mut pauses = HashSet::new();
    let mut seats = HashSet::new();
    for seed in 0..100 {
        let mut node = Node::new(4, seed);
        let looked = node.looks((1..=4).map(held).collect());
        let Action::Wait(until) = looked.next else { panic!("{looked:?}") };
        let pause = until - node.now;
        assert!((200 * MILLI..240 * MILLI).contains(&pause), "{pause:?}");
        pauses.insert(pause);

        let found = Node::new(4, seed).looks(Vec::new());
        let Action::Call(StoreCall::ReadEpoch(seat), _) = found.next else { panic!("{found:?}") };
        seats.insert(seat);
    }
    assert!(pauses.len() > 90, "{} different pauses of 100", pauses.len());
    assert_eq!(seats.len(), 4, "each seat is somebody's first");
}

#[test]
fn an_epoch_row_that_cannot_be_raised_is_reported_with_its_seat() {
    let full = EpochRow { epoch: Epoch(u64::MAX), incarnation: Incarnation(7) }.to_bytes();
    for row in [Bytes::from_static(b"what?"), full] {
        let mut node = Node::new(2, 5);
        let step = node.looks(vec![held(1)]);
        assert!(matches!(step.next, Action::Call(StoreCall::ReadEpoch(_), _)), "{step:?}");
        let step = node.then(EngineInput::Answer(StoreAnswer::EpochRow(Some(row))));
        let why = GiveUpReason::Corrupt(Seat::new(2).unwrap());
        assert_eq!(step, Decision { notice: Some(Notice::GaveUp(why)), next: Action::End });
        assert!(why.to_string().contains("seat 2"), "{why}");
        let ended = Decision { notice: None, next: Action::End };
        assert_eq!(node.then(EngineInput::Woke), ended, "it does nothing more");
    }
}

#[test]
fn a_candidate_that_gives_up_reports_the_reason() {
    for (answer, why) in [
        (StoreAnswer::Leases(vec![held(1)]), GiveUpReason::Waited),
        (StoreAnswer::Unavailable, GiveUpReason::Unavailable),
    ] {
        let mut node = Node::new(1, 6);
        assert_eq!(node.calls(EngineInput::Woke), StoreCall::Look);
        let mut step = node.then(EngineInput::Answer(answer.clone()));
        while step.next != Action::End {
            assert!(node.now <= node.until + 2 * MILLI, "it waits for ever");
            step = match step.next {
                Action::Wait(_) => node.waits(step),
                _ => node.then(EngineInput::Answer(answer.clone())),
            };
        }
        assert_eq!(step.notice, Some(Notice::GaveUp(why)));
        assert!((node.until..=node.until + 2 * MILLI).contains(&node.now), "{:?}", node.now);
    }
}

/// A candidate must not look all the time. A row that is about to expire, or should have expired,
/// is no reason to do so. Neither is the lease of a seat that the candidate does not compete for.
#[test]
fn a_candidate_looks_near_the_end_of_a_lease_and_pauses_otherwise() {
    let left =
        |seat, millis: u64| ObservedLease { left: Duration::from_millis(millis), ..held(seat) };
    let pause = |seen| {
        let mut node = Node::new(1, 7);
        let looked = node.looks(seen);
        let Action::Wait(until) = looked.next else { panic!("{looked:?}") };
        until - node.now
    };
    for millis in [0, 1, 199] {
        let pause = pause(vec![left(1, millis)]);
        assert!((200 * MILLI..240 * MILLI).contains(&pause), "{millis}: {pause:?}");
    }
    let soon = pause(vec![left(1, 300)]);
    assert!((300 * MILLI..310 * MILLI).contains(&soon), "{soon:?}");
    let other = pause(vec![left(1, 5_000), left(2, 300)]);
    assert!((200 * MILLI..240 * MILLI).contains(&other), "{other:?}");
}

/// The first try of the lease has an unknown outcome, and then the store is out of reach. The
/// engine tries again until the outcome is known.
#[test]
fn a_write_with_an_unknown_outcome_is_sent_again() {
    let mut node = Node::new(1, 8);
    node.looks(Vec::new());
    let take = node.calls(EngineInput::Answer(StoreAnswer::EpochRow(None)));
    for answer in [StoreAnswer::Unknown, StoreAnswer::Unavailable, StoreAnswer::Unavailable] {
        let step = node.then(EngineInput::Answer(answer));
        let again = node.waits(step);
        assert!(matches!(&again.next, Action::Call(op, _) if *op == take), "{again:?}");
    }
}

/// At the end of `stop_grace` the leader would be killed, so no call may wait for an answer beyond
/// that time.
#[test]
fn a_release_ends_when_the_leader_would_be_killed() {
    let mut node = Node::new(1, 9);
    let step = node.leads();
    let Some(Notice::Leads { valid_until, .. }) = step.notice else { panic!() };
    let killed = valid_until + Timing::default().stop_grace;
    node.now = killed - 5 * MILLI;
    assert_eq!(node.then(EngineInput::Woke).notice, Some(Notice::Lost(LossReason::Expired)));
    let step = node.then(EngineInput::Stopped);
    let Action::Call(StoreCall::Release { .. }, deadline) = step.next else { panic!("{step:?}") };
    assert_eq!(deadline, killed);
    node.now = killed;
    let step = node.then(EngineInput::Answer(StoreAnswer::Unknown));
    let end = node.waits(step);
    assert_eq!(end, Decision { notice: None, next: Action::End });
}

fn former() -> Lease {
    Lease { owner: ([10, 0, 0, 1], 80).into(), incarnation: Incarnation(7), epoch: Epoch(1) }
}

/// An earlier version deleted the lease. The next leader would have worked while writes of the
/// former process landed.
#[test]
fn the_lease_of_a_comeback_that_failed_is_kept_and_replaced() {
    let mut node = Node::with_former(1, 10, Timing::default(), vec![former()]);
    let lease = node.comes_back(former());
    let other = EpochRow { epoch: Epoch(1), incarnation: Incarnation(8) }.to_bytes();
    let step = node
        .then(EngineInput::Answer(StoreAnswer::Written(ConditionalOutcome::Refused(Some(other)))));
    let Action::Wait(until) = step.next else { panic!("it gives the lease back: {step:?}") };
    node.now = until;
    node.comes_back(lease);
}

/// A node came back, could not raise the epoch, and replaced its own lease forever. The node never
/// led, and no other node could lead.
#[test]
fn a_comeback_that_cannot_lead_lets_its_lease_expire() {
    let other = EpochRow { epoch: Epoch(1), incarnation: Incarnation(8) }.to_bytes();
    let refused = || {
        EngineInput::Answer(StoreAnswer::Written(ConditionalOutcome::Refused(Some(other.clone()))))
    };
    let mut node = Node::with_former(1, 13, Timing::default(), vec![former()]);
    let end = node.now + MILLI + Timing::default().late_write;
    let mut lease = former();
    loop {
        lease = node.comes_back(lease);
        let step = node.then(refused());
        let Action::Wait(until) = step.next else { panic!("it is removed: {step:?}") };
        let is_late = node.now >= end;
        node.now = until;
        if is_late {
            break;
        }
    }
    let looked = node.looks(vec![ObservedLease { value: lease.to_bytes(), ..held(1) }]);
    assert!(matches!(looked.next, Action::Wait(_)), "it replaces its lease again: {looked:?}");
}

/// If no write of the former process can land, no node waits until the lease expires.
#[test]
fn a_comeback_that_cannot_lead_gives_its_lease_away_where_nothing_lands_late() {
    let timing = Timing { late_write: Duration::ZERO, ..Timing::default() };
    let mut node = Node::with_former(1, 14, timing, vec![former()]);
    let lease = node.comes_back(former());
    let other = EpochRow { epoch: Epoch(1), incarnation: Incarnation(8) }.to_bytes();
    let refused =
        EngineInput::Answer(StoreAnswer::Written(ConditionalOutcome::Refused(Some(other))));
    assert_eq!(node.calls(refused), StoreCall::Release { seat: Seat::FIRST, lease });
}

/// A leader that stopped at once released the lease while writes of its former process could still
/// land.
#[test]
fn the_lease_of_a_comeback_is_kept_while_former_writes_may_land() {
    let mut node = Node::with_former(1, 11, Timing::default(), vec![former()]);
    let lease = node.comes_back(former());
    let leads = node.then(DONE);
    let Some(Notice::Leads { work_from, .. }) = leads.notice else { panic!("{leads:?}") };
    assert_eq!(work_from, node.now + Timing::default().late_write);
    let stopped = node.then(EngineInput::Stopped);
    assert_eq!(stopped.notice, Some(Notice::Lost(LossReason::Released)));
    assert_eq!(stopped.next, Action::Wait(work_from));
    let step = node.waits(stopped);
    let Action::Call(op, _) = step.next else { panic!("{step:?}") };
    assert_eq!(op, StoreCall::Release { seat: Seat::FIRST, lease });
}
