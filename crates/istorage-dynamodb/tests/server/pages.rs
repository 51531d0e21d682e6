//! Answers that do not fit in one page of 1 MiB.

use bytes::Bytes;
use clock::Clock;
use istorage::{AppStorage, Key, Put, Range, Row};

use crate::support::{DynamoDbServer, put, read, soon};

fn place(n: usize) -> Bytes {
    n.to_be_bytes().to_vec().into()
}

fn row(n: usize, size: usize) -> Row {
    Row { ccols: place(n), value: vec![n as u8; size].into() }
}

async fn write(storage: &dyn AppStorage, rows: impl Iterator<Item = Row>) {
    let puts: Vec<Put> = rows.map(|row| put(Key::new("p", row.ccols), row.value)).collect();
    storage.put_batch(puts, soon()).await.unwrap();
}

pub(crate) async fn pages_of_large_rows_are_followed(server: DynamoDbServer) {
    const SIZE: usize = 400_000;
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    write(storage, (0..8).map(|n| row(n, SIZE))).await;
    let rows: Vec<Row> = (0..8).map(|n| row(n, SIZE)).collect();
    assert!(read(storage, "p", Range::all()).await == rows);
    for end in 0..=8 {
        let range = Range::between(place(1), place(end));
        let expected = &rows[1..end.max(1)];
        assert!(read(storage, "p", range).await == expected, "up to {end}");
    }
    scratch.remove().await;
}

pub(crate) async fn pages_of_many_small_rows_are_followed(server: DynamoDbServer) {
    // The rows fill whole pages, so an empty page follows the last one.
    const ROWS: usize = 3_000;
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    write(storage, (0..ROWS).map(|n| row(n, 10))).await;
    let rows: Vec<Row> = (0..ROWS).map(|n| row(n, 10)).collect();
    assert!(read(storage, "p", Range::all()).await == rows);
    for (start, end) in [(0, 1_000), (0, 1_001), (1_000, 2_000), (999, 2_999), (2_999, 3_000)] {
        let range = Range::between(place(start), place(end));
        assert!(read(storage, "p", range).await == rows[start..end], "{start} to {end}");
    }
    scratch.remove().await;
}

pub(crate) async fn a_batch_of_more_than_a_page_is_read(server: DynamoDbServer) {
    const SIZE: usize = 200_000;
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    write(storage, (0..40).map(|n| row(n, SIZE))).await;
    let keys: Vec<Key> = (0..250).rev().map(|n| Key::new("p", place(n))).collect();
    let found = storage.get_values(&keys, soon()).await.unwrap();
    let expected = (0..250).rev().map(|n| (n < 40).then(|| row(n, SIZE).value));
    assert!(found.into_iter().eq(expected));
    scratch.remove().await;
}

pub(crate) async fn the_time_of_the_server_can_be_read(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let time = scratch.storage.server_time(soon()).await.unwrap().unwrap();
    // The server runs on this machine.
    let truth = Clock::system().wall();
    assert!(
        time.at <= truth && truth.millis_ahead_of(time.at + time.uncertainty) < 500,
        "{time:?} {truth:?}"
    );
    scratch.remove().await;
}
