use std::{sync::Mutex, time::Duration};

use clock::ManualClock;
use tokio::task::{JoinSet, yield_now};

use super::*;

const MIB: usize = 1 << 20;

/// All answers together had no bound: 2,000 documents of 1 MB that were read at the same time
/// took 1.8 GB.
#[tokio::test]
async fn all_shares_together_fit_into_the_pool() {
    let clock = Clock::system();
    let pool = MemoryPool::new("answers", 4 * MIB, clock.clone());
    let soon = || clock.now() + Duration::from_millis(20);
    let mut first = pool.reserve(None, 2 * MIB, soon()).await.unwrap();
    let second = pool.reserve(None, 2 * MIB, soon()).await.unwrap();
    assert_eq!(pool.reserve(None, 1, soon()).await.unwrap_err().code(), "memory_full");

    // A share that becomes smaller leaves memory for others, even when its bytes are held.
    assert!(first.resize(MIB));
    let held = first.into_bytes(vec![0; MIB]);
    let third = pool.reserve(None, MIB, soon()).await.unwrap();
    assert!(pool.reserve(None, 1, soon()).await.is_err());
    drop((second, third));
    let mut fourth = pool.reserve(None, 2 * MIB, soon()).await.unwrap();
    assert!(!fourth.resize(4 * MIB), "1 MiB is held");
    drop(held);
    assert!(fourth.resize(4 * MIB));
    drop(fourth);

    // An answer that is larger than the pool takes the whole pool, and is not refused forever.
    let all = pool.reserve(None, 99 * MIB, soon()).await.unwrap();
    assert!(pool.reserve(None, 1, soon()).await.is_err());
    drop(all);
    drop(pool.try_reserve(None, 4 * MIB).unwrap());
}

/// 2,750 readers asked for documents faster than the node could read them. Each got its memory
/// when its deadline was nearly over, so not one of them got a document in 80 s.
#[tokio::test]
async fn answers_go_on_while_more_is_asked_than_can_be_read() {
    const ANSWER: Duration = Duration::from_secs(5);
    const READ: Duration = Duration::from_millis(300);
    const TICK: Duration = Duration::from_millis(100);

    let manual = ManualClock::new(1);
    let clock = manual.clock();
    let pool = MemoryPool::new("answers", MIB, clock.clone());
    let answered = Arc::new(Mutex::new(Vec::new()));
    let start = clock.now();
    let mut requests = JoinSet::new();
    // Each 100 ms one request comes, and a read takes 300 ms.
    while clock.now() - start < Duration::from_secs(60) {
        let (clock, pool) = (clock.clone(), pool.clone());
        let answered = Arc::clone(&answered);
        requests.spawn(async move {
            let deadline = clock.now() + ANSWER;
            let Ok(_share) = pool.reserve_in_half(None, MIB, deadline).await else { return };
            if clock.timeout_at(deadline, clock.sleep(READ)).await.is_ok() {
                answered.lock().unwrap().push(clock.now() - start);
            }
        });
        for _ in 0..100 {
            yield_now().await;
        }
        manual.advance(TICK);
    }
    let answered = answered.lock().unwrap();
    let late = answered.iter().filter(|at| **at > Duration::from_secs(30)).count();
    assert!(late >= 90, "{late} answers in 30 s, in which 100 can be read");
}

/// Answers that a principal received slowly had all memory, and all others waited for memory.
#[tokio::test]
async fn a_principal_leaves_half_of_the_memory_to_others() {
    let clock = Clock::system();
    for (mib, of_one) in [(16, 8), (6, 4), (2, 2)] {
        let pool = MemoryPool::for_answers("answers", mib * MIB, 1, clock.clone());
        let reserve = async |principal: &str| {
            let soon = clock.now() + Duration::from_millis(20);
            pool.reserve_in_half(Some(principal), MIB, soon).await
        };
        let mut slow = Vec::new();
        let refused = loop {
            match reserve("slow").await {
                Ok(share) => slow.push(share),
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused.code(), slow.len()), ("rate_limited", of_one), "of {mib} MiB");
        let mut others = Vec::new();
        loop {
            let name = format!("other {}", others.len());
            let Ok(share) = reserve(&name).await else { break };
            others.push(share);
        }
        assert_eq!(others.len(), mib - of_one, "of {mib} MiB");
    }
}
