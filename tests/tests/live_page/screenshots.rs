//! The pictures of the documentation.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    Stage,
    browser::Look,
    looks::{DESKTOP, PHONE},
    made_up::{cluster, id, move_to, partition},
};

/// Shows a cluster where a node drains, and makes two pictures of it.
pub(crate) async fn make(stage: &Stage) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    fs::create_dir_all(&folder).unwrap();
    for (name, look) in [
        ("live-page-light.png", Look { height: 1_000, ..DESKTOP }),
        ("live-page-dark-phone.png", Look { height: 1_400, scale: 1.25, ..PHONE }),
    ] {
        stage.page.look(look).await;
        let mut state = cluster();
        stage.site.show(&state);
        stage.page.open(&stage.site.url).await;
        stage.page.wait_text("#headline", "All 33 partitions work").await;
        state["members"][1]["state"] = json!("draining");
        stage.site.show(&state);
        stage.page.wait_text("#log", "draining").await;
        for at in [1, 4, 7, 10] {
            move_to(&mut state, at, if at % 2 == 0 { 0 } else { 2 });
        }
        partition(&mut state, 7)["state"] = json!("recovering");
        partition(&mut state, 12)["waiting"] = json!(3);
        assert_eq!(partition(&mut state, 13)["member"], *id(1));
        stage.site.show(&state);
        stage.page.wait_text("#headline", "32 of 33 partitions work").await;
        // After the animation of the moves.
        stage.page.wait("document.getAnimations().length === 0").await;
        let picture = stage.page.screenshot().await;
        println!("{name}: {} bytes", picture.len());
        fs::write(folder.join(name), picture).unwrap();
    }
}
