//! A partition at work.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use eventlog::{Epoch, Log, Offset, WsId};
use isequencer::{Params, SeqStorage, Sequencer, Sequences};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    Application, Commands, Ended, Status,
    group::{Group, Means},
    meters::Meters,
    queue::Shared,
    recent::Recent,
    state::Seen,
    worker::{Groups, Limits, Pace, Worker},
};

/// No queue is longer.
const LONGEST_QUEUE: usize = 1 << 20;

/// How a partition works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name in metrics and logs.
    pub name: String,
    /// How many commands may wait, up to 2^20.
    pub queue: usize,
    /// How many events are written together.
    pub group_commands: usize,
    /// How many bytes are written together, or a few more.
    pub group_bytes: usize,
    /// How long commands are added to a group, but for the last one. It is less if the deadline of
    /// one of them is near.
    pub group_time: Duration,
    /// The kinds of how many workspaces are remembered.
    pub workspaces: usize,
    /// Of its sequencer, but for the name and the sequences.
    pub sequencer: Params,
}

impl Settings {
    /// 1,000 commands may wait, 500 or 1 MiB or those of 50 ms are written together, the kinds of
    /// 10,000 workspaces are remembered. Numbers gather for up to 100 ms: they are found in the
    /// log, so storing them late costs nothing but time at the next start.
    pub fn new(name: impl Into<String>) -> Settings {
        let name = name.into();
        let sequencer = Params {
            flush_delay: Duration::from_millis(100),
            ..Params::new(name.clone(), Sequences::new())
        };
        Settings {
            name,
            queue: 1_000,
            group_commands: 500,
            group_bytes: 1 << 20,
            group_time: Duration::from_millis(50),
            workspaces: 10_000,
            sequencer,
        }
    }
}

/// A partition of an application at work, under the lead of its log. Dropping it ends it in the middle of whatever it does; it is ended in
/// order by [`undeploy`](Partition::undeploy).
pub struct Partition {
    commands: Commands,
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<Ended>,
    epoch: Epoch,
    clock: Clock,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("status", &self.status()).finish()
    }
}

impl Partition {
    /// Begins to recover the partition, and to take commands when that is done.
    ///
    /// # Panics
    /// Outside of a tokio runtime. It must be one with timers.
    pub fn deploy(
        application: Arc<Application>,
        log: Arc<Log>,
        numbers: Arc<dyn SeqStorage>,
        clock: Clock,
        settings: Settings,
    ) -> Partition {
        let Settings { name, queue, workspaces, sequencer, .. } = settings;
        let limits = Limits {
            commands: settings.group_commands.max(1),
            bytes: settings.group_bytes,
            time: settings.group_time,
        };
        let params = Params {
            partition: name.clone(),
            sequences: application.sequences().clone(),
            ..sequencer
        };
        let sequencer = Sequencer::new(params, numbers, clock.clone());
        let shared = Arc::new(Shared::new(clock.clone(), Meters::new(&name)));
        let (sender, receiver) = mpsc::channel(queue.clamp(1, LONGEST_QUEUE));
        let commands =
            Commands::new(sender, Arc::clone(&shared), sequencer.monitor(), Arc::clone(&log));
        let (stop, stopped) = watch::channel(None);
        let epoch = log.epoch();
        let means = Means {
            application,
            log,
            clock: clock.clone(),
            kinds: Recent::<WsId, _>::new(workspaces),
            time: clock::WallTime::from_nanos(0),
            seen: Seen { next: Offset::FIRST, epoch: Epoch(0), sought: Offset(0) },
            sought: Offset(0),
        };
        let groups = Groups {
            means,
            queue: receiver,
            shared,
            limits,
            name,
            waiting: VecDeque::new(),
            violation: None,
            group: Group::default(),
            pace: Pace::default(),
        };
        let worker = Worker { sequencer, groups, stop: stopped };
        #[expect(clippy::disallowed_methods, reason = "the partition owns the task and ends it")]
        let task = tokio::spawn(worker.run());
        Partition { commands, stop, task, epoch, clock }
    }

    /// Where its commands are sent.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Under which it works.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        self.commands.status()
    }

    /// Takes no more commands, ends the group under way, stores what waits, and ends. Only [`Ended::Stopped`] proves that nothing is written any
    /// more: otherwise no other partition may work under the same epoch, and the lead must not be released.
    ///
    /// # Cancel safety
    /// A dropped call ends it as dropping does.
    pub async fn undeploy(mut self, deadline: Instant) -> Ended {
        self.stop.send_replace(Some(deadline));
        match self.clock.timeout_at(deadline, &mut self.task).await {
            Ok(joined) => ended(joined),
            Err(_) => Ended::Late,
        }
    }
}

fn ended(joined: Result<Ended, tokio::task::JoinError>) -> Ended {
    joined.unwrap_or_else(|error| Ended::Unproved(format!("its task failed: {error}")))
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.task.abort();
    }
}
