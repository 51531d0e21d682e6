//! The page of the API, which shows its operations and does them.

use serde_json::{Value, json};
use tck::trial::{Trial, trials};

use crate::{
    Stage,
    browser::{Look, Page},
    looks::{FAINT, PHONE, WIDE},
    real_node::RealNode,
};

pub(crate) const TRIALS: &[Trial<Stage>] = trials!(try_page:
    does_what_the_user_asks,
    shows_problems_and_names_as_text,
    asks_for_a_token_and_forgets_it,
    works_by_keyboard_on_a_phone,
);

async fn open(page: &Page, node: &RealNode) {
    page.open("about:blank").await;
    page.open(&format!("http://{}/api/v2/", node.api)).await;
}

/// Chooses the operation with this text in the list.
async fn choose(page: &Page, text: &str) {
    let found = format!(
        "[...document.querySelectorAll('#operations button')].find(one => \
         one.innerText.includes({}))",
        json!(text)
    );
    page.wait(&format!("{found} !== undefined")).await;
    page.value(&format!("{found}.click()")).await;
    page.wait_text("#title", text).await;
}

/// Puts a text into a field, like a user who replaces the field's text.
async fn fill(page: &Page, selector: &str, text: &str) {
    let (selector, text) = (json!(selector), json!(text));
    page.value(&format!(
        "(() => {{ const field = document.querySelector({selector}); field.value = {text}; \
         field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    ))
    .await;
}

async fn make_workspace(page: &Page) {
    choose(page, "sys.CreateWorkspace").await;
    fill(page, "#path-workspace", "7").await;
    page.click("#send").await;
    page.wait_text("#status", "200 OK").await;
}

/// The body of the answer.
async fn answer(page: &Page) -> Value {
    serde_json::from_str(&page.text("document.querySelector('#answer-body').innerText").await)
        .unwrap()
}

async fn does_what_the_user_asks(stage: &Stage) {
    let (page, node) = (&stage.page, RealNode::start().await);
    open(page, &node).await;
    make_workspace(page).await;
    assert_eq!(answer(page).await["wlogOffset"], 1);
    // The example has the fields of the table, and none that the node draws.
    choose(page, "Creates a document: shop.Invoice").await;
    let example = page.text("document.querySelector('#body').value").await;
    let example: Value = serde_json::from_str(&example).unwrap();
    assert_eq!(example, json!({ "fields": { "name": "text" } }));
    assert_eq!(page.text("document.querySelector('#path-workspace').value").await, "7");
    page.click("#headers summary").await;
    fill(page, "#header-Idempotency-Key", "once").await;
    fill(page, "#body", r#"{"fields": {"name": "it's"}}"#).await;
    let curl = page.text("document.querySelector('#curl').innerText").await;
    let path = format!("http://{}/api/v2/apps/acme/shop/workspaces/7/docs/shop.Invoice", node.api);
    let expected = format!(
        r#"curl -i -X POST '{path}' -H 'Idempotency-Key: once' -H 'Content-Type: application/json' -d '{{"fields": {{"name": "it'\''s"}}}}'"#
    );
    assert_eq!(curl, expected);
    page.click("#send").await;
    page.wait_text("#status", "201 Created").await;
    page.wait_text("#answer-headers", "x-request-id").await;
    let id = answer(page).await["newIds"]["1"].to_string();
    page.click("#send").await;
    page.wait_text("#answer-body", "\"repeated\": true").await;
    choose(page, "Reads a record: shop.Invoice").await;
    fill(page, "#path-id", &id).await;
    page.click("#send").await;
    page.wait_text("#answer-body", "it's").await;
    assert_eq!(answer(page).await["id"].to_string(), id);
    // A followed log has no end. The page shows its events as they come.
    choose(page, "Reads or follows the log of a workspace").await;
    page.value("document.querySelector('#query-follow').value = 'true'").await;
    page.click("#send").await;
    page.wait_text("#answer-body", "shop.Invoice").await;
    page.click("#stop").await;
    page.wait_text("#status", "(stopped)").await;
    assert_eq!(page.console().await, [""; 0]);
    node.stop().await;
}

async fn shows_problems_and_names_as_text(stage: &Stage) {
    let (page, node) = (&stage.page, RealNode::start().await);
    open(page, &node).await;
    make_workspace(page).await;
    choose(page, "Runs a command: sys.CUD").await;
    fill(page, "#body", r#"{"rows": [{"id": 1, "table": "<b id=made>x</b>"}]}"#).await;
    page.click("#send").await;
    page.wait_text("#status", "400 Bad Request").await;
    page.wait_text("#answer-body", "<b id=made>").await;
    page.wait("document.querySelector('#made') === null").await;
    assert_eq!(answer(page).await["code"], "bad_request");
    fill(page, "#filter", "patch bill").await;
    page.wait("document.querySelectorAll('#operations button').length === 1").await;
    page.console().await;
    node.stop().await;
}

/// A browser sends no token by itself, so the page asks for it.
async fn asks_for_a_token_and_forgets_it(stage: &Stage) {
    let (page, node) = (&stage.page, RealNode::start_with_token().await);
    open(page, &node).await;
    for (token, expected) in [("wrong", "it is another one"), ("secret", "")] {
        page.wait_text("#trouble", "token").await;
        fill(page, "#token", "").await;
        page.click("#token").await;
        page.press(token).await;
        page.press("\u{e007}").await;
        if !expected.is_empty() {
            page.wait_text("#trouble", expected).await;
        }
    }
    make_workspace(page).await;
    page.wait_text("#curl", "\"Authorization: Bearer $TOKEN\"").await;
    let shown = page.text("document.documentElement.outerHTML").await;
    assert!(!shown.contains("secret"), "the token is in the page");
    assert_eq!(page.value("localStorage.length + sessionStorage.length").await, 0);
    open(page, &node).await;
    page.wait_text("#trouble", "the request needs a token").await;
    // The browser itself reports each refused request.
    page.console().await;
    node.stop().await;
}

async fn works_by_keyboard_on_a_phone(stage: &Stage) {
    let (page, node) = (&stage.page, RealNode::start().await);
    page.look(PHONE).await;
    open(page, &node).await;
    make_workspace(page).await;
    assert_eq!(page.value(WIDE).await, json!([]));
    assert_eq!(page.value(FAINT).await, json!([]));
    page.look(Look { is_dark: false, ..PHONE }).await;
    assert_eq!(page.value(FAINT).await, json!([]));
    page.value("document.querySelector('#tag').focus()").await;
    page.tab_to("#filter").await;
    page.press("shop.note").await;
    page.tab_to("#operations button").await;
    page.press("\u{e007}").await;
    page.wait_text("#title", "Runs a command: shop.Note").await;
    page.tab_to("#body").await;
    // Ctrl + A and Delete, then a new body, then Ctrl + Enter.
    page.press("\u{e009}a\u{e000}\u{e017}{}\u{e009}\u{e007}").await;
    page.wait_text("#answer-body", "result").await;
    assert_eq!(answer(page).await["result"], 1);
    assert_eq!(page.console().await, [""; 0]);
    node.stop().await;
}
