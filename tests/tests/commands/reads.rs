//! Clients that read logs, records and answers, beside the commands that write them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use eventlog::TrustLevel;
use futures::future::{join, join_all};
use istorage::{Fault, Faulty, Op, SharedStorage};
use processor::{Busy, Command, Ended, Refused, Repeat};
use vvm_tests::commands::{
    At, Narrow, NodeSettings, Stall, Terms, article, check, check_under, cud,
};

use crate::{
    scene::LEVELS,
    stage::{PARTITION, Stage, TrialFn, WS, named},
};

pub(crate) const TRIALS: &[(&str, TrialFn)] = &[
    ("reads::an_acknowledged_event_is_readable_also_if_the_rest_of_its_group_failed", |stage| {
        Box::pin(acknowledged(stage))
    }),
    ("reads::a_command_that_is_sent_again_gets_the_first_answer_until_that_expires", |stage| {
        Box::pin(expired(stage))
    }),
];

/// How long answers are kept in the trial of their end. Cassandra expires rows by whole seconds.
const KEPT: Duration = Duration::from_secs(3);

/// No suite waited for the end of an answer. From then on the same command is a new one.
async fn expired(stage: &Stage) {
    let site = &stage.site;
    for (partition, level) in (PARTITION..).zip(LEVELS) {
        let ws = WS + u64::from(partition - PARTITION);
        let settings = NodeSettings { answers_kept: KEPT, ..NodeSettings::at(level) };
        let (node, mut ledger) = stage.begin(partition, ws, settings).await;
        let send = async |request: &str| {
            let repeat = Some(Repeat::new("joe", b"key", b"body"));
            let command = Command { repeat, ..named(request, cud(ws, article("a"), site.soon())) };
            node.commands.run(command).await.unwrap()
        };
        let begun = site.clock.now();
        let first = send("first").await;
        ledger.note("first", &Ok(first.clone()));
        assert!(!first.is_repeated);
        let mut again = 0;
        let second = loop {
            let asked = site.clock.now();
            let done = send("second").await;
            if !done.is_repeated {
                // The storage counts from a moment between the two, and may round a second.
                let kept = site.clock.now() - begun;
                assert!(kept + Duration::from_secs(1) >= KEPT, "it was kept for {kept:?}");
                break done;
            }
            assert_eq!((done.version(), &done.answer), (first.version(), &first.answer));
            let late = asked - begun;
            assert!(late < KEPT + Duration::from_secs(60), "it is still kept after {late:?}");
            again += 1;
            site.clock.sleep(Duration::from_millis(50)).await;
        };
        assert!(again > 0, "it was sent again while the answer was kept");
        ledger.note("second", &Ok(second.clone()));
        assert_eq!(second.plog, first.plog.next());
        assert_ne!(second.answer.ids, first.answer.ids, "it made new records");
        let third = send("third").await;
        assert!(third.is_repeated && third.version() == second.version(), "{third:?}");
        assert_eq!(node.stop().await, Ended::Stopped);
        check(site, partition, &ledger).await;
    }
}

/// A group of two events was written in two steps, and the second step failed. The first command was
/// answered, but readers of logs were still told the end of before the group, so the acknowledged
/// event was missing from `/wlog` until the recovery was done.
async fn acknowledged(stage: &Stage) {
    let site = &stage.site;
    let (is_armed, is_blind) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let (armed, blind) = (Arc::new(is_armed), Arc::clone(&is_blind));
    let writes = AtomicUsize::new(0);
    let is_armed = Arc::clone(&armed);
    // The second conditional write is the second event of the group. From then on nothing can be
    // read, so the recovery cannot help.
    let script = move |op| {
        let is_armed = armed.load(Ordering::SeqCst);
        if is_armed && op == Op::WriteIf && writes.fetch_add(1, Ordering::SeqCst) == 1 {
            blind.store(true, Ordering::SeqCst);
            return Fault::Unavailable;
        }
        let is_read = matches!(op, Op::Get | Op::GetBatch | Op::Read);
        if is_read && blind.load(Ordering::SeqCst) { Fault::Unavailable } else { Fault::None }
    };
    let one_by_one = Narrow::of(Arc::clone(&site.app.storage), 1, true);
    let faulty: SharedStorage = Arc::new(Faulty::scripted(one_by_one, site.clock.clone(), script));
    let hold = Stall::new(faulty);
    let storage: SharedStorage = Arc::new(hold.clone());
    let settings = NodeSettings {
        storage: Some(storage),
        in_view: true,
        ..NodeSettings::at(TrustLevel::Zero)
    };
    let (node, mut ledger) = stage.begin(PARTITION, WS, settings).await;

    is_armed.store(true, Ordering::SeqCst);
    hold.arm(At::Before(1));
    let repeat = |key: &[u8]| Some(Repeat::new("joe", key, b""));
    let command = |request: &str| Command {
        repeat: repeat(request.as_bytes()),
        ..named(request, cud(WS, article(request), site.soon()))
    };
    let sent = ["first", "second"].map(|request| node.commands.run(command(request)));
    // Both wait in the queue when the first begins.
    let held = async {
        hold.until_still().await;
        hold.go_on();
    };
    let (answered, ()) = join(join_all(sent), held).await;
    for (request, answer) in ["first", "second"].into_iter().zip(&answered) {
        ledger.note(request, answer);
    }
    let done = answered[0].as_ref().unwrap();
    assert!(matches!(answered[1], Err(Refused::Busy(Busy::Storage(_)))), "{answered:?}");
    let applied = node.commands.applied().unwrap();
    assert!(applied > done.plog, "readers see the log in front of {applied:?}, and not {done:?}");

    is_blind.store(false, Ordering::SeqCst);
    node.ready().await;
    assert_eq!(node.stop().await, Ended::Stopped);
    let terms = Terms { in_view: true, since: None };
    check_under(site, PARTITION, &ledger, terms).await;
}
