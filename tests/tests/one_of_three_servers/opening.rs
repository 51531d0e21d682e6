//! Opening keyspaces while one of three servers hangs.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clock::Clock;
use istorage::StorageDriver;
use istorage_cassandra::{CassandraConfig, CassandraDriver, Replication};
use vvm_tests::processes::SuspendedProcesses;

use crate::{OPENS_IN, PATIENCE, new_name, soon};

/// Connects a client that makes keyspaces with a number of replicas.
async fn connect(addresses: &str, replicas: u8) -> CassandraDriver {
    let replication = Some(Replication::Simple(replicas));
    let config = CassandraConfig { replication, ..CassandraConfig::new(addresses.split(',')) };
    CassandraDriver::connect(config, Clock::system(), soon()).await.unwrap()
}

/// Checks that clients connect and open keyspaces in time while one of three servers hangs.
///
/// The client tried the contact points one after another, and then waited for connections to all
/// servers. A server that hung delayed both steps by 6.1 s, so a start took up to 19 s, and more
/// than 25 s under load. Then each server had to read from a certain partition. A keyspace was not
/// opened while that partition had no quorum, for example with two replicas, one of which hung.
pub(crate) async fn opened_beside_a_hung_server(addresses: &str) {
    let clock = Clock::system();
    let names = [new_name(), new_name()];
    for (name, replicas) in names.iter().zip([3, 2]) {
        connect(addresses, replicas).await.create(name, soon()).await.unwrap();
    }
    for server in addresses.split(',') {
        let hung = SuspendedProcesses::nodes_at(&[server]).unwrap();
        let start = clock.now();
        let driver = connect(addresses, 3).await;
        for name in &names {
            assert!(driver.open(name, start + PATIENCE / 6).await.unwrap().is_some());
        }
        let opened = clock.now() - start;
        drop(hung);
        eprintln!("{server} hung: keyspaces were opened after {opened:?}");
        assert!(opened <= OPENS_IN, "{server} hung: keyspaces were opened after {opened:?}");
        clock.sleep(Duration::from_secs(1)).await;
    }
    made_by_a_server_that_was_slow(addresses).await;
    let driver = connect(addresses, 3).await;
    for name in names {
        driver.drop_keyspace(&name, soon()).await.unwrap();
    }
}

/// Checks that making a keyspace also asks a server that was slow when the client connected,
/// because another client may use that server.
async fn made_by_a_server_that_was_slow(addresses: &str) {
    let (name, server) = (new_name(), addresses.split(',').next_back().unwrap());
    let slow = SuspendedProcesses::nodes_at(&[server]).unwrap();
    let driver = connect(addresses, 3).await;
    let has_resumed = AtomicBool::new(false);
    let made = async {
        driver.create(&name, soon()).await.unwrap();
        assert!(has_resumed.load(Ordering::SeqCst), "the keyspace was made without {server}");
    };
    let resumed = async {
        Clock::system().sleep(Duration::from_secs(2)).await;
        has_resumed.store(true, Ordering::SeqCst);
        drop(slow);
    };
    tokio::join!(made, resumed);
    driver.drop_keyspace(&name, soon()).await.unwrap();
}
