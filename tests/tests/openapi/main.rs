//! The description of the API, as others read it: a validator of OpenAPI, and a generator of
//! clients.
//!
//! The programs are of Python, with the versions of `requirements.txt`. Where they are missing, the
//! trials are reported as ignored.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod described_node;
mod programs;

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use libtest_mimic::Arguments;
use tck::trial::{Conclusion, Trial, TrialRunner, harness, trials};
use tokio::runtime::Runtime;

use self::{
    described_node::{DescribedNode, TOKEN},
    programs::Programs,
};

/// The longest time of a trial.
const LIMIT: Duration = Duration::from_secs(90);

const TRIALS: &[Trial<Stage>] = trials!(openapi:
    a_validator_accepts_the_description,
    a_generated_client_does_each_operation,
);

/// A node, and a folder with its description in the file `openapi.json`.
struct Stage {
    programs: Programs,
    node: DescribedNode,
    folder: tempfile::TempDir,
}

/// Runs each trial with a node of its own.
struct Stages {
    programs: Option<Programs>,
}

#[async_trait]
impl TrialRunner for Stages {
    type Context = Stage;

    async fn run(&self, trial: &Trial<Stage>) -> Conclusion {
        let Some(programs) = self.programs.clone() else {
            return Conclusion::Ignored("openapi-python-client is not installed");
        };
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage { programs, node: DescribedNode::start().await, folder };
        let description = stage.node.description().await;
        std::fs::write(stage.folder.path().join("openapi.json"), description).unwrap();
        let clock = Clock::system();
        let ended = clock.timeout_at(clock.now() + LIMIT, trial.call(&stage)).await;
        stage.node.stop().await;
        match ended {
            Ok(Err(end)) => Conclusion::Failed(end.to_string()),
            Ok(Ok(())) => Conclusion::Passed,
            Err(_) => Conclusion::Failed(format!("not over after {LIMIT:?}")),
        }
    }
}

async fn a_validator_accepts_the_description(stage: &Stage) {
    let Stage { programs, folder, .. } = stage;
    let output = programs.run("openapi-spec-validator", folder.path(), &["openapi.json"]).await;
    assert!(output.contains("openapi.json: OK"), "{output}");
}

async fn a_generated_client_does_each_operation(stage: &Stage) {
    let Stage { programs, node, folder } = stage;
    let file = |name: &str| format!("{}/tests/openapi/{name}", env!("CARGO_MANIFEST_DIR"));
    let generator = file("generator.yaml");
    let arguments = [
        "generate",
        "--path",
        "openapi.json",
        "--output-path",
        "generated",
        "--meta",
        "none",
        "--config",
        &generator,
        "--fail-on-warning",
    ];
    programs.run("openapi-python-client", folder.path(), &arguments).await;
    let (script, url) = (file("client.py"), format!("http://{}", node.api));
    let output = programs.run("python", folder.path(), &[&script, &url, TOKEN]).await;
    assert!(output.contains("operations were done"), "{output}");
}

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    let stages = Arc::new(Stages { programs: Programs::find() });
    let arguments = Arguments::from_args();
    let tests = harness::tests(runtime.handle(), "", &stages, TRIALS.iter());
    libtest_mimic::run(&arguments, tests).exit_code()
}
