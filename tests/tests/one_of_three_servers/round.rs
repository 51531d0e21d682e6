//! The rounds: the failure of a server, the length of the leases, and the bounds that hold.

use std::time::Duration;

use vvm::NodeSettings;

use crate::{OPENS_IN, server_failure::ServerFailure};

/// One round: a server fails in this way while a node with leases of this length leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) failure: ServerFailure,
    pub(crate) lease: Duration,
}

impl Round {
    pub(crate) const fn of(failure: ServerFailure, lease_seconds: u64) -> Round {
        Round { failure, lease: Duration::from_secs(lease_seconds) }
    }

    pub(crate) fn changes_routes(self) -> bool {
        matches!(self.failure, ServerFailure::CutOff | ServerFailure::CutOffFromPeers)
    }

    /// How long the server fails before another node takes over: long enough to end a leadership
    /// that is not renewed.
    pub(crate) fn lasts(self) -> Duration {
        self.lease + Duration::from_secs(2)
    }

    /// The longest time that a server which fails adds to the opening of a storage, and to the time
    /// until a node works after it has got the leadership. The first read through a server that its
    /// peers cannot reach waits for 5 s. Then the client avoids that server.
    pub(crate) fn opens_in(self) -> Duration {
        match self.failure {
            ServerFailure::CutOffFromPeers => OPENS_IN + Duration::from_secs(5),
            // Each step of a start waits for up to half a second, and a start has dozens of steps.
            ServerFailure::Slow => Duration::from_secs(40),
            ServerFailure::Frozen | ServerFailure::Killed | ServerFailure::CutOff => OPENS_IN,
        }
    }

    /// The longest time that a client waits for the next command that is done: one call that finds
    /// the server dead, one call that settles the write, and the wait for the servers themselves.
    pub(crate) fn longest_pause(self) -> Duration {
        2 * NodeSettings::usual_request_call_timeout(self.lease) + Duration::from_secs(2)
    }
}

/// The rounds that always run.
pub(crate) const SAMPLE: [Round; 1] = [Round::of(ServerFailure::Frozen, 8)];

/// The rounds that run with `--long`.
pub(crate) const LONG: [Round; 10] = [
    Round::of(ServerFailure::Frozen, 4),
    Round::of(ServerFailure::Frozen, 8),
    Round::of(ServerFailure::Frozen, 20),
    Round::of(ServerFailure::Slow, 4),
    Round::of(ServerFailure::Slow, 20),
    Round::of(ServerFailure::Killed, 4),
    Round::of(ServerFailure::Killed, 20),
    Round::of(ServerFailure::CutOff, 4),
    Round::of(ServerFailure::CutOff, 20),
    Round::of(ServerFailure::CutOffFromPeers, 8),
];
