use serde_json::json;

use super::*;
use crate::command::parsed;

fn id(number: u128) -> String {
    format!("{number:032x}")
}

/// A cluster as a node shows it: two nodes at work, a standby, and the row of a process that died.
fn cluster() -> Value {
    let member = |number, advertised: &str, seat, fresh: bool, leads: bool| {
        json!({
            "id": id(number), "advertised": advertised, "cluster": null, "seat": seat,
            "version": "0.1.0", "state": "ready", "fresh": fresh, "leads": leads,
            "leftMs": null, "partitions": 0, "wants": [], "refused": [],
        })
    };
    let mut first = member(0xa, "10.0.0.1:8822", json!(3), true, true);
    first["leftMs"] = 12_345.into();
    first["partitions"] = 2.into();
    first["cluster"] = "10.0.0.1:8823".into();
    let mut second = member(0xb, "10.0.0.2:8822", json!(11), true, true);
    second["state"] = "draining".into();
    second["wants"] = json!(["acme/shop 3", "acme/shop 4"]);
    second["refused"] = json!(["acme/shop 6", "acme/shop 7"]);
    let mut standby = member(0xc, "10.0.0.3:8822", Value::Null, true, false);
    standby["state"] = "starting".into();
    let partition = |number: u16, owner: Value, member: Value, state: Value| {
        json!({
            "app": "acme/shop", "number": number, "epoch": 4, "owner": owner, "member": member,
            "state": state, "waiting": 0, "lag": 0,
        })
    };
    let ready = |number| partition(number, json!("10.0.0.1:8822"), json!(id(0xa)), json!("ready"));
    let mut busy = ready(4);
    busy["waiting"] = 5.into();
    let mut behind = ready(5);
    behind["lag"] = 10_001.into();
    json!({
        "seats": 16, "paused": true, "ageMs": 120, "lastError": "no answer", "thisMember": id(0xa),
        "members": [
            first, second,
            standby,
            member(0xd, "10.0.0.1:8822", json!(7), false, false),
        ],
        "partitions": [
            ready(0), partition(1, Value::Null, Value::Null, Value::Null),
            partition(2, json!("10.0.0.9:8822"), Value::Null, Value::Null),
            partition(3, json!("10.0.0.2:8822"), json!(id(0xb)), json!("recovering")), busy, behind,
        ],
    })
}

