use clock::ManualClock;

use super::{super::PIECE_BYTES, *};

fn event(bytes: usize) -> Option<Bytes> {
    Some(Bytes::from(vec![b'x'; bytes]))
}

fn lengths(found: TailEvents) -> Vec<usize> {
    match found {
        TailEvents::Events(events) => events.iter().map(Bytes::len).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn followers_find_the_last_events() {
    let now = ManualClock::new(1).clock().now();
    let mut tail = Tail::new(7);
    assert_eq!(tail.events(7, PIECE_BYTES), TailEvents::End);
    assert_eq!(tail.events(9, PIECE_BYTES), TailEvents::End, "a newcomer waits for the reader");
    for _ in 0..9 {
        tail.add(event(COPIED_BYTES), now);
    }
    // Four of them fit.
    assert_eq!(tail.events(11, PIECE_BYTES), TailEvents::Behind);
    assert_eq!(lengths(tail.events(12, 2 * COPIED_BYTES)), [COPIED_BYTES; 2]);
    assert_eq!(lengths(tail.events(15, 1)), [COPIED_BYTES], "one comes in any case");
    assert_eq!(tail.events(16, PIECE_BYTES), TailEvents::End);
}

/// A log kept at most 32 KiB, so all its followers read each larger event themselves.
#[test]
fn a_large_event_is_kept_until_the_followers_have_it() {
    let manual = ManualClock::new(1);
    let now = || manual.clock().now();
    let mut tail = Tail::new(1);
    let large = 10 * TAIL_BYTES;
    for size in [100, large, 200] {
        tail.add(event(size), now());
    }
    assert_eq!(lengths(tail.events(1, 2 * large)), [100, large, 200]);
    manual.advance(LARGE_TIME);
    tail.add(event(300), now());
    assert_eq!(tail.events(2, 1), TailEvents::Behind, "the memory is for others");
    assert_eq!(lengths(tail.events(3, PIECE_BYTES)), [200, 300]);
    // An event of any size is kept at first, and one log does not take all memory.
    tail.add(event(2 * LARGE_BYTES), now());
    assert_eq!(lengths(tail.events(5, 1)), [2 * LARGE_BYTES]);
    tail.add(event(LARGE_BYTES), now());
    assert_eq!(tail.events(5, 1), TailEvents::Behind);
    assert_eq!(lengths(tail.events(6, 1)), [LARGE_BYTES]);
    assert_eq!((tail.small_bytes, tail.large_bytes), (0, LARGE_BYTES));
}

#[test]
fn an_event_without_memory_is_read_by_its_followers() {
    let now = ManualClock::new(1).clock().now();
    let mut tail = Tail::new(1);
    [event(100), None, event(200)].into_iter().for_each(|event| tail.add(event, now));
    assert_eq!(tail.events(2, 1), TailEvents::Behind);
    assert_eq!(lengths(tail.events(3, 1)), [200]);
}

#[test]
fn followers_get_the_events_in_front_of_a_failure() {
    let mut tail = Tail::new(1);
    tail.add(event(100), ManualClock::new(1).clock().now());
    tail.fail("event 2 is damaged".to_owned());
    assert_eq!(lengths(tail.events(1, 1)), [100]);
    assert_eq!(tail.events(2, 1), TailEvents::Failed("event 2 is damaged".to_owned()));
}
