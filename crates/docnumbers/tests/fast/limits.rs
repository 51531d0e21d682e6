//! The end of a counter, blocks, settings and definitions.

use docnumbers::{DocNumberError, FixError, Overflow, Policy, RenderError};

use super::*;

/// `SequenceReservationRange: overflow`. A counter that is full refuses draws and reserves nothing
/// more, even after a restart.
#[tokio::test]
async fn a_full_counter_refuses_draws() {
    let database = Database::new(Clock::system()).await;
    let definition = Definition {
        overflow: Overflow::Error,
        start: 1,
        step: 4,
        ..Definition::new("small", "S{counter:2}")
    };
    let all: Vec<u64> = (1..=97).step_by(4).collect();
    for expected in [all, Vec::new()] {
        let node = database.node(definition.clone(), "node", 10).await;
        let mut drawn = Vec::new();
        let refused = loop {
            match node.next(WS, database.soon()).await {
                Ok(number) => drawn.push(number.counter),
                Err(refused) => break refused,
            }
        };
        let full = RenderError::CounterOverflow { counter: 101, width: 2 };
        assert!(matches!(refused, DocNumberError::Render(error) if error == full), "{refused:?}");
        assert_eq!(drawn, expected);
        database.settle().await;
        assert_eq!(node.close(database.soon()).await.given_back, 0);
        assert_eq!(database.ledger(&node).await, []);
    }
}

/// A series that widens reserved no number past the digits of its template, and no test noticed.
/// By default a counter of five digits would have ended at 99,999.
#[tokio::test]
async fn a_counter_goes_on_behind_its_digits() {
    let database = Database::new(Clock::system()).await;
    let definition = Definition { start: 8, ..Definition::new("wide", "W{counter:1}") };
    let node = database.node(definition, "node", 10).await;
    let mut texts = Vec::new();
    for _ in 0..5 {
        texts.push(node.next(WS, database.soon()).await.unwrap().text);
    }
    assert_eq!(texts, ["W8", "W9", "W10", "W11", "W12"]);
}

/// A counter that widens ends, too: at the last number of 64 bits. The refusal said that it needs
/// more digits, and advised to let it widen.
#[tokio::test]
async fn a_counter_that_widens_ends_at_the_last_number_of_64_bits() {
    let database = Database::new(Clock::system()).await;
    let definition =
        Definition { start: u64::MAX - 5, step: 2, ..Definition::new("wide", "W{counter:2}") };
    for expected in [vec![u64::MAX - 5, u64::MAX - 3, u64::MAX - 1], Vec::new()] {
        let node = database.node(definition.clone(), "node", 2).await;
        for counter in expected {
            let number = node.next(WS, database.soon()).await.unwrap();
            assert_eq!(number.text, format!("W{counter}"));
        }
        let refused = node.next(WS, database.soon()).await.unwrap_err();
        assert!(matches!(refused, DocNumberError::Render(RenderError::CounterEnd)), "{refused:?}");
        assert!(refused.to_string().contains("declare a new series"), "{refused}");
        database.settle().await;
        assert_eq!(node.close(database.soon()).await.given_back, 0);
        assert_eq!(database.ledger(&node).await, []);
    }
}

