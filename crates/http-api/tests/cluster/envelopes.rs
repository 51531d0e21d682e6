//! The envelopes of forwarded requests: a node does only what is meant for it.

use http_api::vvm::eventlog::WsId;
use shop::http_client::{command_path, logged};

use crate::support::{Answer, ClusterNode, NodeOptions, ROW, TestCluster, WS, ask};

/// The envelope of a request for the workspace, with changes.
fn addressed(node: &ClusterNode, change: impl Fn(&mut [String; 4])) -> Answer {
    let incarnation = node.launched.node().incarnation().unwrap();
    let app = node.launched.node().app("demo", "shop").unwrap();
    let epoch = app.at(WsId(WS)).unwrap().epoch().0;
    let mut fields =
        [incarnation.to_string(), "1".to_owned(), epoch.to_string(), "5000".to_owned()];
    change(&mut fields);
    let names = ["incarnation", "partition", "epoch", "deadline-ms"];
    let fields = names.iter().zip(&fields).filter(|(_, field)| !field.is_empty());
    let headers: String =
        fields.map(|(name, field)| format!("x-vvm-{name}: {field}\r\n")).collect();
    ask(node.cluster, "POST", &command_path(WS, "sys.CUD"), &headers, ROW)
}

#[test]
fn a_request_for_another_process_or_epoch_is_refused() {
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions::default());
    assert_eq!(addressed(&owner, |_| {}).status, 200);
    let events = logged(owner.api, WS).len();
    type Change = fn(&mut [String; 4]);
    let changes: [Change; 9] = [
        |fields| fields[0] = format!("{:032x}", 7),
        |fields| fields[1] = "2".to_owned(),
        |fields| fields[2] = "2".to_owned(),
        |fields| fields[2] = "0".to_owned(),
        |fields| fields[0].clear(),
        |fields| fields[1].clear(),
        |fields| fields[2].clear(),
        |fields| fields[3].clear(),
        |fields| fields.fill(String::new()),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let refused = addressed(&owner, change);
        assert_eq!((refused.status, refused.code().as_str()), (421, "misdirected"), "{at}");
        assert_eq!(refused.header("x-vvm-problem"), Some("misdirected"));
    }
    assert_eq!(logged(owner.api, WS).len(), events, "nothing was done");
    // The time of the sender counts.
    let late = addressed(&owner, |fields| fields[3] = "0".to_owned());
    assert_eq!(late.status, 503, "{late:?}");
    owner.stop();
}

#[test]
fn the_envelope_of_a_client_means_nothing() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let headers = format!(
        "x-vvm-incarnation: {:032x}\r\nx-vvm-partition: 7\r\nx-vvm-epoch: 9\r\nx-vvm-deadline-ms: 0\r\n",
        7
    );
    for node in [&owner, &entry] {
        let done = node.ask("POST", &command_path(WS, "sys.CUD"), &headers, ROW);
        assert_eq!(done.status, 200, "{done:?}");
        assert_eq!(done.header("x-vvm-problem"), None);
    }
    entry.stop();
    owner.stop();
}

/// A request that the wrong node gets is not passed on: two nodes that take each other for the
/// owner would send it to and fro.
#[test]
fn a_forwarded_request_is_never_forwarded_again() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let incarnation = owner.launched.node().incarnation().unwrap();
    let headers = format!(
        "x-vvm-incarnation: {incarnation}\r\nx-vvm-partition: 1\r\nx-vvm-epoch: 1\r\nx-vvm-deadline-ms: 5000\r\n"
    );
    let refused = ask(entry.cluster, "POST", &command_path(WS, "sys.CUD"), &headers, ROW);
    assert_eq!((refused.status, refused.code().as_str()), (421, "misdirected"));
    assert_eq!(entry.metric("httpapi_forwarded_total{outcome=\"answered\"}"), 0.0);
    entry.stop();
    owner.stop();
}
