//! The cluster for people and programs: its members and the owners of all partitions.

use std::net::SocketAddr;

use serde::Serialize;
use sysvvm::ownership::{Member, MemberId, MemberState, PartitionId, PartitionLoad};

use crate::{App, Node, cluster_view::ClusterSeen};

/// The cluster as a node sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The number of seats.
    pub seats: u32,
    /// Whether an operator has paused the moves that even out the loads.
    pub paused: bool,
    /// The age of this view; `None` if the storage has not answered yet.
    pub age_ms: Option<u64>,
    /// The error of the last read, if it failed.
    pub last_error: Option<String>,
    /// The id of this node.
    pub this_member: String,
    /// The nodes that have written their rows within the last 10 seconds.
    pub members: Vec<MemberStatus>,
    /// All partitions of the applications of this node.
    pub partitions: Vec<OwnedPartitionStatus>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The random id of the process.
    pub id: String,
    /// The address for clients.
    pub advertised: SocketAddr,
    /// The address for other nodes.
    pub cluster: Option<SocketAddr>,
    /// The seat, if the node has one.
    pub seat: Option<u32>,
    /// The version of the program.
    pub version: String,
    /// `starting`, `ready` or `draining`. A node without a seat is `starting`, too.
    pub state: MemberState,
    /// Whether the heartbeat of the node rose within the last 3 seconds.
    pub fresh: bool,
    /// Whether the lease of the node exists.
    pub leads: bool,
    /// The time until the leadership ends unless the lease is renewed. Only the node itself knows
    /// it.
    pub left_ms: Option<u64>,
    /// The number of partitions that the node owns.
    pub partitions: usize,
    /// The partitions that the node asks their owners for.
    pub wants: Vec<String>,
    /// The partitions that the node could not start in the last 10 minutes.
    pub refused: Vec<String>,
}

/// A partition and its owner.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedPartitionStatus {
    /// The owner and the name of the application.
    pub app: String,
    /// The number of the partition.
    pub number: u16,
    /// The epoch of the last change of the owner.
    pub epoch: u32,
    /// The address of the owner for clients; `None` if nobody owns the partition.
    pub owner: Option<SocketAddr>,
    /// The id of the owner, if the owner has a member row.
    pub member: Option<String>,
    /// The state of the partition at its owner; `unknown` if the owner has not said it within the
    /// last seconds, and `no owner` without one.
    pub state: String,
    /// The commands that wait.
    pub waiting: u32,
    /// The events that a restart would replay.
    pub lag: u64,
}

impl Node {
    /// The cluster as this node saw it last.
    pub fn cluster_status(&self) -> ClusterStatus {
        let (report, now) = (self.view().last(), self.clock().now());
        let (members, partitions) = match &report.answer {
            Some(seen) => {
                let members = self.members(seen);
                let own = self.membership().id();
                let of_app = |app| partitions(app, seen, own, &members);
                let partitions = self.apps().iter().flat_map(of_app).collect();
                (self.statuses(seen, &members), partitions)
            }
            None => Default::default(),
        };
        let age = |seen: &ClusterSeen| now.saturating_since(seen.sent).as_millis() as u64;
        ClusterStatus {
            seats: self.seats().get(),
            paused: report.answer.as_ref().is_some_and(|seen| seen.is_paused),
            age_ms: report.answer.as_deref().map(age),
            last_error: report.last_error,
            this_member: self.membership().id().to_string(),
            members,
            partitions,
        }
    }

    /// The members by their rows, and this node as it is now.
    pub(crate) fn members(&self, seen: &ClusterSeen) -> Vec<Member> {
        let own = self.own_member();
        let others = seen.members.iter().map(|row| row.member.clone());
        let others = others.filter(|member| member.id != own.id);
        others.chain([own.clone()]).collect()
    }

    fn statuses(&self, seen: &ClusterSeen, members: &[Member]) -> Vec<MemberStatus> {
        let status = |member: &Member| {
            let owns = |owner: &sysvvm::ownership::OwnerRow| {
                owner.owner.map(|owner| owner.incarnation) == member.incarnation
            };
            let is_me = member.id == self.membership().id();
            let wants = member.wants.keys().map(|id| self.name_of(*id));
            MemberStatus {
                id: member.id.to_string(),
                advertised: member.advertised,
                cluster: member.cluster,
                seat: member.seat,
                version: member.version.clone(),
                state: member.state,
                fresh: is_me || seen.is_fresh(member.id),
                leads: member.incarnation.is_some_and(|it| seen.living.contains(&it)),
                left_ms: is_me.then(|| self.left_ms()).flatten(),
                partitions: match member.incarnation {
                    Some(_) => seen.owners.values().filter(|row| owns(row)).count(),
                    None => 0,
                },
                wants: wants.collect(),
                refused: member.refused.iter().map(|id| self.name_of(*id)).collect(),
            }
        };
        let mut all: Vec<_> = members.iter().map(status).collect();
        all.sort_by_key(|member| (member.advertised, member.id.clone()));
        all
    }

    fn name_of(&self, id: PartitionId) -> String {
        let app = self.apps().iter().find(|app| app.number().is_some_and(|it| it.get() == id.app));
        match app {
            Some(app) => format!("{} {}", app.name(), id.partition),
            None => id.to_string(),
        }
    }
}

/// The partitions of an application. `own` is the member that this node is.
fn partitions(
    app: &App,
    seen: &ClusterSeen,
    own: MemberId,
    members: &[Member],
) -> Vec<OwnedPartitionStatus> {
    let Some(number) = app.number() else { return Vec::new() };
    let status = |partition| {
        let id = PartitionId { app: number.get(), partition };
        let row = seen.owner(id);
        let member = row.owner.and_then(|owner| {
            members.iter().find(|member| member.incarnation == Some(owner.incarnation))
        });
        let ready = PartitionLoad { status: PartitionLoad::READY.to_owned(), ..Default::default() };
        // A node that was killed has a row for some seconds. What the row says about its partitions
        // is outdated.
        let known = member.filter(|member| member.id == own || seen.is_fresh(member.id));
        let load = match (row.owner, known) {
            (Some(_), Some(member)) => member.loads.get(&id).cloned().unwrap_or(ready),
            (Some(_), None) => PartitionLoad { status: "unknown".to_owned(), ..ready },
            (None, _) => PartitionLoad { status: "no owner".to_owned(), ..ready },
        };
        OwnedPartitionStatus {
            app: app.name().to_string(),
            number: partition,
            epoch: row.epoch.0,
            owner: row.owner.map(|owner| owner.advertised),
            member: member.map(|member| member.id.to_string()),
            state: load.status,
            waiting: load.waiting,
            lag: load.unflushed_events,
        }
    };
    (0..app.settings.partitions.get()).map(status).collect()
}
