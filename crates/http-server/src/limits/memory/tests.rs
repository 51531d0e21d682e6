use std::{sync::Mutex, time::Duration};

use clock::ManualClock;
use tokio::task::{JoinSet, yield_now};

use super::*;
use crate::{
    limits::{Asker, held_bytes},
    problem::ProblemDetails,
};

const MIB: usize = 1 << 20;

fn code<T>(refused: Result<T, super::super::Full>) -> &'static str {
    ProblemDetails::from(refused.err().unwrap()).code()
}

/// All answers together had no bound: 2,000 documents of 1 MB that were read at the same time
/// took 1.8 GB.
#[tokio::test]
async fn all_permits_together_fit_into_the_memory() {
    let clock = ManualClock::new(1).clock();
    let memory = Limit::new(LimitRules::memory("answers", 4 * MIB), &clock);
    // The wait ends at once, because the clock stands still.
    let asker = || Asker::nobody(clock.now());
    let mut first = memory.take(asker(), 2 * MIB).await.unwrap();
    let second = memory.take(asker(), 2 * MIB).await.unwrap();
    assert_eq!(code(memory.take(asker(), 1).await), "memory_full");

    // A permit that becomes smaller leaves memory for others, even when its bytes are held.
    first.resize(MIB).unwrap();
    let held = held_bytes(vec![0; MIB], first);
    let third = memory.take(asker(), MIB).await.unwrap();
    assert!(memory.take(asker(), 1).await.is_err());
    drop((second, third));
    let mut fourth = memory.take(asker(), 2 * MIB).await.unwrap();
    assert!(fourth.resize(4 * MIB).is_err(), "1 MiB is held");
    drop(held);
    fourth.resize(4 * MIB).unwrap();
    drop(fourth);

    // An answer that is larger than the memory takes all of it, and is not refused forever.
    let all = memory.take(asker(), 99 * MIB).await.unwrap();
    assert!(memory.take(asker(), 1).await.is_err());
    drop(all);
    drop(memory.try_take(None, 4 * MIB).unwrap());
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
    let memory = Limit::new(LimitRules::memory("answers", MIB), &clock);
    let answered = Arc::new(Mutex::new(Vec::new()));
    let start = clock.now();
    let mut requests = JoinSet::new();
    // Each 100 ms one request comes, and a read takes 300 ms.
    while clock.now() - start < Duration::from_secs(60) {
        let (clock, memory) = (clock.clone(), Arc::clone(&memory));
        let answered = Arc::clone(&answered);
        requests.spawn(async move {
            let deadline = clock.now() + ANSWER;
            let asker = Asker::nobody(deadline).half(clock.now());
            let Ok(_permit) = memory.take(asker, MIB).await else { return };
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
    let clock = ManualClock::new(1).clock();
    for (mib, of_one) in [(16, 8), (6, 4), (2, 2)] {
        // A quarter is for large answers.
        let memory = AnswerMemory::new(mib * MIB * 4 / 3, 1, &clock).small;
        let take = async |principal: &str| {
            memory.take(Asker::new(Some(principal), clock.now()), MIB).await
        };
        let mut slow = Vec::new();
        let refused = loop {
            match take("slow").await {
                Ok(permit) => slow.push(permit),
                refused => break code(refused),
            }
        };
        assert_eq!((refused, slow.len()), ("rate_limited", of_one), "of {mib} MiB");
        let mut others = Vec::new();
        loop {
            let name = format!("other {}", others.len());
            let Ok(permit) = take(&name).await else { break };
            others.push(permit);
        }
        assert_eq!(others.len(), mib - of_one, "of {mib} MiB");
    }
}
