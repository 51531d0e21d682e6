//! Made-up values of the status of a cluster.

use serde_json::{Value, json};

/// A cluster of three nodes. The applications `acme/shop` and `acme/billing` have 24 and 9
/// partitions, and partition `p` belongs to node `p mod 3`.
pub(crate) fn cluster() -> Value {
    let apps = [("acme/shop", 24), ("acme/billing", 9)];
    let partitions = apps.iter().flat_map(|(app, count)| {
        (0..*count).map(move |number| {
            let owner = number % 3;
            json!({
                "app": app, "number": number, "epoch": 4, "owner": address(owner),
                "member": id(owner), "state": "ready", "waiting": 0, "lag": 0,
            })
        })
    });
    let mut cluster = json!({
        "seats": 16, "paused": false, "ageMs": 120, "lastError": null, "thisMember": id(0),
        "members": (0..3).map(member).collect::<Vec<_>>(),
        "partitions": partitions.collect::<Vec<_>>(),
    });
    count(&mut cluster);
    cluster
}

/// The id of the member of a node.
pub(crate) fn id(node: usize) -> String {
    format!("{:032x}", 0xa1b2_c3d4_0000_0000_0000_0000_0000_0000_u128 + ((node as u128) << 96))
}

/// The address of a node.
pub(crate) fn address(node: usize) -> String {
    format!("10.0.0.{}:8822", node + 1)
}

fn member(node: usize) -> Value {
    json!({
        "id": id(node), "advertised": address(node), "cluster": format!("10.0.0.{}:8823", node + 1),
        "seat": node + 1, "version": "0.1.0", "state": "ready", "fresh": true, "leads": true,
        "leftMs": if node == 0 { json!(18_000) } else { Value::Null }, "partitions": 0, "wants": [],
        "refused": [],
    })
}

/// Counts the partitions of each member.
pub(crate) fn count(cluster: &mut Value) {
    let partitions = cluster["partitions"].as_array().unwrap().clone();
    for member in cluster["members"].as_array_mut().unwrap() {
        let is_its = |partition: &&Value| partition["member"] == member["id"];
        member["partitions"] = partitions.iter().filter(is_its).count().into();
    }
}

/// The partition at this place in the status. The first 24 are those of `acme/shop`.
pub(crate) fn partition(cluster: &mut Value, at: usize) -> &mut Value {
    &mut cluster["partitions"][at]
}

/// Moves a partition to a node.
pub(crate) fn move_to(cluster: &mut Value, at: usize, node: usize) {
    let moved = partition(cluster, at);
    moved["owner"] = address(node).into();
    moved["member"] = id(node).into();
    moved["epoch"] = (moved["epoch"].as_u64().unwrap() + 1).into();
    count(cluster);
}

/// Stops the heartbeat of a node, as if its process were killed.
pub(crate) fn kill(cluster: &mut Value, node: usize) {
    cluster["members"][node]["fresh"] = false.into();
    cluster["members"][node]["leads"] = false.into();
    for partition in cluster["partitions"].as_array_mut().unwrap() {
        if partition["member"] == *id(node) {
            partition["member"] = Value::Null;
        }
    }
}

/// Takes the partitions of a killed node away from it, and forgets the node.
pub(crate) fn bury(cluster: &mut Value, node: usize) {
    for partition in cluster["partitions"].as_array_mut().unwrap() {
        if partition["owner"] == *address(node) {
            partition["owner"] = Value::Null;
        }
    }
    cluster["members"].as_array_mut().unwrap().remove(node);
    count(cluster);
}
