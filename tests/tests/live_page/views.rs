//! The page shows what happens.

use serde_json::json;
use tck::trial::{Trial, trials};

use crate::{
    Stage,
    made_up::{address, bury, cluster, count, id, kill, move_to, partition},
    site::Mode,
};

pub(crate) const TRIALS: &[Trial<Stage>] = trials!(views:
    shows_nodes_and_partitions,
    shows_a_move,
    shows_a_killed_node,
    shows_a_drain,
    shows_a_partition_that_does_not_work,
    shows_names_as_text,
    says_that_the_connection_is_lost,
    says_that_the_node_sees_nothing_new,
    reads_now_and_then_if_no_stream_is_free,
    finds_partitions_in_the_table,
);

/// Opens the page, and waits until the page shows the cluster of `made_up`.
pub(crate) async fn open(stage: &Stage) {
    stage.site.show(&cluster());
    stage.page.open(&stage.site.url).await;
    stage.page.wait_text("#headline", "All 33 partitions work").await;
}

/// An expression: the address beside a cell.
fn owner_of(cell: &str) -> String {
    let cell = json!(format!("[data-key='{cell}']"));
    format!("document.querySelector({cell}).closest('.owner').querySelector('.name').innerText")
}

async fn shows_nodes_and_partitions(stage: &Stage) {
    open(stage).await;
    let page = &stage.page;
    assert_eq!(
        page.text("document.querySelector('#from').innerText").await,
        "seen from 10.0.0.1:8822"
    );
    assert_eq!(page.text("document.querySelector('#link').innerText").await, "live");
    let rows = page.text("document.querySelector('#nodes tbody').innerText").await;
    for text in ["10.0.0.1:8822", "this node", "ready", "0.1.0", "11", "a1b2c3d4", "held"] {
        assert!(rows.contains(text), "{text}: {rows}");
    }
    assert_eq!(page.value("document.querySelectorAll('.cell').length").await, 33);
    assert_eq!(page.value("document.querySelectorAll('.app').length").await, 2);
    assert_eq!(page.text(&owner_of("acme/shop 7")).await, address(1));
    let label = "document.querySelector(\"[data-key='acme/shop 7']\").getAttribute('aria-label')";
    let expected = "acme/shop 7: ready, owner 10.0.0.2:8822, epoch 4, queue 0, lag 0";
    assert_eq!(page.text(label).await, expected);
    // The time that is left goes on between two events. The node knows only its own.
    let left = "parseInt(document.querySelector('#nodes tbody tr td:nth-child(4)').innerText)";
    assert!(page.value(left).await.as_u64().unwrap() <= 18);
    page.wait(&format!("{left} < 17")).await;
    assert_eq!(page.console().await, [""; 0]);
}

async fn shows_a_move(stage: &Stage) {
    open(stage).await;
    let page = &stage.page;
    assert_eq!(page.value("document.querySelectorAll('.moved').length").await, 0);
    let mut moved = cluster();
    move_to(&mut moved, 7, 2);
    stage.site.show(&moved);
    page.wait(&format!("{} === '{}'", owner_of("acme/shop 7"), address(2))).await;
    page.wait("document.querySelector(\"[data-key='acme/shop 7']\").matches('.moved')").await;
    assert_eq!(page.value("document.querySelectorAll('.moved').length").await, 1);
    let log = page.text("document.querySelector('#log').innerText").await;
    assert!(log.contains("acme/shop 7: 10.0.0.2:8822 → 10.0.0.3:8822"), "{log}");
    assert!(log.contains(':'), "without a time: {log}");
    // The highlight goes after a while; the log stays.
    page.wait_text("#nodes", "10").await;
}

