//! A version of a record that a quorum has lost, and that one server still has.

use clock::Clock;
use eventlog::{AppRow, Offset, StoredRecord, TrustLevel, Version, WsId};
use istorage::{Consistency, Order, OrderedPut};
use processor::PartitionEnd;
use shop::{ShopDatabase, ShopNodeSettings, TestFence, article, create_workspace, cud};

use crate::{TRIES, in_a_moment, retried, servers::Servers, soon};

const PARTITION: u16 = 0;
const WS: u64 = 1;

/// A quorum had lost the last version of a record, so the partition stood still until the storage
/// showed that version again. The leader read the row linearizably. With `paxos_variant: v2` such a
/// read repairs nothing, so the stop ended as soon as the read met the one server that still had
/// the version. When that server was lost, the next leader took the older version as right.
pub(crate) async fn restored(servers: Servers) {
    let (driver, system) = (servers.connect().await, Servers::new_name());
    let clock = Clock::system();
    let database =
        ShopDatabase::new(driver, system.clone(), 1.try_into().unwrap(), clock.clone()).await;
    let (app, storage) = (database.app.entry.keyspace.clone(), &database.app.storage);
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let node = database.node_of(PARTITION, TestFence::of(1), settings.clone());
    node.ready().await;
    node.commands.run(create_workspace(WS, soon())).await.unwrap();
    let done = node.commands.run(cud(WS, article("a"), soon())).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);

    // What is left of the next update after the loss: the row on one server.
    let row = AppRow::Record(WsId(WS), done.answer.ids[0].1);
    let there = storage.get(&row.key(), Consistency::Plain, soon()).await.unwrap().unwrap();
    let mut stored = StoredRecord::from_bytes(&there).unwrap();
    let later = Version { plog: Offset(done.plog.0 + 1), ..done.version() };
    stored.version = later;
    let order = Order::from_parts(later.epoch.0, later.plog.0).unwrap();
    let value = stored.to_bytes();
    let put = OrderedPut { key: row.key(), value: value.clone(), order, ttl: None };
    let mut is_there = false;
    for _ in 0..TRIES {
        let write = retried(async || storage.put_ordered(vec![put.clone()], in_a_moment()).await);
        is_there = servers.write_to_the_first(&app, &[row.key()], Some(&value), write).await;
        if is_there {
            break;
        }
    }
    assert!(is_there, "the first server did not get the row in time");

    let without_third = servers.without(2);
    let leader = database.node_of(PARTITION, TestFence::of(2), settings);
    let deadline = soon();
    while !matches!(leader.log.reader().is_outdated(row, later).await, Ok(false)) {
        assert!(clock.now() < deadline, "the stop does not end, although a server has the row");
    }
    leader.kill();
    drop(without_third);
    servers.until_whole(&app).await;

    let without_first = servers.without(0);
    let get = async || storage.get(&row.key(), Consistency::Plain, in_a_moment()).await;
    let found = StoredRecord::from_bytes(&retried(get).await.unwrap()).unwrap();
    assert_eq!(found.version, later, "the stop ended while one server alone had the version");
    drop(without_first);
    servers.until_whole(&app).await;
    let driver = servers.connect().await;
    for keyspace in [app, system] {
        driver.drop_keyspace(&keyspace, soon()).await.unwrap();
    }
}
