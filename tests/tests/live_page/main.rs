//! The live page of the admin endpoint, in a headless Chromium that chromedriver drives.
//!
//! Most trials show made-up values of the status: the test serves them itself, and the page with
//! its headers comes from a real admin endpoint. The trials of the module `node` show a real node.
//! All trials use one browser, one after another.
//!
//! `cargo test -p vvm-tests --test live_page -- --screenshots` runs no trial, and makes the
//! pictures of the documentation.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod actions;
mod browser;
mod looks;
mod made_up;
mod node;
mod real_node;
mod screenshots;
mod site;
mod try_page;
mod views;

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use libtest_mimic::Arguments;
use tck::trial::{Conclusion, Trial, TrialRunner, harness};
use tokio::{runtime::Runtime, sync::Mutex};

use self::{
    browser::{Browser, Page, Programs},
    real_node::RealNode,
    site::Site,
};

/// The longest time of a trial.
const LIMIT: Duration = Duration::from_secs(90);

/// The argument that asks for pictures in the place of trials.
const SCREENSHOTS: &str = "--screenshots";

/// A page in the browser, which shows what the site sends.
struct Stage {
    page: Page,
    site: Site,
}

/// Runs each trial on a site of its own.
struct Stages {
    programs: Option<Programs>,
    opened: Mutex<Option<Opened>>,
}

/// The browser, and the page as a real admin endpoint sends it.
struct Opened {
    browser: Browser,
    html: Arc<[u8]>,
}

impl Stages {
    /// Makes a stage. The lock keeps other trials away from the browser.
    async fn stage(&self, opened: &mut Option<Opened>) -> Option<Stage> {
        let programs = self.programs.as_ref()?;
        if opened.is_none() {
            let node = RealNode::start().await;
            let html = node.page().await.into();
            node.stop().await;
            *opened = Some(Opened { browser: Browser::open(programs).await, html });
        }
        let opened = opened.as_ref()?;
        let page = opened.browser.page();
        page.look(looks::DESKTOP).await;
        // The lines of the trial before.
        page.console().await;
        Some(Stage { page, site: Site::start(Arc::clone(&opened.html)).await })
    }

    async fn close(&self) {
        if let Some(opened) = self.opened.lock().await.take() {
            opened.browser.close().await;
        }
    }
}

#[async_trait]
impl TrialRunner for Stages {
    type Context = Stage;

    async fn run(&self, trial: &Trial<Stage>) -> Conclusion {
        let mut opened = self.opened.lock().await;
        let Some(stage) = self.stage(&mut opened).await else {
            return Conclusion::Ignored("chromium or chromedriver is not installed");
        };
        let clock = Clock::system();
        let ended = clock.timeout_at(clock.now() + LIMIT, trial.call(&stage)).await;
        match ended {
            Ok(Err(end)) => Conclusion::Failed(format!("{end}\n{}", stage.page.report().await)),
            Ok(Ok(())) => Conclusion::Passed,
            Err(_) => Conclusion::Failed(format!("not over after {LIMIT:?}")),
        }
    }
}

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    let stages = Arc::new(Stages { programs: Programs::find(), opened: Mutex::default() });
    let code = if std::env::args().any(|argument| argument == SCREENSHOTS) {
        runtime.block_on(async {
            let mut opened = stages.opened.lock().await;
            let stage = stages.stage(&mut opened).await.expect("a browser");
            screenshots::make(&stage).await;
        });
        ExitCode::SUCCESS
    } else {
        let mut arguments = Arguments::from_args();
        arguments.test_threads = Some(1);
        let trials =
            [views::TRIALS, actions::TRIALS, looks::TRIALS, node::TRIALS, try_page::TRIALS];
        let tests = harness::tests(runtime.handle(), "", &stages, trials.into_iter().flatten());
        libtest_mimic::run(&arguments, tests).exit_code()
    };
    runtime.block_on(stages.close());
    code
}
