//! Random histories: nodes that start, draw, stop and crash, over a storage with faults and clocks
//! that jump.

use std::collections::{BTreeMap, BTreeSet};

use docnumbers::{CounterKey, DocNumber, DocNumberError, Period};
use fastrand::Rng;
use futures::future::join_all;
use tck::storage::FaultRates;

use super::*;

const RATES: FaultRates = FaultRates {
    applied_but_error: 40,
    not_applied_but_error: 40,
    applied_late: 40,
    unavailable: 40,
    hang: 10,
    slow: 40,
    reply_after_deadline: 20,
    delay: Duration::from_millis(3_000),
};

/// The numbers that were drawn, by period, workspace and counter, with their owner.
type Issued = BTreeMap<(Period, WsId, u64), String>;

struct History {
    manual: ManualClock,
    database: Database,
    faulty: Arc<Faulty>,
    random: Rng,
    issued: Issued,
    nodes: Vec<(String, FastSeries)>,
    started: usize,
    /// The owners that stopped, and gave back each counter or reported it as not issued.
    clean: BTreeSet<String>,
}

impl History {
    async fn new(seed: u64) -> History {
        let manual = ManualClock::new(seed);
        let database = Database::new(manual.clock()).await;
        let inner = Arc::clone(&database.storage);
        let faulty = Arc::new(Faulty::seeded(inner, manual.clock(), seed, RATES));
        let (random, nodes, clean) = (Rng::with_seed(seed), Vec::new(), BTreeSet::new());
        let issued = Issued::new();
        History { manual, database, faulty, random, issued, nodes, started: 0, clean }
    }

    fn definition() -> Definition {
        Definition { step: 2, start: 1, ..Definition::daily("order", "O") }
    }

    async fn start(&mut self) {
        let clock = self.database.clock.clone();
        let faulty = Arc::clone(&self.faulty) as SharedStorage;
        let storage = found::with_defect(Arc::new(Guarded::new(faulty, clock.clone())));
        let rows = DocNumberRows::new(storage, clock, "n", CALL);
        let series = Series::new(History::definition()).unwrap();
        let owner = format!("node {}", self.started);
        let settings = FastSettings {
            refill_below: self.random.u64(0..=8),
            counters_held: self.random.usize(1..=3),
            ..FastSettings::with_range(self.random.u64(1..=8))
        };
        let opened = FastSeries::open(series, rows, &*owner, settings, self.database.soon());
        if let Ok(node) = while_time_passes(&self.manual, opened).await {
            self.started += 1;
            self.nodes.push((owner, node));
        }
    }

    /// One to three callers draw from a node at the same time.
    async fn draw(&mut self) {
        let (owner, node) = self.nodes[self.random.usize(..self.nodes.len())].clone();
        let draws: Vec<_> = (0..self.random.usize(1..=3))
            .map(|_| {
                let patience = Duration::from_millis(self.random.u64(1..3_000));
                let deadline = self.database.clock.now() + patience;
                let (ws, count) = (WsId(self.random.u64(1..=3)), self.random.u32(1..=12));
                let node = &node;
                async move { (ws, count, node.block(ws, count, deadline).await) }
            })
            .collect();
        for (ws, count, drawn) in while_time_passes(&self.manual, join_all(draws)).await {
            self.note(&owner, ws, count, drawn);
        }
    }

