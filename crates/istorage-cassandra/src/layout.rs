//! The table of a keyspace and every statement that is sent for its rows.
//!
//! **Every write is an `UPDATE`, never an `INSERT`.** An insert also writes a row marker, and a row lives as long as its
//! marker or its value, whichever is longer: with a marker that does not expire the row stays behind, with no value,
//! when its value has expired, and `IF NOT EXISTS` fails on it for ever. An update writes the value alone, so a row
//! lives exactly as long as its value. For rows that other programs inserted, "does not exist" is asked as `IF value =
//! null`, and rows without a value count as absent everywhere.
//!
//! What was tried on Cassandra 5.0.5: `IF value = ?` with null bound holds for a row that never was, that expired, that
//! was deleted, and that has only its marker left; it fails on an empty value. `USING TTL 0` is no TTL. A batch may mix
//! these updates and deletes. The answer to one statement that was not applied has the value, if there is one; the
//! answer to a batch has every row that any of its conditions is about and that exists in any form, whether that
//! condition failed or not.

use std::sync::Arc;

use istorage::Result;
use scylla::{
    client::session::Session,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
};

use crate::{errors, session::Client};

/// The table of every keyspace.
pub(crate) const TABLE: &str = "values";

/// Its columns as `system_schema.columns` lists them: name, kind, type, order.
pub(crate) const COLUMNS: [[&str; 4]; 3] = [
    ["c_col", "clustering", "blob", "asc"],
    ["p_key", "partition_key", "blob", "none"],
    ["value", "regular", "blob", "none"],
];

/// When the coordinator of a read asks another replica besides those that it asked first. By default that is the slowest
/// hundredth of the reads that the table has had, and half of the servers' read timeout while it has had none: a
/// replica that hangs would hold up reads for seconds.
const SPECULATIVE_RETRY: &str = "MIN(99p,50ms)";

pub(crate) fn create_table(keyspace: &str, id: u128) -> String {
    let hex = format!("{id:032x}");
    let id = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{TABLE} (p_key blob, c_col blob, value blob, PRIMARY KEY ((p_key), \
         c_col)) WITH id = '{id}' AND speculative_retry = '{SPECULATIVE_RETRY}'"
    )
}

/// The prepared statements of a keyspace, with the values they take.
#[derive(Debug)]
pub(crate) struct Statements {
    /// p_key, c_col -> value
    pub(crate) get: PreparedStatement,
    /// The same, linearizable.
    pub(crate) get_linearizable: PreparedStatement,
    /// p_key, a list of c_col -> c_col, value
    pub(crate) get_many: PreparedStatement,
    /// -> c_col, value
    pub(crate) read: Ranged,
    /// The same, linearizable.
    pub(crate) read_linearizable: Ranged,
    /// -> c_col, value, seconds left
    pub(crate) ttl_read: Ranged,
    /// value, p_key, c_col
    pub(crate) put: PreparedStatement,
    /// timestamp, seconds, value, p_key, c_col
    pub(crate) put_ordered: PreparedStatement,
    /// value, p_key, c_col, what is expected; null for nothing
    pub(crate) write_if: PreparedStatement,
    /// seconds, and the same
    pub(crate) write_if_for: PreparedStatement,
    /// p_key, c_col, what is expected
    pub(crate) delete_if: PreparedStatement,
    /// -> the time of the server that is asked
    pub(crate) server_time: PreparedStatement,
}

/// A read of a range.
#[derive(Debug)]
pub(crate) struct Ranged {
    /// p_key, first c_col
    pub(crate) open: PreparedStatement,
    /// p_key, first c_col, first c_col behind
    pub(crate) bounded: PreparedStatement,
}

impl Statements {
    pub(crate) async fn prepare(client: &Client, keyspace: &str) -> Result<Statements> {
        let session = client.session();
        let table = &format!("{keyspace}.{TABLE}");
        let row = "WHERE p_key = ? AND c_col = ?";
        let prepare =
            |text: String| async { session.prepare(text).await.map_err(errors::not_prepared) };
        let select = |what: &str, rows: &str| {
            let text = format!("SELECT {what} FROM {table} WHERE p_key = ? AND {rows}");
            async {
                let mut statement = prepare(text).await?;
                // The table never changes, so the columns need not come with every answer.
                statement.set_use_cached_result_metadata(true);
                Ok(statement)
            }
        };
        let ranged = |what: &'static str| async move {
            let bounded = select(what, "c_col >= ? AND c_col < ?");
            let (open, bounded) = futures::try_join!(select(what, "c_col >= ?"), bounded)?;
            Ok(Ranged { open, bounded })
        };
        let (get, get_many, read, ttl_read) = futures::try_join!(
            select("value", "c_col = ?"),
            select("c_col, value", "c_col IN ?"),
            ranged("c_col, value"),
            ranged("c_col, value, TTL(value)"),
        )?;
        let (put, put_ordered, write_if, write_if_for, delete_if, server_time) = futures::try_join!(
            prepare(format!("UPDATE {table} SET value = ? {row}")),
            prepare(format!("UPDATE {table} USING TIMESTAMP ? AND TTL ? SET value = ? {row}")),
            prepare(format!("UPDATE {table} SET value = ? {row} IF value = ?")),
            prepare(format!("UPDATE {table} USING TTL ? SET value = ? {row} IF value = ?")),
            prepare(format!("DELETE FROM {table} {row} IF value = ?")),
            prepare("SELECT toTimestamp(now()) FROM system.local".to_owned()),
        )?;
        let conditional = |mut statement: PreparedStatement| {
            statement.set_load_balancing_policy(Some(Arc::clone(client.conditional())));
            statement
        };
        let serial = serial(session);
        Ok(Statements {
            get_linearizable: at(serial, &get),
            read_linearizable: Ranged {
                open: at(serial, &read.open),
                bounded: at(serial, &read.bounded),
            },
            get,
            get_many,
            read,
            ttl_read,
            put,
            put_ordered,
            write_if: conditional(write_if),
            write_if_for: conditional(write_if_for),
            delete_if: conditional(delete_if),
            server_time,
        })
    }
}

/// The consistency of a read that takes part in the order of conditional writes.
fn serial(session: &Session) -> Consistency {
    match session.get_default_execution_profile_handle().to_profile().get_serial_consistency() {
        Some(SerialConsistency::LocalSerial) => Consistency::LocalSerial,
        _ => Consistency::Serial,
    }
}

fn at(consistency: Consistency, statement: &PreparedStatement) -> PreparedStatement {
    let mut statement = statement.clone();
    statement.set_consistency(consistency);
    statement
}
