//! Creates, opens and drops keyspaces, although each server has its own view of the schema.
//!
//! **Each server has its own copy of the schema**, and learns of changes some moments later than
//! other servers. Equal schema versions do not prove agreement: servers that have not yet processed
//! the change still agree on the old version. So the driver asks every server that it can reach for
//! its view of the keyspace. A server that shows the table must also answer a query of the table.
//!
//! - A keyspace is created or dropped when all servers show the same. A server that does not answer
//!   holds up both. A server without a connection holds up both for
//!   [`UNCONNECTED_WAIT`](change::UNCONNECTED_WAIT), because the server may only be slow.
//! - A keyspace is opened when all servers that answer in time show it, and they are more than half
//!   of the servers. A server that hangs, or that its peers cannot reach, must not keep a node from
//!   taking over. The driver waits for servers that do not know the table yet, but only for
//!   [`LATE_SERVER_WAIT`](opening::LATE_SERVER_WAIT), because the requests of a storage avoid such
//!   servers.
//!
//! **Several nodes may create a keyspace at once.** If two servers create a table at the same
//! moment, the table gets two identities. One of the two identities then loses, and all rows that
//! were written under it are lost. So the driver chooses the identity. The driver makes the
//! identity from the name of the keyspace and from the time of its creation. All creators wait
//! until the servers show the same time, so all creators create the same table. A keyspace that is
//! dropped and created again has another time. So a server that slept through the drop cannot bring
//! the old rows back.

mod change;
mod opening;
mod options;
mod replication;
mod retry;
mod survey;
mod view;

pub(crate) use change::{create, drop};
pub(crate) use opening::exists;
pub(crate) use options::check as check_options;
pub(crate) use retry::LastFailure;
