use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
};

use clock::ManualClock;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::*;

/// The log lines of one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn id(name: &str, created_at: i64) -> u128 {
    table_id(&KeyspaceName::new(name).unwrap(), created_at)
}

#[test]
fn a_keyspace_that_is_created_again_gets_another_table_id() {
    const NOW: i64 = 1_795_237_782_051_000;
    assert_eq!(id("app_one", NOW), id("app_one", NOW));
    for later in [1, 0x1000, 1_000_000, 1 << 50] {
        assert_ne!(id("app_one", NOW), id("app_one", NOW + later));
    }
    assert_ne!(id("app_one", NOW), id("app_two", NOW));
}

#[test]
fn a_table_id_is_a_uuid_of_version_8() {
    let statement = layout::create_table("app_one", id("app_one", 1_795_237_782_051_000));
    let id = statement.split('\'').nth(1).unwrap();
    let parts: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    assert_eq!(&id[14..15], "8", "{id}");
    assert!("89ab".contains(&id[19..20]), "{id}");
}

#[test]
fn a_replication_strategy_has_the_syntax_of_cassandra() {
    let factors = [("north".to_owned(), 3), ("south".to_owned(), 2)];
    assert_eq!(
        datacenter_strategy(&factors.into()),
        "{'class': 'NetworkTopologyStrategy', 'north': 3, 'south': 2}"
    );
}

/// A server that hung, or that its peers could not reach, kept every node from opening a keyspace,
/// and so from taking over.
#[test]
fn a_keyspace_is_opened_when_more_than_half_of_the_servers_show_it() {
    let ours = |id: i32| Found::Ours(CqlValue::Int(id));
    let verdict = |servers, found: &[Found], may_differ| {
        let (found, unconnected) = (found.to_vec(), Vec::new());
        Survey { servers, found, unconnected, silent: None }.verdict(may_differ)
    };
    // All servers agree.
    assert_eq!(verdict(3, &[ours(1), ours(1), ours(1)], false), Some(ours(1)));
    assert_eq!(verdict(1, &[Found::Nothing], false), Some(Found::Nothing));
    // One server does not answer.
    assert_eq!(verdict(3, &[ours(1), ours(1)], false), Some(ours(1)));
    // Too few servers answer, or too few agree.
    for may_differ in [false, true] {
        assert_eq!(verdict(3, &[ours(1)], may_differ), None);
        assert_eq!(verdict(4, &[ours(1), ours(1)], may_differ), None);
        assert_eq!(verdict(3, &[], may_differ), None);
        assert_eq!(verdict(3, &[Found::Nothing, ours(1), ours(2)], may_differ), None);
    }
    // One server does not know the keyspace yet, or was cut off when the keyspace was created.
    let differ = [Found::Nothing, ours(1), ours(1)];
    assert_eq!(verdict(3, &differ, false), None);
    assert_eq!(verdict(3, &differ, true), Some(ours(1)));
}

/// Servers without a connection were not asked. A node that started while two of three servers were
/// dead did not go on, and no message said why.
#[test]
fn a_node_that_waits_for_servers_names_those_that_are_not_connected() {
    let name = KeyspaceName::new("app_one").unwrap();
    let unconnected = vec!["127.0.0.2:9042".to_owned(), "127.0.0.3:9042".to_owned()];
    let found = vec![Found::Ours(CqlValue::Int(1))];
    let why = Survey { servers: 3, found, unconnected, silent: None }.hindrance(&name);
    assert_eq!(why.kind(), ErrorKind::Unavailable, "they may come back");
    assert_eq!(
        why.to_string(),
        "1 of 3 Cassandra servers show the keyspace `app_one`, and 1 answered: more than half must agree; not \
         connected: 127.0.0.2:9042, 127.0.0.3:9042"
    );
    let silent = Some(Error::unavailable("127.0.0.2:9042 did not answer in time"));
    let survey = Survey { servers: 3, found: Vec::new(), unconnected: Vec::new(), silent };
    let told = format!("{:?}", survey.hindrance(&name));
    assert!(told.contains("0 of 3") && told.contains("did not answer in time"), "{told}");
    assert!(!told.contains("not connected"), "{told}");
}

/// A node that started while two of three servers were dead ended after a minute. Its log did not
/// name the servers that it waited for.
#[test]
fn a_node_that_waits_for_servers_logs_the_reason_once_after_5_s() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let told = || lines.0.lock().unwrap().clone();
    let (start, name) = (ManualClock::new(1).clock().now(), KeyspaceName::new("app_one").unwrap());
    let mut opening = Opening::new(&name, start);
    let mut judge = |servers: usize, seconds| {
        let unconnected = (servers..3).map(|dead| format!("127.0.0.{dead}:9042")).collect();
        let found = vec![Found::Ours(CqlValue::Int(1)); servers];
        let survey = Survey { servers: 3, found, unconnected, silent: None };
        opening.judge(survey, start + Duration::from_secs(seconds))
    };
    for seconds in 0..5 {
        assert_eq!(judge(1, seconds).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(told(), [""; 0], "after {seconds} s");
    }
    for seconds in 5..60 {
        assert!(judge(1, seconds).is_err());
        let [line] = &told()[..] else { panic!("after {seconds} s: {:?}", told()) };
        for part in ["WARN", "waiting for Cassandra servers", "app_one", "1 of 3", "127.0.0.2:9042"]
        {
            assert!(line.contains(part), "{line}");
        }
    }
    assert!(judge(2, 60).unwrap(), "one of the dead servers came back");
}

/// A node started together with its cluster, saw one server, and created a keyspace with one
/// replica. The keyspace kept one replica, so the loss of that server would have been the loss of
/// all data.
#[test]
fn a_keyspace_with_fewer_than_three_replicas_is_made_only_if_the_configuration_says_so() {
    let datacenters = |servers: usize| vec![("north".to_owned(), 5), ("south".to_owned(), servers)];
    for servers in [1, 2] {
        let error = three_everywhere(datacenters(servers)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "the others may join");
        let text = error.to_string();
        for part in ["replication", "`south`", "wait"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    }
    let three = BTreeMap::from([("north".to_owned(), 3), ("south".to_owned(), 3)]);
    assert_eq!(three_everywhere(datacenters(4)).unwrap(), three);
    let two = BTreeMap::from([("north".to_owned(), 3), ("south".to_owned(), 2)]);
    assert_eq!(up_to_three(datacenters(2)), two);
}
