//! The page of real nodes.

use std::sync::Arc;

use clock::Clock;
use istorage::mem::MemDriver;
use tck::trial::{Trial, trials};
use vvm::Problem;

use crate::{
    Stage,
    real_node::RealNode,
    site::{Site, url_of},
};

pub(crate) const TRIALS: &[Trial<Stage>] =
    trials!(node: drains_pauses_and_steps_down, asks_for_a_token, serves_pages_of_listed_origins);

/// Two nodes share a storage. The page belongs to the first one, which owns all partitions.
async fn drains_pauses_and_steps_down(stage: &Stage) {
    let (page, driver) = (&stage.page, Arc::new(MemDriver::new(Clock::system())));
    let first = RealNode::start_with(Arc::clone(&driver)).await;
    page.open(&url_of(first.admin)).await;
    page.wait_text("#link", "live").await;
    page.wait_text("#headline", "All 10 partitions work").await;
    page.wait_text("#nodes", "this node").await;
    page.wait("document.querySelectorAll('.cell').length === 10").await;
    let second = RealNode::start_with(driver).await;
    page.wait_text("#log", &format!("{} joined", second.api)).await;
    page.wait_text("#facts", "2 of 2").await;
    let confirm = async |button: &str| {
        page.click(button).await;
        page.click("#ask-yes").await;
        page.wait("!document.querySelector('#ask').open").await;
    };
    confirm("#pause").await;
    page.wait_text("#facts", "paused").await;
    page.wait_text("#log", "Balancing was paused").await;
    confirm(&format!("[aria-label='Drain {}']", first.api)).await;
    page.wait_text("#nodes", "draining").await;
    page.wait_text("#log", &format!("{} → {}", first.api, second.api)).await;
    page.wait("document.querySelectorAll('.owner').length === 1").await;
    page.wait_text(".owner", &second.api.to_string()).await;
    page.wait_text("#headline", "All 10 partitions work").await;
    confirm(&format!("[aria-label='Cancel drain of {}']", first.api)).await;
    page.wait_text("#log", ": draining → ready").await;
    // The pause goes on, so the operator moves a partition by hand.
    confirm("[data-key='acme/shop 7']").await;
    page.wait_text("#log", &format!("acme/shop 7: {} → {}", second.api, first.api)).await;
    confirm("#pause").await;
    page.wait_text("#facts", "on").await;
    assert_eq!(page.console().await, [""; 0]);
    confirm(&format!("[aria-label='Step down {}']", first.api)).await;
    let problem = first.problem().await;
    assert!(matches!(*problem, Problem::SteppedDown), "{problem}");
    page.wait_text("#lost", "No connection to the node").await;
    second.stop().await;
}

/// A browser sends no token by itself, so the page asks for it.
async fn asks_for_a_token(stage: &Stage) {
    let page = &stage.page;
    let node = RealNode::start_with_token().await;
    page.open(&url_of(node.admin)).await;
    page.wait_text("#lost", "the request needs a token").await;
    for (token, expected) in [("wrong", "it is another one"), ("secret", "")] {
        page.wait("!document.querySelector('#token-form').hidden").await;
        page.click("#token").await;
        page.press(token).await;
        page.press("\u{e007}").await;
        if !expected.is_empty() {
            page.wait_text("#lost", expected).await;
        }
    }
    page.wait_text("#link", "live").await;
    page.wait("document.querySelector('#token-form').hidden").await;
    page.click("#pause").await;
    page.click("#ask-yes").await;
    page.wait_text("#facts", "paused").await;
    let shown = page.text("document.documentElement.outerHTML").await;
    assert!(!shown.contains("secret"), "the token stays in the page");
    page.value("sessionStorage.clear()").await;
    // The browser itself reports each refused request.
    page.console().await;
    node.stop().await;
}

/// The browser asks the API before it sends the request of a page of another origin, and lets the
/// page read the answer only if the API names the origin.
async fn serves_pages_of_listed_origins(stage: &Stage) {
    // A page without a policy of its own.
    let empty: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n";
    let (listed, other) = (Site::start(empty.into()).await, Site::start(empty.into()).await);
    let page = &stage.page;
    let origin = |site: &Site| site.url.trim_end_matches('/').to_owned();
    let node = RealNode::start_for_pages(origin(&listed)).await;
    let path = "api/v2/apps/acme/shop/workspaces/1/commands/sys.CreateWorkspace";
    let send = |token: &str, body: &str| {
        format!(
            "fetch('{}{path}', {{ method: 'POST', body: '{body}', headers: {{ 'authorization': \
             'Bearer {token}', 'content-type': 'application/json' }} }}).then(answer => {{ \
             window.answered = answer.status }}, () => {{ window.answered = 'blocked' }})",
            url_of(node.api)
        )
    };
    let create = r#"{"args":{"kind":"Shop"}}"#;
    for (site, token, expected) in [
        (&other, "secret", "'blocked'"),
        // The page can read why it was refused. The command of the other page was not sent.
        (&listed, "wrong", "401"),
        (&listed, "secret", "200"),
    ] {
        page.open(&site.url).await;
        page.value(&send(token, create)).await;
        page.wait("window.answered !== undefined").await;
        page.wait(&format!("window.answered === {expected}")).await;
    }
    // The browser itself reports each refused request.
    page.console().await;
    node.stop().await;
}
