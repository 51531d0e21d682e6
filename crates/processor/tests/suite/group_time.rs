//! The time of the events of one group, while the wall clock of the node steps.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::ManualClock;
use eventlog::{TrustLevel, WsId};
use futures::future::join_all;
use isequencer::WsKind;
use istorage::{KeyspaceName, SharedStorage, mem::MemDriver};
use processor::{
    Application, Command, CommandContext, Declarations, Handler, HandlerError, IdempotencyKey,
    PartitionEnd, RowChange,
};
use shop::{
    AnswerLedger, NarrowStorage, ShopDatabase, ShopNodeSettings, StallPoint, StallingStorage,
    check, create_workspace, qname,
};

const PARTITION: u16 = 1;
const WS: u64 = 1;

/// Longer than answers are kept.
const STEP_HOURS: i64 = 30;

/// Lets the wall clock step by as many hours as the params say.
#[derive(Debug)]
struct StepHandler(ManualClock);

#[async_trait]
impl Handler for StepHandler {
    async fn run(
        &self,
        params: &Bytes,
        _: Vec<RowChange>,
        _: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let hours: i64 = std::str::from_utf8(params).unwrap().parse().unwrap();
        self.0.step_wall(hours * 3_600_000);
        Ok(Bytes::new())
    }
}

/// Does some work. Time passes while the work cannot go on otherwise.
async fn in_time<T>(manual: &ManualClock, work: impl Future<Output = T>) -> T {
    let time = async {
        loop {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            manual.advance(Duration::from_millis(1));
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        never = time => never,
    }
}

/// The wall clock of a leader stepped by more than a day between two commands of one group. The
/// events were written, and the leader ended before the answers were stored. If the second event
/// had a time of its own, the next leader would take the first one for a day old: it would store no
/// answer, and do the command again.
#[tokio::test]
async fn a_clock_that_steps_within_a_group_drops_no_answer() {
    let manual = ManualClock::new(1);
    let clock = manual.clock();
    let driver = Arc::new(MemDriver::new(clock.clone()));
    let system = KeyspaceName::new("group_time").unwrap();
    let partitions = NonZeroU16::new(10).unwrap();
    let mut shop_db = ShopDatabase::new(driver, system, partitions, clock).await;
    let tables = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\n";
    let declared = Declarations::new(tables.parse().unwrap()).unwrap();
    let declared = declared.with_workspaces("Shop", WsKind(1), []).unwrap();
    let application = Application::new(declared);
    let handler = StepHandler(manual.clone());
    shop_db.application = Arc::new(application.with_command(qname("shop.Step"), handler).unwrap());

    let narrow = NarrowStorage::of(Arc::clone(&shop_db.app.storage), 3, true);
    let dies = StallingStorage::new(narrow);
    let settings = || ShopNodeSettings::at(TrustLevel::Zero);
    let storage: SharedStorage = Arc::new(dies.clone());
    let first = shop_db.node(PARTITION, ShopNodeSettings { storage: Some(storage), ..settings() });
    let mut ledger = AnswerLedger::default();
    in_time(&manual, first.ready()).await;
    let create = create_workspace(WS, shop_db.soon()).with_request("create");
    let created = in_time(&manual, first.commands.run(create)).await;
    ledger.note("create", &created);

    let steps = [STEP_HOURS, -STEP_HOURS, 0].map(|hours| {
        let request = format!("step by {hours} hours");
        Command::new(WsId(WS), qname("shop.Step"), shop_db.soon())
            .with_params(hours.to_string())
            .with_request(&request)
            .with_idempotency_key(IdempotencyKey::new("joe", request.as_bytes(), b"body"))
    });
    // The first write puts the group into the log. Nothing else of it is written.
    dies.arm(StallPoint::AfterWrite(1));
    let group = join_all(steps.iter().map(|command| first.commands.run(command.clone())));
    tokio::select! {
        answers = in_time(&manual, group) => panic!("they were answered: {answers:?}"),
        () = dies.until_still() => {}
    }
    first.kill();

    // The clock of the next leader is ahead, too, so the log alone says how old the events are.
    manual.step_wall(STEP_HOURS * 3_600_000);
    let next = shop_db.node(PARTITION, settings());
    in_time(&manual, next.ready()).await;
    for command in steps {
        let deadline = shop_db.soon();
        let request = command.request.clone();
        let again = next.commands.run(Command { deadline, ..command });
        let again = in_time(&manual, again).await;
        ledger.note(&request, &again);
        assert!(again.as_ref().unwrap().is_repeated, "{request} was done again: {again:?}");
    }
    assert_eq!(in_time(&manual, next.stop()).await, PartitionEnd::Stopped);
    let events = check(&shop_db, PARTITION, &ledger).await.events;
    let times: Vec<_> = events[1..].iter().map(|event| event.time).collect();
    assert_eq!(times, [times[0]; 3], "one group has one time");
}
