//! Actions: each has a question before it, and the keyboard is enough.

use serde_json::json;
use tck::trial::{Trial, trials};

use crate::{
    Stage,
    browser::Page,
    made_up::{cluster, id},
    site::Mode,
    views::open,
};

pub(crate) const TRIALS: &[Trial<Stage>] = trials!(actions:
    are_asked_before_they_are_sent,
    reach_the_node,
    are_reported_when_refused,
    need_only_the_keyboard,
    leave_the_focus_where_it_was,
);

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const TAB: &str = "\u{e004}";
const RIGHT: &str = "\u{e014}";
const DOWN: &str = "\u{e015}";

const DRAIN_2: &str = "[aria-label='Drain 10.0.0.2:8822']";

async fn is_open(page: &Page) -> bool {
    page.value("document.querySelector('#ask').open").await == json!(true)
}

async fn are_asked_before_they_are_sent(stage: &Stage) {
    open(stage).await;
    let page = &stage.page;
    for (button, title) in [
        (DRAIN_2, "Drain 10.0.0.2:8822?"),
        ("#pause", "Pause balancing?"),
        ("#nodes tbody tr:first-child .acts button:last-child", "Step down 10.0.0.1:8822?"),
        ("[data-key='acme/shop 7']", "Move acme/shop 7?"),
    ] {
        page.click(button).await;
        page.wait_text("#ask-title", title).await;
        // A hasty key changes nothing.
        assert_eq!(page.value("document.activeElement.id !== 'ask-yes'").await, json!(true));
        page.click("#ask-no").await;
        page.wait("!document.querySelector('#ask').open").await;
    }
    assert_eq!(stage.site.targets(), [""; 0]);
    // Only this node steps down by its own page.
    let others = "[...document.querySelectorAll('.acts button:last-child')].map(b => b.hidden)";
    assert_eq!(page.value(others).await, json!([false, true, true]));
}

async fn reach_the_node(stage: &Stage) {
    open(stage).await;
    let (page, mut state) = (&stage.page, cluster());
    let confirm = async |button: &str| {
        page.click(button).await;
        page.click("#ask-yes").await;
        page.wait("!document.querySelector('#ask').open").await;
    };
    confirm(DRAIN_2).await;
    page.wait_text("#log", "Asked: Drain 10.0.0.2:8822").await;
    state["members"][1]["state"] = json!("draining");
    stage.site.show(&state);
    page.wait_text("#nodes", "Cancel drain…").await;
    confirm("[aria-label='Cancel drain of 10.0.0.2:8822']").await;
    confirm("#pause").await;
    state["paused"] = json!(true);
    stage.site.show(&state);
    page.wait_text("#pause", "Resume balancing…").await;
    page.wait_text("#facts", "paused").await;
    confirm("#pause").await;
    confirm("[aria-label='Drain 10.0.0.1:8822']").await;
    confirm("[aria-label='Step down 10.0.0.1:8822']").await;
    confirm("[data-key='acme/shop 7']").await;
    let (drained, target) = (id(1), id(2));
    assert_eq!(
        stage.site.targets(),
        [
            format!("/cluster/drain?member={drained}"),
            format!("/cluster/drain?member={drained}&cancel=true"),
            "/cluster/pause".to_owned(),
            "/cluster/resume".to_owned(),
            "/drain".to_owned(),
            "/step-down".to_owned(),
            // The node that drains is no target.
            format!("/cluster/move?app=acme/shop&partition=7&to={}", id(0)),
        ],
        "{target}"
    );
    for sent in stage.site.sent() {
        assert_eq!(format!("{}/", sent.origin), stage.site.url);
        assert_eq!(sent.admin, "1");
    }
}

async fn are_reported_when_refused(stage: &Stage) {
    open(stage).await;
    let page = &stage.page;
    stage.site.set(Mode::Refuses);
    page.click("#pause").await;
    page.click("#ask-yes").await;
    page.wait_text("#ask-error", "Not done: the member is <b>unknown</b>").await;
    assert!(is_open(page).await);
    // A second try needs no second question.
    stage.site.set(Mode::Works);
    page.click("#ask-yes").await;
    page.wait("!document.querySelector('#ask').open").await;
    assert_eq!(stage.site.targets(), ["/cluster/pause", "/cluster/pause"]);
}

async fn need_only_the_keyboard(stage: &Stage) {
    open(stage).await;
    let page = &stage.page;
    page.tab_to("#pause").await;
    page.press(ENTER).await;
    page.wait_text("#ask-title", "Pause balancing?").await;
    page.press(ESCAPE).await;
    page.wait("!document.querySelector('#ask').open").await;
    page.wait("document.activeElement.id === 'pause'").await;
    page.tab_to(DRAIN_2).await;
    page.press(ENTER).await;
    page.wait("document.activeElement.id === 'ask-no'").await;
    page.press(TAB).await;
    page.wait("document.activeElement.id === 'ask-yes'").await;
    page.press(ENTER).await;
    page.wait("!document.querySelector('#ask').open").await;
    page.wait(&format!("document.activeElement.matches(\"{DRAIN_2}\")")).await;
    // An application is one stop of the key Tab; the arrows go on from there.
    page.tab_to("[data-key='acme/shop 0']").await;
    page.press(RIGHT).await;
    page.wait("document.activeElement.dataset.key === 'acme/shop 3'").await;
    page.press(DOWN).await;
    page.wait("document.activeElement.dataset.key === 'acme/shop 4'").await;
    page.press(ENTER).await;
    page.wait_text("#ask-text", "Partition acme/shop 4: ready, owner 10.0.0.2:8822").await;
    page.wait("document.activeElement.id === 'ask-to'").await;
    page.press(DOWN).await;
    page.tab_to("#ask-yes").await;
    page.press(ENTER).await;
    page.wait("!document.querySelector('#ask').open").await;
    page.wait("document.activeElement.dataset.key === 'acme/shop 4'").await;
    page.tab_to("#all > summary").await;
    page.press(ENTER).await;
    page.wait_text("#shown", "33 found").await;
    page.tab_to("#filter").await;
    page.tab_to("[aria-label='Move acme/billing 0']").await;
    let to = id(2);
    assert_eq!(
        stage.site.targets(),
        [
            format!("/cluster/drain?member={}", id(1)),
            format!("/cluster/move?app=acme/shop&partition=4&to={to}"),
        ]
    );
    // The focus is visible.
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(page.value(outline).await, "solid");
}

/// An event in the middle of a question, or of a way by keyboard, must not take the focus away.
async fn leave_the_focus_where_it_was(stage: &Stage) {
    open(stage).await;
    let (page, mut state) = (&stage.page, cluster());
    page.tab_to("[data-key='acme/shop 0']").await;
    page.press(RIGHT).await;
    crate::made_up::move_to(&mut state, 3, 2);
    stage.site.show(&state);
    page.wait_text("#log", "acme/shop 3: ").await;
    page.wait("document.activeElement.dataset.key === 'acme/shop 3'").await;
    page.press(ENTER).await;
    page.wait_text("#ask-title", "Move acme/shop 3?").await;
    crate::made_up::move_to(&mut state, 3, 1);
    stage.site.show(&state);
    page.wait_text("#log", "10.0.0.3:8822 → 10.0.0.2:8822").await;
    assert!(is_open(page).await);
    page.press(ESCAPE).await;
    page.wait("document.activeElement.dataset.key === 'acme/shop 3'").await;
}
