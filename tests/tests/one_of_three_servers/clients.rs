//! Clients that send commands while a server fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use processor::{Busy, Done, Refused};
use shop::{article, cud};
use tokio::task::JoinHandle;
use vvm::Launched;

pub(crate) fn run(
    node: &Launched,
    command: processor::Command,
) -> impl Future<Output = Result<Done, Refused>> + use<> {
    let node = node.node().clone();
    async move {
        let Ok(partition) = node.app("acme", "shop").unwrap().at(command.ws) else {
            return Err(Refused::Busy(Busy::LeadershipLost(
                "the partition is not on this node".into(),
            )));
        };
        partition.commands().run(command).await
    }
}

/// Clients that send one command after another. Each client has a workspace of its own.
pub(crate) struct Clients {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Duration>>,
}

impl Clients {
    pub(crate) fn start(node: &Arc<Launched>, clock: &Clock) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (1..=4).map(|ws| {
            let (node, clock, stop) = (Arc::clone(node), clock.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut last, mut longest) = (clock.now(), Duration::ZERO);
                while !stop.load(Ordering::SeqCst) {
                    let deadline = clock.now() + Duration::from_secs(10);
                    if run(&node, cud(ws, article("tea"), deadline)).await.is_ok() {
                        longest = longest.max(clock.now() - last);
                        last = clock.now();
                    }
                    clock.sleep(Duration::from_millis(10)).await;
                }
                longest.max(clock.now() - last)
            })
        });
        Clients { tasks: tasks.collect(), stop }
    }

    /// Stops the clients, and returns the longest time during which a client had no command done.
    pub(crate) async fn stop(self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        let mut longest = Duration::ZERO;
        for task in self.tasks {
            longest = longest.max(task.await.unwrap());
        }
        longest
    }
}
