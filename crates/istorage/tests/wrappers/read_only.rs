use std::sync::Arc;

use clock::{Clock, Instant};
use istorage::{
    AppStorageExt, AtomicBatch, CallKind, ErrorKind, Key, KeyspaceName, Order, OrderedPut,
    ReadOnlyDriver, SharedStorage, StorageDriver, WrappedDriver, mem::MemDriver,
};
use tck::storage::{Fault, Faulty};

#[tokio::test]
async fn rows_are_read_and_nothing_is_written() {
    let clock = Clock::system();
    let (driver, soon) = (Arc::new(MemDriver::new(clock.clone())), Instant::FAR_FUTURE);
    let name = KeyspaceName::new("tests").unwrap();
    driver.create(&name, soon).await.unwrap();
    let key = Key::new("p", "c");
    let written = driver.open(&name, soon).await.unwrap().unwrap();
    written.put(key.clone(), "value".into(), soon).await.unwrap();
    // A read that is not plain fails below.
    let plain = move |storage| {
        let script = |kind| match kind {
            CallKind::Get | CallKind::Read => Fault::None,
            _ => Fault::Unavailable,
        };
        Arc::new(Faulty::scripted(storage, clock.clone(), script)) as SharedStorage
    };
    let driver = ReadOnlyDriver::new(Arc::new(WrappedDriver::new(driver, plain)));
    let storage = driver.open(&name, soon).await.unwrap().unwrap();
    let value = Some("value".into());
    assert_eq!(storage.get_linearizable(&key, soon).await.unwrap(), value);

    let order = Order::new(1).unwrap();
    let put = OrderedPut { key: key.clone(), value: "x".into(), order, ttl: None };
    let atomic = AtomicBatch { ordered: vec![put.clone()], ..AtomicBatch::default() };
    let refusals = [
        storage.put(key.clone(), "x".into(), soon).await.unwrap_err(),
        storage.put_ordered(vec![put], soon).await.unwrap_err(),
        storage.insert_if_not_exists(key.clone(), "x".into(), None, soon).await.unwrap_err(),
        storage.write_atomic(atomic, soon).await.unwrap_err(),
        driver.create(&KeyspaceName::new("other").unwrap(), soon).await.unwrap_err(),
        driver.drop_keyspace(&name, soon).await.unwrap_err(),
    ];
    assert!(refusals.iter().all(|error| error.kind() == ErrorKind::Invalid), "{refusals:?}");
    assert_eq!(written.get_linearizable(&key, soon).await.unwrap(), Some("value".into()));
}
