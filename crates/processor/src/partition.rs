//! A partition at work.

use std::{collections::VecDeque, fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use eventlog::{Epoch, LogWriter, Offset};
use isequencer::{Params, SeqStorage, Sequencer, Sequences};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    Application, Commands, PartitionEnd, Status, WriteAllowance,
    group::CommandGroup,
    lost_counters::LostCounters,
    meters::PartitionMeters,
    partition_context::PartitionContext,
    remembered,
    shared::PartitionShared,
    state::LogEnd,
    worker::{GroupLimits, GroupPace, GroupRunner, Worker},
};

/// The largest limit of a queue.
const LONGEST_QUEUE: usize = 1 << 20;

/// The settings of a partition.
#[derive(Clone, Debug)]
pub struct PartitionSettings {
    /// The name of the partition in metrics and logs.
    pub name: String,
    /// The number of commands that may wait, up to 2^20.
    pub queue: usize,
    /// How long a command waits while the queue is full, or while too many numbers wait to be
    /// stored. Then it is refused as [`Busy::QueueFull`](crate::Busy::QueueFull).
    pub queue_wait: Duration,
    /// The largest number of events that are written together.
    pub group_commands: usize,
    /// The number of bytes that are written together. The last command of a group may exceed the
    /// limit.
    pub group_bytes: usize,
    /// How long commands are added to a group; the last command may take longer. The time is
    /// shorter if the deadline of a command of the group is near.
    pub group_time: Duration,
    /// The number of workspaces whose kind the partition remembers.
    pub workspaces: usize,
    /// What the commands of each sender may write. Partitions with clones of these settings share
    /// it.
    pub write_allowance: WriteAllowance,
    /// The parameters of the sequencer. The name and the sequences in them are replaced.
    pub sequencer: Params,
}

impl PartitionSettings {
    /// The default settings: 1,000 commands may wait, and while the queue is full a command is
    /// refused after 100 ms. A group ends at 500 commands, at 1 MiB or after 50 ms. The partition
    /// keeps the kinds of 10,000 workspaces in memory. The sequencer has its
    /// [defaults](Params::new).
    pub fn new(name: impl Into<String>) -> PartitionSettings {
        let name = name.into();
        let sequencer = Params::new(name.clone(), Sequences::new());
        PartitionSettings {
            name,
            queue: 1_000,
            queue_wait: Duration::from_millis(100),
            group_commands: 500,
            group_bytes: 1 << 20,
            group_time: Duration::from_millis(50),
            workspaces: 10_000,
            write_allowance: WriteAllowance::default(),
            sequencer,
        }
    }
}

/// A partition of an application at work, under the leadership that its log checks.
/// [`undeploy`](Partition::undeploy) ends the partition in order. Dropping the partition ends its
/// task at once, even during a write.
pub struct Partition {
    pub(crate) commands: Arc<Commands>,
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<PartitionEnd>,
    epoch: Epoch,
    clock: Clock,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("status", &self.status()).finish()
    }
}

impl Partition {
    /// Starts the recovery of the partition. The partition takes commands after the recovery.
    ///
    /// # Panics
    /// Outside of a tokio runtime with timers.
    pub fn deploy(
        application: Arc<Application>,
        log: Arc<LogWriter>,
        numbers: Arc<dyn SeqStorage>,
        clock: Clock,
        settings: PartitionSettings,
    ) -> Partition {
        let PartitionSettings {
            name,
            queue,
            queue_wait,
            workspaces,
            write_allowance,
            sequencer,
            ..
        } = settings;
        let limits = GroupLimits {
            commands: settings.group_commands.max(1),
            bytes: settings.group_bytes,
            time: settings.group_time,
            queue_wait,
        };
        let params = Params {
            partition: name.clone(),
            sequences: application.declarations().sequences().clone(),
            ..sequencer
        };
        let sequencer = Sequencer::new(params, Arc::clone(&numbers), clock.clone());
        let (meters, queue) = (PartitionMeters::new(&name), queue.clamp(1, LONGEST_QUEUE));
        let groups_of_queue = queue.div_ceil(limits.commands) as u64;
        let shared = Arc::new(PartitionShared::new(clock.clone(), meters, groups_of_queue));
        let (sender, receiver) = mpsc::channel(queue);
        let commands = Arc::new(Commands {
            queue: sender,
            queue_wait,
            shared: Arc::clone(&shared),
            numbers: sequencer.monitor(),
            log: Arc::clone(&log),
        });
        let (stop, stopped) = watch::channel(None);
        let (epoch, checks_records) = (log.fence().epoch(), log.checks_records());
        let kinds = remembered::at_most(NonZeroUsize::new(workspaces).unwrap_or(NonZeroUsize::MIN));
        let partition = PartitionContext {
            application,
            log,
            numbers,
            clock: clock.clone(),
            kinds,
            lost_counters: LostCounters::default(),
            write_allowance,
            time: shared.time.clone(),
            log_end: LogEnd { next: Offset::FIRST, epoch: Epoch(0), searched_to: Offset(0) },
            search_to: Offset(0),
        };
        let groups = GroupRunner {
            partition,
            queue: receiver,
            shared,
            limits,
            name,
            waiting: VecDeque::new(),
            violation: None,
            group: CommandGroup::new(checks_records),
            pace: GroupPace::default(),
        };
        let worker = Worker { sequencer, groups, stop: stopped };
        #[expect(clippy::disallowed_methods, reason = "the partition owns the task and ends it")]
        let task = tokio::spawn(worker.run());
        Partition { commands, stop, task, epoch, clock }
    }

    /// The handle that takes the commands of the partition.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The epoch under which the partition works.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The status of the partition.
    pub fn status(&self) -> Status {
        self.commands.status()
    }

    /// Ends the partition in order: it takes no more commands, finishes its current group, and
    /// stores the waiting numbers. Only [`PartitionEnd::Stopped`] proves that the partition writes
    /// nothing any more. After any other result no other partition may work under the same epoch,
    /// and the lease must not be released.
    ///
    /// # Cancel safety
    /// Dropping the call ends the partition as dropping the partition does.
    pub async fn undeploy(mut self, deadline: Instant) -> PartitionEnd {
        self.stop.send_replace(Some(deadline));
        match self.clock.timeout_at(deadline, &mut self.task).await {
            Ok(joined) => ended(joined),
            Err(_) => PartitionEnd::Late,
        }
    }
}

fn ended(joined: Result<PartitionEnd, tokio::task::JoinError>) -> PartitionEnd {
    joined.unwrap_or_else(|error| {
        PartitionEnd::Unproved(format!("the task of the partition failed: {error}"))
    })
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.task.abort();
    }
}
