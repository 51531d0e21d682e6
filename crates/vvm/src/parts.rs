//! The parts of a node before its launch.

use clock::Clock;
use ielections::{KillFn, LockFile};

use crate::{Node, NodeSettings, Service, clients::Clients, problem::FirstProblem};

/// The parts of a node that does not run yet.
pub(crate) struct NodeParts {
    pub(crate) settings: NodeSettings,
    pub(crate) clients: Clients,
    pub(crate) clock: Clock,
    pub(crate) node: Node,
    pub(crate) problem: FirstProblem,
    pub(crate) admin: Vec<Box<dyn Service>>,
    pub(crate) services: Vec<Box<dyn Service>>,
    pub(crate) kill: Option<KillFn>,
    pub(crate) lock: Option<LockFile>,
}
