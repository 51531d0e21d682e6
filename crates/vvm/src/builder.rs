//! A node before it is launched.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use eventlog::TrustLevel;
use ielections::{Kill, LockFile};
use istorage::StorageDriver;
use sysvvm::AppName;
use tokio::runtime::Handle;

use crate::{
    AppSettings, Launched, Node, Service, Settings, clients::Clients, launch::Parts,
    problem::FirstProblem,
};

/// A node that is provided, and not launched.
#[derive(Debug)]
pub struct Vvm(Builder);

/// What a node is made of.
pub struct Builder {
    settings: Settings,
    driver: Arc<dyn StorageDriver>,
    clock: Clock,
    apps: Vec<AppSettings>,
    admin: Vec<Box<dyn Service>>,
    services: Vec<Box<dyn Service>>,
    kill: Option<Kill>,
    lock: Option<LockFile>,
    requests: Option<(Handle, Arc<dyn StorageDriver>)>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What a node cannot be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    /// Leave one of them out.
    #[error("the application {0} is there twice")]
    AppTwice(AppName),
    /// Take fewer slots, or more partitions.
    #[error(
        "there are {slots} slots, and no application has more than {partitions} partitions: who leads a slot above that has nothing to do"
    )]
    IdleSlots {
        /// How many nodes are to work at the same time.
        slots: u32,
        /// How many partitions the application has that has most.
        partitions: u16,
    },
    /// Shorten [`Settings::call_timeout`], or take a longer lease.
    #[error(
        "a call to the storage may take {call:?}, and of a lease of {lease:?} only {room:?} may be left when it is sent: \
         let it take less, or take a longer lease"
    )]
    LongCalls {
        /// How long a call may take.
        call: Duration,
        /// How long a lease lasts.
        lease: Duration,
        /// How long a call may take at most.
        room: Duration,
    },
    /// Take a longer lease, or another trust level.
    #[error(
        "a lease of {lease:?} is too short for trust level 2: a write may land up to {late_write:?} after it was sent, and must not land after \
         another node has recovered the log; {}",
        longer(shortest)
    )]
    ShortLease {
        /// How long a lease lasts.
        lease: Duration,
        /// How long after it was sent a write may land.
        late_write: Duration,
        /// How long the shortest lease lasts that is long enough, in the usual split; `None` if
        /// none is.
        shortest: Option<Duration>,
    },
}

/// What to do about a lease that is too short for late writes.
fn longer(shortest: &Option<Duration>) -> String {
    match shortest {
        Some(lease) => {
            format!("take a lease of {} s or more, or trust level 0 or 1", lease.as_secs())
        }
        None => "no lease is long enough: take trust level 0 or 1".to_owned(),
    }
}

impl Vvm {
    /// A node on a storage.
    pub fn builder(driver: Arc<dyn StorageDriver>, clock: Clock, settings: Settings) -> Builder {
        let (apps, admin, services) = (Vec::new(), Vec::new(), Vec::new());
        let (kill, lock, requests) = (None, None, None);
        Builder { settings, driver, clock, apps, admin, services, kill, lock, requests }
    }

    /// Begins everything, in order, in tasks of its own; it does not wait for any of it.
    ///
    /// # Panics
    /// Outside of a tokio runtime. It must be one with timers.
    pub fn launch(self) -> Launched {
        let Builder { settings, driver, clock, apps, admin, services, kill, lock, requests } =
            self.0;
        let (runtime, own) = requests.map_or((Handle::current(), None), |(runtime, own)| {
            (runtime, (!Arc::ptr_eq(&own, &driver)).then_some(own))
        });
        let problem = FirstProblem::default();
        let node = Node::new(&settings, driver.name(), apps, clock.clone(), problem.clone());
        let clients = Clients { elections: driver, requests: own, runtime };
        Launched::start(Parts {
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
    /// An application that the node works for.
    #[must_use]
    pub fn with_app(mut self, app: AppSettings) -> Builder {
        self.apps.push(app);
        self
    }

    /// A service that begins first and stops last: whoever wants to know how the node does, asks it.
    #[must_use]
    pub fn with_admin(mut self, service: impl Service) -> Builder {
        self.admin.push(Box::new(service));
        self
    }

    /// A service that sends commands: it stops before the partitions do.
    #[must_use]
    pub fn with_service(mut self, service: impl Service) -> Builder {
        self.services.push(Box::new(service));
        self
    }

    /// What ends the process when work goes on too long after the lead was lost. Without it such work goes on.
    #[must_use]
    pub fn with_killer(self, kill: Kill) -> Builder {
        Builder { kill: Some(kill), ..self }
    }

    /// The node leads again at once after a crash, if this proves that its former process is gone. Not used where an application has trust level 2.
    #[must_use]
    pub fn with_comeback(self, lock: LockFile) -> Builder {
        Builder { lock: Some(lock), ..self }
    }

    /// Services and partitions run on this runtime, and use this driver. Elections and admin services
    /// stay on the runtime on which the node is launched, and elections use the driver of
    /// [`Vvm::builder`]: then no request keeps a lease from being renewed.
    ///
    /// A driver of a database on another machine has connections, which belong to the runtime on
    /// which they are opened. So give such a node two drivers that share no connection. A driver of an
    /// embedded storage has none, and is given twice.
    ///
    /// Without this call everything runs on the runtime on which the node is launched, with one driver.
    #[must_use]
    pub fn with_requests_on(self, runtime: Handle, driver: Arc<dyn StorageDriver>) -> Builder {
        Builder { requests: Some((runtime, driver)), ..self }
    }

    /// Provides the node.
    ///
    /// # Errors
    /// What cannot be, and what to do.
    pub fn build(mut self) -> Result<Vvm, BadSettings> {
        self.settings.check(&self.apps)?;
        if self.apps.iter().any(|app| app.level == TrustLevel::Two) {
            // What a former process wrote could replace what this one does.
            self.lock = None;
        }
        Ok(Vvm(self))
    }
}
