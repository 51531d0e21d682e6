//! An event that only one server has, and that a recovery takes into the log.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use eventlog::{AppRow, Offset, TrustLevel};
use istorage::{Call, CallAnswer, Key, KeyspaceName, SharedStorage, StorageWrapper, Write};
use processor::{Command, Done, IdempotencyKey, PartitionEnd, Status};
use shop::{
    AnswerLedger, ShopDatabase, ShopNode, ShopNodeSettings, TestFence, article, check,
    create_workspace, cud,
};
use tokio::sync::watch;

use crate::{TRIES, servers::Servers, soon};

const PARTITION: u16 = 0;
const WS: u64 = 1;

/// The timeout of each call. Servers compute when to ask a second replica of a new table once in
/// each `read_request_timeout`, which is 15 s on the servers of the tests. Until then a read waits
/// for a replica that hangs. With a timeout of 3 s the read that settles a write without an answer
/// was too late at times, and a leader ended without its proof.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Longer than a put is held.
const HELD: Duration = Duration::from_secs(10);

/// A storage that holds the put of a row until the trial lets it go.
#[derive(Debug)]
struct HoldingStorage {
    inner: SharedStorage,
    key: Key,
    state: watch::Sender<PutState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PutState {
    NotSent,
    Held,
    LetGo,
}

impl HoldingStorage {
    async fn until(&self, wanted: PutState) {
        self.state.subscribe().wait_for(|state| *state == wanted).await.unwrap();
    }
}

impl StorageWrapper for HoldingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(Write::PutOrdered(rows)) = &call
            && rows.iter().any(|put| put.key == self.key)
        {
            self.state.send_if_modified(|state| {
                let is_first = *state == PutState::NotSent;
                *state = if is_first { PutState::Held } else { *state };
                is_first
            });
            self.until(PutState::LetGo).await;
            // The put was held for a part of its time.
            return call.send(&self.inner, deadline + HELD).await;
        }
        call.send(&self.inner, deadline).await
    }
}

/// Leaders of one partition, one after another, each as in a process of its own.
struct Leaders<'s> {
    servers: &'s Servers,
    system: KeyspaceName,
}

impl Leaders<'_> {
    async fn database(&self) -> ShopDatabase {
        let (driver, clock) = (self.servers.connect().await, Clock::system());
        ShopDatabase::new(driver, self.system.clone(), 1.try_into().unwrap(), clock).await
    }

    async fn lead(&self, epoch: u64) -> (ShopDatabase, ShopNode) {
        let database = self.database().await;
        let node = database.node_of(PARTITION, TestFence::of(epoch), settings());
        (database, node)
    }
}

fn settings() -> ShopNodeSettings {
    ShopNodeSettings { timeout: TIMEOUT, ..ShopNodeSettings::at(TrustLevel::Two) }
}

/// The command whose event only one server gets. The client sends it again until it has an answer.
fn order() -> Command {
    let mut command = cud(WS, article("once"), soon()).with_request("order");
    command.idempotency_key = Some(IdempotencyKey::new("joe", b"order", b""));
    command
}

async fn run(node: &ShopNode, ledger: &mut AnswerLedger, command: impl Fn() -> Command) -> Done {
    loop {
        let sent = command();
        let (request, deadline) = (sent.request.clone(), sent.deadline);
        let answered = node.commands.run(sent).await;
        ledger.note(&request, &answered);
        match answered {
            Ok(done) => return done,
            Err(refused) => assert!(Clock::system().now() < deadline, "{request}: {refused:?}"),
        }
        Clock::system().sleep(Duration::from_millis(100)).await;
    }
}

/// What leader A left: an event that only the first server has, and the command of the event
/// without an answer.
struct Left<'s> {
    leaders: Leaders<'s>,
    app: KeyspaceName,
    ledger: AnswerLedger,
}

/// The third event: the first event of a leader is inserted, and the next ones are put.
const ROW: AppRow = AppRow::Plog(PARTITION, Offset(3));

/// Leader A puts an event, and ends. Returns `None` if the put did not reach the first server.
async fn put_at_the_first(servers: &Servers) -> Option<Left<'_>> {
    let leaders = Leaders { servers, system: Servers::new_name() };
    let mut ledger = AnswerLedger::default();
    let database = leaders.database().await;
    let app = database.app.entry.keyspace.clone();
    let (inner, state) = (Arc::clone(&database.app.storage), watch::Sender::new(PutState::NotSent));
    let holding = Arc::new(HoldingStorage { inner, key: ROW.key(), state });
    let storage: Option<SharedStorage> = Some(Arc::clone(&holding) as _);
    let settings = ShopNodeSettings { storage, ..settings() };
    let a = database.node_of(PARTITION, TestFence::of(1), settings);
    a.ready().await;
    run(&a, &mut ledger, || create_workspace(WS, soon()).with_request("workspace")).await;
    run(&a, &mut ledger, || cud(WS, article("a"), soon()).with_request("before")).await;
    let commands = a.commands.clone();
    tokio::spawn(async move { commands.run(order()).await });
    holding.until(PutState::Held).await;
    // A is dropped with this future, in the middle of its write.
    let write = async move {
        holding.state.send_replace(PutState::LetGo);
        a.until(|_| false).await
    };
    let is_there = servers.write_to_the_first(&app, &[ROW.key()], None, write).await;
    if !is_there {
        eprintln!("the put did not reach the first server");
        drop_all(&leaders, [app, leaders.system.clone()]).await;
        return None;
    }
    ledger.open("order");
    Some(Left { leaders, app, ledger })
}

/// Leader A put an event at level 2. The put reached one server, and A ended. Leader B found the
/// event on that server, made its other rows, and answered the command that was sent again as done.
/// Then the server was lost. The event was on no other server: B had read the log linearizably, and
/// such a read repairs nothing with `paxos_variant: v2`. So leader C did the command again, or
/// found the event missing and never started.
pub(crate) async fn resent(servers: Servers) {
    let mut left = None;
    for _ in 0..TRIES {
        left = put_at_the_first(&servers).await;
        if left.is_some() {
            break;
        }
    }
    let Left { leaders, app, mut ledger } = left.expect("no put reached the first server");

    let without_third = servers.without(2);
    let (_, b) = leaders.lead(2).await;
    b.ready().await;
    let adopted = run(&b, &mut ledger, order).await;
    assert!(adopted.is_repeated && AppRow::Plog(PARTITION, adopted.plog) == ROW, "{adopted:?}");
    assert_eq!(b.stop().await, PartitionEnd::Stopped);
    drop(without_third);
    servers.until_whole(&app).await;

    let without_first = servers.without(0);
    let (database, c) = leaders.lead(3).await;
    let status = c.until(|status| matches!(status, Status::Ready | Status::Violation(_))).await;
    assert_eq!(status, Status::Ready);
    run(&c, &mut ledger, order).await;
    assert_eq!(c.stop().await, PartitionEnd::Stopped);
    check(&database, PARTITION, &ledger).await;
    drop(without_first);
    servers.until_whole(&app).await;
    drop_all(&leaders, [app, leaders.system.clone()]).await;
}

async fn drop_all(leaders: &Leaders<'_>, keyspaces: [KeyspaceName; 2]) {
    let driver = Arc::clone(&leaders.servers.connect().await);
    for keyspace in keyspaces {
        driver.drop_keyspace(&keyspace, soon()).await.unwrap();
    }
}
