//! The builder of a node, before the node is launched.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use ielections::{Budget, InvalidTiming, KillFn, LockFile};
use istorage::StorageDriver;
use sysvvm::AppName;
use tokio::runtime::Handle;

use crate::{
    AppSettings, Launched, Node, NodeService, NodeSettings, PartitionService, Service,
    clients::Clients, parts::NodeParts, problem::FirstProblem,
};

/// A node that is not launched yet. Nothing of it runs.
#[derive(Debug)]
pub struct Vvm(Builder);

/// The parts of a node.
pub struct Builder {
    settings: NodeSettings,
    driver: Arc<dyn StorageDriver>,
    clock: Clock,
    apps: Vec<AppSettings>,
    admin: Vec<Box<dyn Service>>,
    services: Vec<Box<dyn Service>>,
    partition_services: Vec<Arc<dyn PartitionService>>,
    node_services: Vec<Arc<dyn NodeService>>,
    kill: Option<KillFn>,
    lock: Option<LockFile>,
    requests: Option<(Handle, Arc<dyn StorageDriver>)>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The reason why a node cannot be built from these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNodeSettings {
    /// An application is listed twice. Remove one of the entries.
    #[error("the application {0} is listed twice")]
    AppTwice(AppName),
    /// A storage call may take longer than a lease allows. Shorten
    /// [`NodeSettings::request_call_timeout`], or take a longer lease.
    #[error(
        "a call to the storage may take {call:?}, and a lease of {lease:?} leaves {room:?} for a call: \
         shorten the time limit of calls, or take a longer lease"
    )]
    LongCalls {
        /// The time limit of a call.
        call: Duration,
        /// The duration of a lease.
        lease: Duration,
        /// The longest time that a call may take.
        room: Duration,
    },
    /// A lease is too short for trust level 2. Take a longer lease or another trust level.
    #[error(
        "a lease of {lease:?} is too short for trust level 2: a write may land up to {late_write:?} after it was sent, and must not land after \
         another node has recovered the log; {}",
        longer(shortest)
    )]
    ShortLease {
        /// The duration of a lease.
        lease: Duration,
        /// How long after it was sent a write may land.
        late_write: Duration,
        /// The shortest duration of a lease that is long enough, in the usual split; `None` if no
        /// duration is.
        shortest: Option<Duration>,
    },
    /// The parts of the lease do not fit into the lease.
    #[error(transparent)]
    Lease(#[from] InvalidTiming),
}

/// The advice about a lease that is too short for late writes.
fn longer(shortest: &Option<Duration>) -> String {
    match shortest {
        Some(lease) => {
            format!("take a lease of {} s or more, or trust level 0 or 1", lease.as_secs())
        }
        None => "no lease is long enough: take trust level 0 or 1".to_owned(),
    }
}

impl Vvm {
    /// Creates a builder of a node on a storage.
    pub fn builder(
        driver: Arc<dyn StorageDriver>,
        clock: Clock,
        settings: NodeSettings,
    ) -> Builder {
        Builder {
            settings,
            driver,
            clock,
            apps: Vec::new(),
            admin: Vec::new(),
            services: Vec::new(),
            partition_services: Vec::new(),
            node_services: Vec::new(),
            kill: None,
            lock: None,
            requests: None,
        }
    }

    /// Starts everything, in order, in tasks of its own, and does not wait for them.
    ///
    /// # Panics
    /// Outside of a tokio runtime with timers.
    pub fn launch(self) -> Launched {
        let Builder { settings, driver, clock, apps, admin, services, kill, lock, .. } = self.0;
        let (runtime, own) = self.0.requests.map_or((Handle::current(), None), |(runtime, own)| {
            (runtime, (!Arc::ptr_eq(&own, &driver)).then_some(own))
        });
        let problem = FirstProblem::default();
        let node = Node::new(
            settings.clone(),
            driver.name(),
            apps,
            self.0.partition_services,
            self.0.node_services,
            clock.clone(),
            problem.clone(),
        );
        let clients = Clients { elections: driver, requests: own, runtime };
        Launched::start(NodeParts {
            settings,
            clients,
            clock,
            node,
            problem,
            admin,
            services,
            kill,
            lock,
        })
    }
}

impl Builder {
    /// Adds an application that the node works for.
    #[must_use]
    pub fn with_app(mut self, app: AppSettings) -> Builder {
        self.apps.push(app);
        self
    }

    /// Adds a service that begins first and stops last. Such a service reports how the node is
    /// doing.
    #[must_use]
    pub fn with_admin(mut self, service: impl Service) -> Builder {
        self.admin.push(Box::new(service));
        self
    }

    /// Adds a service that sends commands. It stops before the partitions do.
    #[must_use]
    pub fn with_service(mut self, service: impl Service) -> Builder {
        self.services.push(Box::new(service));
        self
    }

    /// Adds a service that runs for each partition while this node owns the partition.
    #[must_use]
    pub fn with_partition_service(mut self, service: impl PartitionService) -> Builder {
        self.partition_services.push(Arc::new(service));
        self
    }

    /// Adds a service that runs while this node holds a seat.
    #[must_use]
    pub fn with_node_service(mut self, service: impl NodeService) -> Builder {
        self.node_services.push(Arc::new(service));
        self
    }

    /// Sets the function that ends the process when work goes on too long after the leadership was
    /// lost. Without a killer such work goes on. A node counts as work until
    /// [`Launched::shutdown`] has ended its partitions.
    #[must_use]
    pub fn with_killer(self, kill: KillFn) -> Builder {
        Builder { kill: Some(kill), ..self }
    }

    /// Lets the node lead again at once after a crash, if the lock file proves that its former
    /// process is gone. The lock file is not used if an application has trust level 2.
    #[must_use]
    pub fn with_comeback(self, lock: LockFile) -> Builder {
        Builder { lock: Some(lock), ..self }
    }

    /// Runs services and partitions on this runtime with this driver. Elections and admin services
    /// stay on the runtime that launches the node, and elections use the driver of
    /// [`Vvm::builder`]. So no request can delay the renewal of a lease.
    ///
    /// A driver of a database on another machine has connections, which belong to the runtime that
    /// opened them. So give such a node two drivers that share no connection. A driver of an
    /// embedded storage has no connections: give the same driver twice.
    ///
    /// Without this call everything runs on the runtime that launches the node, with one driver.
    #[must_use]
    pub fn with_requests_on(self, runtime: Handle, driver: Arc<dyn StorageDriver>) -> Builder {
        Builder { requests: Some((runtime, driver)), ..self }
    }

    /// Makes the node. Nothing of the node runs until [`Vvm::launch`].
    ///
    /// # Errors
    /// The setting that does not fit, and how to correct it.
    pub fn build(self) -> Result<Vvm, InvalidNodeSettings> {
        self.settings.check(&self.apps)?;
        Budget::new(self.settings.lease, Duration::ZERO)?;
        Ok(Vvm(self))
    }
}
