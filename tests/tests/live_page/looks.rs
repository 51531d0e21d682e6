//! The page on every screen, and for every user.

use serde_json::json;
use tck::trial::{Trial, trials};

use crate::{
    Stage,
    browser::Look,
    made_up::{cluster, kill, move_to, partition},
    views::open,
};

pub(crate) const TRIALS: &[Trial<Stage>] = trials!(looks:
    fits_on_a_phone,
    has_contrast_in_light_and_dark,
    moves_nothing_if_the_user_wishes,
);

pub(crate) const DESKTOP: Look =
    Look { width: 1_280, height: 900, scale: 1.0, is_phone: false, is_dark: false, is_calm: false };

pub(crate) const PHONE: Look =
    Look { width: 360, height: 740, scale: 2.0, is_phone: true, is_dark: true, is_calm: false };

/// The elements that reach beyond the screen.
pub(crate) const WIDE: &str = "[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() \
    && e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('thead')) \
    .map(e => e.outerHTML.slice(0, 200))";

/// The texts whose contrast is below AA of WCAG 2: 4.5 to 1.
pub(crate) const FAINT: &str = r#"(() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const paint = (...colors) => {
        canvas.clearRect(0, 0, 1, 1);
        for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
        return canvas.getImageData(0, 0, 1, 1).data;
    };
    const light = data => [.2126, .7152, .0722].reduce((sum, part, i) => {
        const c = data[i] / 255;
        return sum + part * (c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    }, 0);
    const faint = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode, element = text.parentElement;
        if (!text.data.trim() || !element.checkVisibility() || element.closest(".sr, script, thead")) {
            continue;
        }
        const grounds = [];
        for (let at = element; at; at = at.parentElement) {
            grounds.unshift(getComputedStyle(at).backgroundColor);
            if (at.tagName === "DIALOG") break;
        }
        const ground = light(paint(...grounds));
        const ink = light(paint(...grounds, getComputedStyle(element).color));
        const ratio = (Math.max(ink, ground) + .05) / (Math.min(ink, ground) + .05);
        if (ratio < 4.5) faint.push(`${ratio.toFixed(2)}: ${text.data.trim()}`);
    }
    return faint;
})()"#;

/// Shows everything that the page can show.
pub(crate) async fn show_everything(stage: &Stage) {
    open(stage).await;
    let mut state = cluster();
    for partition in state["partitions"].as_array_mut().unwrap() {
        if partition["app"] == "acme/billing" {
            let long = "a".repeat(100);
            partition["app"] = json!(format!("{long}/{long}"));
        }
    }
    state["members"][1]["state"] = json!("draining");
    state["members"][1]["wants"] = json!(["acme/shop 3"]);
    state["paused"] = json!(true);
    kill(&mut state, 2);
    let text = "violation: the row holds bytes that no earlier leader wrote ".repeat(3);
    partition(&mut state, 3)["state"] = json!(text);
    partition(&mut state, 4)["state"] = json!("recovering");
    partition(&mut state, 5)["owner"] = json!(null);
    partition(&mut state, 6)["waiting"] = json!(123_456_789);
    partition(&mut state, 6)["lag"] = json!(123_456_789);
    stage.site.show(&state);
    stage.page.wait_text("#headline", "20 of 33 partitions work").await;
    move_to(&mut state, 9, 1);
    state["lastError"] = json!(format!("storage error: {}", "x".repeat(200)));
    stage.site.show(&state);
    stage.page.wait_text("#stale", "storage error").await;
    stage.page.click("#all > summary").await;
    stage.page.wait_text("#shown", "33 found").await;
}

async fn fits_on_a_phone(stage: &Stage) {
    stage.page.look(PHONE).await;
    show_everything(stage).await;
    let page = &stage.page;
    assert_eq!(page.value("innerWidth").await, 360);
    assert_eq!(page.value(WIDE).await, json!([]));
    assert_eq!(page.value("document.documentElement.scrollWidth").await, 360);
    for button in ["[aria-label='Drain 10.0.0.1:8822']", "[data-key='acme/shop 7']"] {
        page.click(button).await;
        page.wait("document.querySelector('#ask').open").await;
        assert_eq!(page.value(WIDE).await, json!([]), "{button}");
        page.click("#ask-no").await;
    }
    // A finger needs 24 px (WCAG 2.2, 2.5.8).
    let small = "[...document.querySelectorAll('button, select, input, summary')].filter(e => \
        e.checkVisibility() && Math.min(e.offsetWidth, e.offsetHeight) < 24).map(e => e.outerHTML)";
    assert_eq!(page.value(small).await, json!([]));
}

async fn has_contrast_in_light_and_dark(stage: &Stage) {
    let page = &stage.page;
    for is_dark in [false, true] {
        page.look(Look { is_dark, ..DESKTOP }).await;
        show_everything(stage).await;
        let ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 128";
        assert_eq!(page.value(ground).await, json!(is_dark));
        assert_eq!(page.value(FAINT).await, json!([]), "is_dark: {is_dark}");
        page.click("[data-key='acme/shop 7']").await;
        page.wait("document.querySelector('#ask').open").await;
        assert_eq!(page.value(FAINT).await, json!([]), "a question, is_dark: {is_dark}");
    }
}

async fn moves_nothing_if_the_user_wishes(stage: &Stage) {
    let page = &stage.page;
    for is_calm in [false, true] {
        page.look(Look { is_calm, ..DESKTOP }).await;
        open(stage).await;
        let mut state = cluster();
        move_to(&mut state, 7, 2);
        stage.site.show(&state);
        page.wait("document.querySelectorAll('.moved').length === 1").await;
        let animation = "getComputedStyle(document.querySelector('.moved')).animationName";
        assert_eq!(page.value(animation).await, if is_calm { "none" } else { "moved" });
        let outline = "getComputedStyle(document.querySelector('.moved')).outlineStyle";
        assert_eq!(page.value(outline).await, "solid");
    }
}
