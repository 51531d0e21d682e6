#![allow(clippy::all, missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]
use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use eventlog::*;
use istorage::{KeyspaceName, StorageDriver, mem::MemDriver};
use std::{sync::Arc, time::Instant as I};
fn record(id: u64) -> Record {
    Record {
        table: "shop.Line".parse().unwrap(),
        kind: TableKind::WRecord,
        id: RecordId(id),
        parent: None,
        is_active: true,
        fields: [(
            "name".parse().unwrap(),
            Value::String("a text of sixty bytes, as there are many in documents of shops".into()),
        )]
        .into(),
    }
}
fn event(n: u64, t: &QName) -> Event {
    Event {
        place: Place {
            epoch: Epoch(1),
            plog: Offset(n),
            ws: WsId(n % 10),
            wlog: Offset(n / 10 + 1),
        },
        time: WallTime::from_millis(1),
        request: String::new(),
        idempotency: None,
        command: t.clone(),
        params: Bytes::new(),
        changes: (0..3)
            .map(|k| Change { replaces: None, record: record(322680000131072 + n * 3 + k) })
            .collect(),
        drawn: vec![Drawn { seq: 1, last: n }, Drawn { seq: 2, last: n * 3 }],
    }
}
fn best(name: &str, per: u64, mut f: impl FnMut()) {
    let mut b = f64::MAX;
    for _ in 0..60 {
        let s = I::now();
        f();
        b = b.min(s.elapsed().as_nanos() as f64 / per as f64);
    }
    println!("{name}: {b:.0} ns");
}
fn main() {
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let t: QName = "sys.CUD".parse().unwrap();
    let events: Vec<Event> = (1..=32).map(|n| event(n, &t)).collect();
    best("event()", 32, || {
        for n in 1..=32 {
            std::hint::black_box(event(n, &t));
        }
    });
    best("prepared", 32, || {
        for e in &events {
            std::hint::black_box(Prepared::new(e, |_| None));
        }
    });
    let driver = MemDriver::new(Clock::system());
    let k = KeyspaceName::new("shop").unwrap();
    let storage = rt.block_on(async {
        driver.create(&k, Instant::FAR_FUTURE).await.unwrap();
        driver.open(&k, Instant::FAR_FUTURE).await.unwrap().unwrap()
    });
    let log = Log::new(
        Arc::clone(&storage),
        Clock::system(),
        Arc::new(Alone(Epoch(1))),
        0,
        Settings::default(),
    );
    let mut n = 1;
    let mut b = f64::MAX;
    for _ in 0..3000 {
        let g: Vec<Prepared> =
            (0..32).map(|k| Prepared::new(&event(n + k, &t), |_| None)).collect();
        n += 32;
        let s = I::now();
        let f = rt.block_on(log.write(&g));
        b = b.min(s.elapsed().as_nanos() as f64 / 32.0);
        assert!(f.others.is_none(), "{f:?}");
    }
    println!("log.write: {b:.0} ns");
}
