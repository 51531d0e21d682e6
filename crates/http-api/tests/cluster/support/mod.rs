//! Nodes of a cluster in this process, a proxy between them, and requests to them.

#[expect(dead_code, reason = "the file belongs to the suite `http`, which uses all of it")]
#[path = "../../http/support/authority.rs"]
mod authority;
#[expect(dead_code, reason = "the file belongs to the suite `http`, which uses all of it")]
#[path = "../../http/support/client.rs"]
mod client;
mod node;
mod oracle;
mod proxy;

pub(crate) use self::{
    authority::{TestAuthority, TestFiles},
    client::{Answer, connect},
    node::{ClusterNode, HANGING_WS, NodeOptions, TestCluster, ask, free_address},
    oracle::Oracle,
    proxy::{Cut, Proxy, Way},
};

/// The number of the workspace that each cluster has.
pub(crate) const WS: u64 = 1;

/// The body of a command that makes one record.
pub(crate) const ROW: &str = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