#[test]
fn the_status_shows_the_nodes_and_the_partitions_that_need_attention() {
    let text = text_of_status(&cluster(), false);
    let expected = "\
cluster 120 ms ago, as the node with * saw it: 3 nodes, 2 of 16 seats held, balancing is paused
the last look at the cluster failed: no answer
";
    assert!(text.starts_with(expected), "{text}");
    let line = |of: &str| {
        let line = text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{text}"));
        let cells = line.trim_matches(['│', ' ']).split("  ").map(str::trim);
        cells.filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let of_first = line(&id(0xa));
    let port = "10.0.0.1:8823";
    let first = ["10.0.0.1:8822 *", "3", "ready", "2", "12.3 s", "-", port, "0.1.0", &id(0xa)];
    assert_eq!(of_first, first);
    assert_eq!(line(&id(0xb))[2..6], ["draining", "0", "-", "acme/shop 3, acme/shop 4"]);
    assert_eq!(line(&id(0xc))[..4], ["10.0.0.3:8822", "-", "standby", "0"]);
    assert_eq!(line(&id(0xd))[..3], ["10.0.0.1:8822", "7", "not responding"]);
    let refused =
        "\n10.0.0.2:8822 could not start acme/shop 6, acme/shop 7: its log has the reason\n";
    assert_eq!(text.matches("could not start").count(), 1, "{text}");
    assert!(text.contains(refused), "{text}");
    assert!(!text.contains("acme/shop/0"), "{text}");
    assert_eq!(line("acme/shop/1"), ["acme/shop/1", "-", "4", "no owner", "0", "0"]);
    let gone = ["acme/shop/2", "10.0.0.9:8822", "4", "owner not responding", "0", "0"];
    assert_eq!(line("acme/shop/2"), gone);
    assert_eq!(line("acme/shop/3")[3], "recovering");
    assert_eq!(line("acme/shop/4")[4], "5");
    assert_eq!(line("acme/shop/5")[5], "10001");
    assert!(
        text.ends_with("\n6 partitions: 6 of acme/shop; the other one needs no attention\n"),
        "{text}"
    );
}

#[test]
fn all_partitions_are_shown_on_request() {
    let text = text_of_status(&cluster(), true);
    assert!((0..6).all(|number| text.contains(&format!("acme/shop/{number} "))), "{text}");
    assert!(text.ends_with("\n6 partitions: 6 of acme/shop\n"), "{text}");
    let mut healthy = cluster();
    healthy["paused"] = false.into();
    healthy["lastError"] = Value::Null;
    healthy["partitions"].as_array_mut().unwrap().truncate(1);
    let text = text_of_status(&healthy, false);
    assert!(text.contains("balancing is on\n") && !text.contains("failed"), "{text}");
    assert!(text.ends_with("\n1 partition: 1 of acme/shop; all are ready\n"), "{text}");
    healthy["partitions"] = json!([]);
    assert!(text_of_status(&healthy, false).ends_with("\nno partition has an owner yet\n"));
}

#[test]
fn the_last_node_that_can_own_partitions_is_known() {
    let mut status = cluster();
    let is_last = |status: &Value, index: usize| is_last(status, &status["members"][index]);
    // The others drain, have no seat, or do not respond.
    assert!(is_last(&status, 0) && !is_last(&status, 1));
    status["members"][1]["state"] = "ready".into();
    assert!(!is_last(&status, 0) && !is_last(&status, 1));
}

#[test]
fn a_node_is_named_by_its_address_its_seat_or_its_id() {
    let status = cluster();
    let found = |node: &str| named(&status, node).map(|member| member["id"].as_str().unwrap());
    for (node, number) in [
        ("10.0.0.2:8822", 0xb),
        ("[::ffff:10.0.0.2]:8822", 0xb),
        ("11", 0xb),
        (&*id(0xb), 0xb),
        (&*id(0xb).to_uppercase(), 0xb),
        ("10.0.0.3:8822", 0xc),
        // The node has two rows: it was started again.
        ("10.0.0.1:8822", 0xa),
        ("7", 0xd),
    ] {
        assert_eq!(found(node).unwrap(), id(number), "{node}");
    }
    for wrong in ["10.0.0.2", "10.0.0.2:8823", "1", "", "b", "null"] {
        let refused = found(wrong).unwrap_err();
        assert_eq!(refused.code(), 2);
        let text = refused.to_string();
        let name = format!("\n  10.0.0.2:8822 (seat 11), id {}", id(0xb));
        assert!(text.contains(&name) && text.contains("10.0.0.3:8822 (no seat)"), "{text}");
    }
    let mut twice = cluster();
    twice["members"][3]["fresh"] = true.into();
    let refused = named(&twice, "10.0.0.1:8822").unwrap_err();
    assert_eq!(refused.code(), 2);
    let text = refused.to_string();
    assert!(text.contains(&id(0xa)) && text.contains(&id(0xd)), "{text}");
    assert!(!text.contains(&id(0xb)), "{text}");
}

#[test]
fn a_partition_is_named_by_its_application_and_its_number() {
    let name: PartitionName = "acme/shop/3".parse().unwrap();
    assert_eq!(name.to_string(), "acme/shop/3");
    let moves = |partition: &str| parsed(["vvm", "cluster", "move", partition, "1"]);
    assert!(moves("acme/shop/65535").is_ok());
    for wrong in ["acme/shop", "shop/3", "acme/shop/", "acme/shop/65536", "acme/shop/-1", "3", ""] {
        assert_eq!(moves(wrong).unwrap_err().exit_code(), 2, "{wrong}");
    }
}
