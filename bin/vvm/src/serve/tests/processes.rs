//! Tests that end their process. Such a test starts itself as a process of its own.

#![allow(clippy::disallowed_methods)]

use std::{
    env,
    io::Read,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// This variable is set in a process that a test started.
const IS_CHILD: &str = "VVM_TEST_IS_CHILD";

/// Returns whether this process was started by [`run`].
pub(super) fn is_child() -> bool {
    env::var_os(IS_CHILD).is_some()
}

/// Runs a test as a process, and waits for the end of the process. Nobody reads its output until
/// then. Returns what fitted into its stderr.
pub(super) fn run(test: &str) -> (ExitStatus, String) {
    let start = Instant::now();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(IS_CHILD, "yes")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("the process did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut output = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut output).unwrap();
    (status, String::from_utf8_lossy(&output).into_owned())
}

mod tests {
    use std::{sync::Arc, time::Duration};

    use async_trait::async_trait;
    use clock::Clock;
    use istorage::mem::MemDriver;
    use rustix::process::{Signal, getpid, kill_process};
    use tokio_util::sync::CancellationToken;
    use vvm::{Node, NodeSettings, Service, ServiceError, Vvm};

    use super::{is_child, run};
    use crate::serve::{run_provided, supervisor::Supervisor};
    use ctl::terminal::Signals;

    /// A service that does not end when it is told to stop.
    #[derive(Debug)]
    struct LateService;

    #[async_trait]
    impl Service for LateService {
        fn name(&self) -> &'static str {
            "late"
        }

        async fn bind(&mut self) -> Result<(), ServiceError> {
            Ok(())
        }

        async fn run(self: Box<Self>, _: Node, _: CancellationToken) -> Result<(), ServiceError> {
            kill_process(getpid(), Signal::TERM)?;
            std::future::pending().await
        }
    }

    #[test]
    fn code_9_a_service_does_not_stop_in_time() {
        if is_child() {
            let clock = Clock::system();
            let settings = NodeSettings {
                stop_within: Duration::from_secs(1),
                ..NodeSettings::new("127.0.0.1:7000".parse().unwrap())
            };
            let node = Vvm::builder(Arc::new(MemDriver::new(clock.clone())), clock, settings);
            let work = async {
                let signals = Signals::install().unwrap();
                let none = Supervisor::none(tokio::runtime::Handle::current());
                run_provided(node.with_service(LateService), signals, &none).await
            };
            let error = tokio::runtime::Runtime::new().unwrap().block_on(work).unwrap_err();
            eprintln!("{error}");
            signal_hook::low_level::exit(i32::from(error.code()));
        }
        let (status, output) =
            run("serve::processes::tests::code_9_a_service_does_not_stop_in_time");
        assert_eq!(status.code(), Some(9), "{output}");
        assert!(output.contains("late did not stop in time"), "{output}");
    }
}
