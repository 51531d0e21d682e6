//! An event that only one server has, and that a recovery takes into the log.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use eventlog::{AppRow, Offset, TrustLevel};
use istorage::KeyspaceName;
use processor::{Command, Done, IdempotencyKey, PartitionEnd};
use shop::{
    AnswerLedger, ShopDatabase, ShopNode, ShopNodeSettings, TestFence, article, check,
    create_workspace, cud,
};

use crate::{servers::Servers, soon};

const PARTITION: u16 = 0;
const WS: u64 = 1;

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
        let settings = ShopNodeSettings {
            timeout: Duration::from_secs(3),
            ..ShopNodeSettings::at(TrustLevel::Two)
        };
        let node = database.node_of(PARTITION, TestFence::of(epoch), settings);
        (database, node)
    }
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

/// Leader A put an event at level 2. The put reached one server, and A ended. Leader B found the
/// event on that server, made its other rows, and answered the command that was sent again as done.
/// Then the server was lost. The event was on no other server: B had read the log linearizably, and
/// such a read repairs nothing with `paxos_variant: v2`. So leader C did the command again, or found
/// the event missing and never started.
pub(crate) async fn resent(servers: Servers) {
    let leaders = Leaders { servers: &servers, system: Servers::new_name() };
    let mut ledger = AnswerLedger::default();
    let (database, a) = leaders.lead(1).await;
    let app = database.app.entry.keyspace.clone();
    a.ready().await;
    run(&a, &mut ledger, || create_workspace(WS, soon()).with_request("workspace")).await;
    // The first event of a leader is inserted, and the next ones are put.
    let before = run(&a, &mut ledger, || cud(WS, article("a"), soon()).with_request("before"));
    let row = AppRow::Plog(PARTITION, Offset(before.await.plog.0 + 1));
    let write = async || {
        let answered = a.commands.run(order()).await;
        panic!("two of three servers are dead, and the command was answered {answered:?}");
    };
    servers.write_to_the_first(&app, &[row.key()], None, write).await;
    a.kill();
    ledger.open("order");

    let without_third = servers.without(2);
    let (_, b) = leaders.lead(2).await;
    b.ready().await;
    let adopted = run(&b, &mut ledger, order).await;
    assert!(adopted.is_repeated && AppRow::Plog(PARTITION, adopted.plog) == row, "{adopted:?}");
    assert_eq!(b.stop().await, PartitionEnd::Stopped);
    drop(without_third);
    servers.until_whole(&app).await;

    let without_first = servers.without(0);
    let (database, c) = leaders.lead(3).await;
    c.ready().await;
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