/// A number without a text takes no counter.
#[tokio::test]
async fn a_workspace_with_too_many_digits_draws_nothing() {
    let database = Database::new(Clock::system()).await;
    let scope = docnumbers::Scope::Application;
    let definition = Definition { scope, ..Definition::new("small", "S{ws:1}-{counter:2}") };
    let node = database.node(definition, "node", 10).await;
    assert_eq!(database.draw(&node, 1).await, [0]);
    for _ in 0..3 {
        let refused = node.next(WsId(10), database.soon()).await.unwrap_err();
        let DocNumberError::Render(RenderError::WorkspaceOverflow { .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(node.block(WsId(10), 5, database.soon()).await.is_err());
    }
    assert_eq!(database.draw(&node, 1).await, [1]);
}

/// The first draw of a workspace with too many digits reserved a range, and none of its numbers
/// could ever be issued.
#[tokio::test]
async fn a_workspace_with_too_many_digits_reserves_nothing() {
    let database = Database::new(Clock::system()).await;
    for scope in [docnumbers::Scope::Workspace, docnumbers::Scope::Application] {
        let id = format!("{scope:?}");
        let definition = Definition { scope, ..Definition::new(&id, "S{ws:1}-{counter:2}") };
        let node = database.node(definition, "node", 10).await;
        let ws = WsId(10);
        assert!(node.next(ws, database.soon()).await.is_err());
        assert!(node.block(ws, 5, database.soon()).await.is_err());
        database.settle().await;
        let now = node.series().day(database.clock.wall()).unwrap();
        let key = node.series().counter_key(now.period(), ws);
        assert_eq!(database.rows().counter(&key, database.soon()).await.unwrap(), None, "{id}");
    }
}

#[tokio::test]
async fn a_block_is_drawn_in_one_step() {
    let database = Database::new(Clock::system()).await;
    let node = database.node(tickets(), "node", 10).await;
    let block = async |count| {
        let numbers = node.block(WS, count, database.soon()).await.unwrap();
        numbers.into_iter().map(|number| number.counter).collect::<Vec<_>>()
    };
    assert_eq!(block(3).await, [0, 1, 2]);
    assert_eq!(block(1_000).await, (3..1_003).collect::<Vec<_>>(), "larger than several ranges");
    assert_eq!(block(1).await, [1_003]);
    for count in [0, 1_001] {
        let refused = node.block(WS, count, database.soon()).await.unwrap_err();
        assert!(matches!(refused, DocNumberError::Block { max: 1_000, .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn settings_that_draw_nothing_are_refused() {
    let database = Database::new(Clock::system()).await;
    let usual = FastSettings::default;
    for settings in [
        FastSettings { range: 0, ..usual() },
        FastSettings { range: u64::MAX, ..usual() },
        FastSettings { counters_held: 0, ..usual() },
        FastSettings { counters_held: usize::MAX, ..usual() },
        FastSettings { max_block: 0, ..usual() },
        FastSettings { max_block: u32::MAX, ..usual() },
    ] {
        let series = Series::new(tickets()).unwrap();
        let opened = FastSeries::open(series, database.rows(), "a", settings, database.soon());
        let refused = opened.await.unwrap_err();
        assert!(matches!(refused, FixError::Settings(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn a_definition_that_could_repeat_a_number_is_refused() {
    let database = Database::new(Clock::system()).await;
    let open = async |template| {
        let series = Series::new(Definition::new("ticket", template)).unwrap();
        let (rows, settings) = (database.rows(), FastSettings::default());
        FastSeries::open(series, rows, "node", settings, database.soon()).await
    };
    let node = open("T{counter:2}7").await.unwrap();
    assert_eq!(database.draw(&node, 2).await, [0, 1]);
    node.close(database.soon()).await;
    let node = open("U{counter:2}").await.unwrap();
    assert_eq!(database.draw(&node, 1).await, [2], "the counter belongs to the series");
    let refused = open("T{counter:3}").await.unwrap_err();
    assert!(matches!(refused, FixError::Replace { .. }), "{refused:?}");
    let gapless = database.rows().fix(node.series(), Policy::Gapless, database.soon()).await;
    assert!(matches!(gapless, Err(FixError::Policy(_))), "{gapless:?}");
    let stored = database.rows().definitions(database.soon()).await.unwrap();
    assert_eq!(stored, [(node.series().definition().clone(), Policy::Fast)]);
}

#[tokio::test]
async fn the_case_of_an_id_does_not_make_another_series() {
    let database = Database::new(Clock::system()).await;
    for (id, expected) in [("Ticket", 0), ("TICKET", 1)] {
        let node = database.node(Definition::new(id, "T{counter:5}"), "node", 10).await;
        assert_eq!(database.draw(&node, 1).await, [expected]);
        node.close(database.soon()).await;
    }
}

/// Many callers at once draw each number once, although each range is for few of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_at_the_same_time_draw_different_numbers() {
    let database = Database::new(Clock::system()).await;
    let node = database.node(tickets(), "node", 7).await;
    let until = database.soon();
    let callers = (0..50).map(|_| {
        let node = node.clone();
        async move {
            let mut drawn = Vec::new();
            for _ in 0..40 {
                drawn.push(node.next(WS, until).await.unwrap().counter);
            }
            Ok(drawn)
        }
    });
    let mut drawn = tck::trial::tasks::all(callers).await.unwrap().concat();
    drawn.sort_unstable();
    assert_eq!(drawn, (0..2_000).collect::<Vec<_>>());
    let end = node.close(database.soon()).await;
    assert_eq!((end.not_issued, end.not_given_back), (0, 0));
    assert!(end.given_back <= 14, "{end:?}");
    assert_eq!(database.ledger(&node).await, []);
    let next = database.node(tickets(), "next", 7).await;
    assert_eq!(database.draw(&next, 1).await, [2_000]);
}