async fn shows_a_killed_node(stage: &Stage) {
    open(stage).await;
    let (page, mut state) = (&stage.page, cluster());
    kill(&mut state, 2);
    stage.site.show(&state);
    page.wait_text("#nodes", "not responding").await;
    page.wait_text("#log", "10.0.0.3:8822: ready → not responding").await;
    page.wait_text("#headline", "22 of 33 partitions work").await;
    page.wait_text(
        "#trouble",
        "acme/shop 2, 5, 8, 11, 14, 17, 20, 23: owner not responding (10.0.0.3:8822)",
    )
    .await;
    bury(&mut state, 2);
    stage.site.show(&state);
    page.wait("document.title.startsWith('(11!)')").await;
    page.wait_text("#trouble", "acme/billing 2, 5, 8: no owner").await;
    page.wait_text("#log", "10.0.0.3:8822 is gone").await;
    page.wait_text("#log", "2, 5, 8, 11, 14, 17, 20, 23: 10.0.0.3:8822 → nobody").await;
    assert_eq!(page.text(&owner_of("acme/shop 2")).await, "nobody");
    for at in 0..33 {
        if partition(&mut state, at)["owner"].is_null() {
            move_to(&mut state, at, at % 2);
        }
    }
    stage.site.show(&state);
    page.wait_text("#headline", "All 33 partitions work").await;
    page.wait("document.querySelectorAll('#nodes tbody tr').length === 2").await;
}

async fn shows_a_drain(stage: &Stage) {
    open(stage).await;
    let (page, mut state) = (&stage.page, cluster());
    state["members"][1]["state"] = json!("draining");
    stage.site.show(&state);
    page.wait_text("#nodes", "draining").await;
    page.wait_text("#log", "10.0.0.2:8822: ready → draining").await;
    page.wait_text("#nodes", "Cancel drain…").await;
    for at in 0..33 {
        if partition(&mut state, at)["member"] == *id(1) {
            move_to(&mut state, at, 2 * (at % 2));
            stage.site.show(&state);
        }
    }
    page.wait_text("#nodes tbody tr:nth-child(2) td:nth-child(5)", "0").await;
    page.wait("document.querySelectorAll('.owner').length === 4").await;
    page.wait_text("#headline", "All 33 partitions work").await;
}

async fn shows_a_partition_that_does_not_work(stage: &Stage) {
    open(stage).await;
    let (page, mut state) = (&stage.page, cluster());
    partition(&mut state, 4)["state"] = json!("recovering: 1200 events");
    partition(&mut state, 5)["state"] = json!("violation: a foreign row at offset 7");
    partition(&mut state, 5)["waiting"] = json!(12);
    stage.site.show(&state);
    page.wait_text("#headline", "31 of 33 partitions work").await;
    let trouble = page.text("document.querySelector('#trouble').innerText").await;
    let lines: Vec<_> = trouble.lines().collect();
    assert_eq!(lines[0], "acme/shop 5: violation: a foreign row at offset 7 (10.0.0.3:8822)");
    assert_eq!(lines[1], "acme/shop 4: recovering: 1200 events (10.0.0.2:8822)");
    page.wait_text("#log", "acme/shop 5 failed: violation").await;
    page.wait("document.querySelector('#summary').matches('.bad')").await;
    page.wait("document.querySelector(\"[data-key='acme/shop 4']\").innerText === '4…'").await;
    page.wait("document.querySelector(\"[data-key='acme/shop 5']\").matches('.bad.busy')").await;
}

/// A name that a page takes for HTML would run as a script of the operator.
async fn shows_names_as_text(stage: &Stage) {
    const NAME: &str = "<img src=x onerror=window.hacked=1>/<script>window.hacked=1</script>";
    let (page, mut state) = (&stage.page, cluster());
    for partition in state["partitions"].as_array_mut().unwrap() {
        if partition["app"] == "acme/shop" {
            partition["app"] = json!(NAME);
        }
    }
    state["members"][1]["version"] = json!(NAME);
    state["members"][1]["wants"] = json!([NAME]);
    state["lastError"] = json!(NAME);
    partition(&mut state, 3)["state"] = json!(format!("violation: {NAME}"));
    stage.site.show(&state);
    page.open(&stage.site.url).await;
    page.click("#all > summary").await;
    for place in ["#apps", "#nodes", "#trouble", "#stale", "#all"] {
        page.wait_text(place, NAME).await;
    }
    move_to(&mut state, 7, 2);
    stage.site.show(&state);
    page.wait_text("#log", NAME).await;
    page.click(".cell[data-key$=' 7']").await;
    page.wait_text("#ask-text", NAME).await;
    stage.site.set(Mode::Refuses);
    page.click("#ask-yes").await;
    page.wait_text("#ask-error", "the member is <b>unknown</b>").await;
    assert_eq!(page.value("document.querySelectorAll('img, b, script').length").await, 1);
    assert_eq!(page.value("typeof window.hacked").await, "undefined");
}