    fn note(
        &mut self,
        owner: &str,
        ws: WsId,
        count: u32,
        drawn: Result<Vec<DocNumber>, DocNumberError>,
    ) {
        match drawn {
            Ok(numbers) => {
                assert_eq!(numbers.len(), count as usize);
                for number in numbers {
                    let key = (number.period, ws, number.counter);
                    let other = self.issued.insert(key, owner.to_owned());
                    assert_eq!(other, None, "{number} was drawn twice, also by {owner}");
                }
            }
            Err(DocNumberError::Storage(_) | DocNumberError::TimedOut) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn step(&mut self) {
        match self.random.u32(0..100) {
            0..5 => self.start().await,
            5..8 => {
                // A crash: its tasks end at once, also during a call.
                let at = self.random.usize(..self.nodes.len());
                drop(self.nodes.swap_remove(at));
            }
            8..12 => {
                let at = self.random.usize(..self.nodes.len());
                let (owner, node) = self.nodes.swap_remove(at);
                let patience = Duration::from_millis(self.random.u64(0..8_000));
                let deadline = self.database.clock.now() + patience;
                let end = while_time_passes(&self.manual, node.close(deadline)).await;
                if end.not_given_back == 0 {
                    self.clean.insert(owner);
                }
            }
            12..16 => self.manual.step_wall(self.random.i64(-30..=36) * 3_600_000),
            16..26 => {
                let pause = Duration::from_millis(self.random.u64(0..500));
                while_time_passes(&self.manual, self.database.clock.sleep(pause)).await;
            }
            _ => self.draw().await,
        }
        self.start_if_none_runs().await;
    }

    /// Starts nodes until one runs. A start fails if the storage fails.
    async fn start_if_none_runs(&mut self) {
        while self.nodes.is_empty() {
            self.start().await;
        }
    }

    /// Every counter below the stored one was issued, or is in the ledger. A range that the ledger
    /// calls not issued has no issued counter. In an open range the owner issued the first ones,
    /// and has crashed.
    async fn check(&self) {
        let series = Series::new(History::definition()).unwrap();
        let counters: BTreeSet<(Period, WsId)> =
            self.issued.keys().map(|(period, ws, _)| (*period, *ws)).collect();
        for (period, ws) in counters {
            let key = CounterKey { series: series.id().clone(), period, ws: Some(ws) };
            let rows = self.database.rows();
            let next = rows.counter(&key, self.database.soon()).await.unwrap().unwrap();
            let ledger = rows.ledger(&key, 0, 100_000, self.database.soon()).await.unwrap();
            let mut explained = BTreeMap::new();
            for entry in &ledger {
                let is_open = entry.state == RangeState::Open;
                let mut has_gap = false;
                for counter in (entry.first..entry.until).step_by(2) {
                    let issued_by = self.issued.get(&(period, ws, counter));
                    let is_right = issued_by.is_none_or(|by| is_open && *by == entry.owner);
                    assert!(is_right, "{counter} was issued by {issued_by:?}: {entry:?}");
                    assert!(issued_by.is_none() || !has_gap, "{counter} after a gap: {entry:?}");
                    has_gap |= issued_by.is_none();
                    let twice = explained.insert(counter, entry);
                    assert!(twice.is_none(), "{counter} is in {entry:?} and in {twice:?}");
                }
                // A stop that failed only to remove the row of an issued range loses nothing.
                let is_lost = is_open && has_gap;
                assert!(!(is_lost && self.clean.contains(&entry.owner)), "{entry:?} is lost");
            }
            for counter in (1..next).step_by(2) {
                let is_issued = self.issued.contains_key(&(period, ws, counter));
                assert!(is_issued || explained.contains_key(&counter), "{counter} is unexplained");
            }
            let last = self.issued.range((period, ws, 0)..=(period, ws, u64::MAX)).next_back();
            assert!(last.is_none_or(|((_, _, last), _)| *last < next), "{last:?} {next}");
        }
    }
}

/// Runs a history. Returns how many numbers were drawn.
pub(crate) fn run(seed: u64, steps: usize) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut history = History::new(seed).await;
        history.start_if_none_runs().await;
        for _ in 0..steps {
            history.step().await;
        }
        drop(std::mem::take(&mut history.nodes));
        drop(history.faulty.land_late_writes().await);
        history.check().await;
        history.issued.len()
    })
}

#[test]
fn in_random_histories_no_number_is_drawn_twice_and_the_ledger_explains_all_gaps() {
    let histories = if tck::trial::is_long() { 20_000 } else { 60 };
    let drawn: usize = (0..histories).map(|seed| run(seed, 60)).sum();
    assert!(drawn > histories as usize * 50, "{drawn} numbers show little");
}