async fn says_that_the_connection_is_lost(stage: &Stage) {
    open(stage).await;
    let page = &stage.page;
    stage.site.set(Mode::Down);
    page.wait_text("#lost", "No connection to the node").await;
    page.wait_text("#lost", "This page shows the data of ").await;
    page.wait_text("#lost-age", " s ago)").await;
    page.wait_text("#link", "not connected").await;
    page.wait_text("#nodes", "unknown").await;
    page.wait_text("#headline", "All 33 partitions work (at ").await;
    page.wait("!document.querySelector('#summary').matches('.good')").await;
    assert_eq!(page.value("document.querySelector('#lost-text').role").await, "alert");
    page.click("#pause").await;
    page.wait_text("#ask-text", "The connection is lost: the data is from ").await;
    page.click("#ask-yes").await;
    page.wait_text("#ask-error", "Not done: ").await;
    page.click("#ask-no").await;
    let mut state = cluster();
    move_to(&mut state, 7, 2);
    stage.site.show(&state);
    // From its next pause on the page connects only after a click. Before, the page sometimes
    // connected by itself and hid the button before the click.
    page.value("(window.timeout = setTimeout, window.setTimeout = (_, ms) => { window.pauses = ms !== SILENCE_MS })").await;
    page.wait("window.pauses === true").await;
    stage.site.set(Mode::Works);
    page.click("#again").await;
    page.wait("document.querySelector('#lost').hidden").await;
    page.value("(window.setTimeout = window.timeout, true)").await;
    page.wait_text("#link", "live").await;
    page.wait_text("#log", "The connection is back").await;
    page.wait_text("#log", "acme/shop 7: 10.0.0.2:8822 → 10.0.0.3:8822").await;
    // Without a click, too.
    stage.site.set(Mode::Down);
    page.wait_text("#link", "not connected").await;
    stage.site.set(Mode::Works);
    page.wait_text("#link", "live").await;
}

async fn says_that_the_node_sees_nothing_new(stage: &Stage) {
    open(stage).await;
    let (page, mut state) = (&stage.page, cluster());
    state["ageMs"] = json!(25_000);
    state["lastError"] = json!("no reply within 5 s");
    stage.site.show(&state);
    let text = "This node could not read the cluster: no reply within 5 s. The data is 25 s old.";
    page.wait_text("#stale", text).await;
    stage.site.show(&cluster());
    page.wait("document.querySelector('#stale').hidden").await;
}

async fn reads_now_and_then_if_no_stream_is_free(stage: &Stage) {
    stage.site.set(Mode::Full);
    open(stage).await;
    stage.page.wait_text("#link", "reading every 5 s").await;
    let mut state = cluster();
    move_to(&mut state, 7, 2);
    stage.site.show(&state);
    stage.page.wait_text("#log", "acme/shop 7: ").await;
}

async fn finds_partitions_in_the_table(stage: &Stage) {
    let (page, mut state) = (&stage.page, cluster());
    open(stage).await;
    page.click("#all > summary").await;
    page.wait_text("#shown", "33 found").await;
    assert_eq!(page.value("document.querySelectorAll('#all tbody tr').length").await, 35);
    page.click("#filter").await;
    page.press("BILLING 0.2").await;
    page.wait_text("#shown", "3 found").await;
    // A search without a result, and a cluster that is too large for the table.
    page.press("x").await;
    page.wait_text("#shown", "0 found").await;
    page.press("\u{e003}".repeat(12).as_str()).await;
    let many = (0..1_200).map(|number| {
        let mut more = cluster()["partitions"][0].clone();
        more["number"] = json!(number);
        more
    });
    state["partitions"] = many.collect();
    count(&mut state);
    stage.site.show(&state);
    page.wait_text("#shown", "500 of 1200 shown: use the filter").await;
    page.wait_text("#headline", "All 1200 partitions work").await;
}
