//! The table of a keyspace, and every statement for its rows.
//!
//! **Every write is an `UPDATE`, never an `INSERT`.** An `INSERT` also writes a row marker. A row
//! lives until both its marker and its value have expired. If the marker does not expire, the row
//! stays without a value after its value has expired, and `IF NOT EXISTS` fails on the row forever.
//! An `UPDATE` writes the value alone, so a row lives exactly as long as its value. Other programs
//! may have inserted rows. For such rows the condition "does not exist" is `IF value = null`, and
//! rows without a value count as absent everywhere.
//!
//! We have seen the following on Cassandra 5.0.5. `IF value = ?`, bound to null, holds for a row
//! that never existed, that expired, that was deleted, or that has only its marker left. The
//! condition fails on an empty value. `USING TTL 0` means no TTL. A batch may mix these updates and
//! deletes. If one statement is not applied, the answer has the value, if there is one. If a batch
//! is not applied, the answer has every row that a condition of the batch names and that exists in
//! any form, even if its condition holds.

use std::sync::Arc;

use istorage::Result;
use scylla::{
    client::session::Session,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
};

use crate::{errors, session::SessionClient};

/// The table of every keyspace.
pub(crate) const TABLE: &str = "values";

/// The columns of the table as `system_schema.columns` lists them: name, kind, type, order.
pub(crate) const COLUMNS: [[&str; 4]; 3] = [
    ["c_col", "clustering", "blob", "asc"],
    ["p_key", "partition_key", "blob", "none"],
    ["value", "regular", "blob", "none"],
];

/// When the coordinator of a read asks one more replica. Cassandra's default is the 99th percentile
/// of the latency of earlier reads of the table, or half of the servers' read timeout if there were
/// none. So with the default, a replica that hangs would hold up reads for seconds.
const SPECULATIVE_RETRY: &str = "MIN(99p,50ms)";

/// The comment of every table. It says how the timestamps of ordered writes are made. Earlier
/// versions of this driver made tables without a comment, and took the order itself for the
/// timestamp. In such a table every new ordered write would be hidden.
pub(crate) const COMMENT: &str = "vvm: ordered writes in two bands below 0";

pub(crate) fn create_table(keyspace: &str, id: u128) -> String {
    let hex = format!("{id:032x}");
    let id = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{TABLE} (p_key blob, c_col blob, value blob, PRIMARY KEY ((p_key), \
         c_col)) WITH id = '{id}' AND speculative_retry = '{SPECULATIVE_RETRY}' AND comment = '{COMMENT}'"
    )
}

/// The prepared statements of a keyspace, with the values that each statement takes.
#[derive(Debug)]
pub(crate) struct Statements {
    /// p_key, c_col -> value
    pub(crate) get: PreparedStatement,
    /// Like `get`, but linearizable.
    pub(crate) get_linearizable: PreparedStatement,
    /// -> c_col, value, write time
    pub(crate) rows: BatchStatements,
    /// -> c_col, value
    pub(crate) values: BatchStatements,
    /// -> c_col, value
    pub(crate) read: RangeStatements,
    /// Like `read`, but linearizable.
    pub(crate) read_linearizable: RangeStatements,
    /// -> c_col, value, seconds left
    pub(crate) ttl_read: RangeStatements,
    /// -> p_key
    pub(crate) partitions: PreparedStatement,
    /// value, p_key, c_col
    pub(crate) put: PreparedStatement,
    /// timestamp, seconds, value, p_key, c_col
    pub(crate) put_ordered: PreparedStatement,
    /// new value, p_key, c_col, expected value (null if no row is expected)
    pub(crate) write_if: PreparedStatement,
    /// seconds, new value, p_key, c_col, expected value (null if no row is expected)
    pub(crate) write_if_for: PreparedStatement,
    /// p_key, c_col, expected value
    pub(crate) delete_if: PreparedStatement,
    /// -> the time of the server that is asked
    pub(crate) server_time: PreparedStatement,
}

/// The statements that read rows by their keys.
#[derive(Debug)]
pub(crate) struct BatchStatements {
    /// p_key, c_col
    pub(crate) one: PreparedStatement,
    /// p_key, a list of c_col
    pub(crate) many: PreparedStatement,
    /// p_key, first c_col, last c_col
    pub(crate) run: PreparedStatement,
    pub(crate) with_times: bool,
}

/// The two statements that read a range.
#[derive(Debug)]
pub(crate) struct RangeStatements {
    /// p_key, first c_col
    pub(crate) open: PreparedStatement,
    /// p_key, first c_col, end of the range (the first c_col after it)
    pub(crate) bounded: PreparedStatement,
}

impl Statements {
    pub(crate) async fn prepare(client: &SessionClient, keyspace: &str) -> Result<Statements> {
        let session = client.session();
        let to = &Preparation { session, table: format!("{keyspace}.{TABLE}") };
        // Prepare them together: one after another, each would wait for a server that hangs.
        let (
            get,
            rows,
            values,
            read,
            ttl_read,
            partitions,
            put,
            put_ordered,
            write_if,
            write_if_for,
            delete_if,
            server_time,
        ) = futures::try_join!(
            to.select("value", "c_col = ?"),
            to.read_by_keys(true),
            to.read_by_keys(false),
            to.read_ranges("c_col, value"),
            to.read_ranges("c_col, value, TTL(value)"),
            to.prepare(format!("SELECT DISTINCT p_key FROM {}", to.table)),
            to.update("", ""),
            to.update("USING TIMESTAMP ? AND TTL ?", ""),
            to.update("", "IF value = ?"),
            to.update("USING TTL ?", "IF value = ?"),
            to.prepare(format!("DELETE FROM {} {ROW} IF value = ?", to.table)),
            to.prepare("SELECT toTimestamp(now()) FROM system.local".to_owned()),
        )?;
        let conditional = |mut statement: PreparedStatement| {
            statement.set_load_balancing_policy(Some(Arc::clone(client.conditional())));
            statement
        };
        let serial = serial_consistency(session);
        Ok(Statements {
            get_linearizable: with_consistency(serial, &get),
            read_linearizable: RangeStatements {
                open: with_consistency(serial, &read.open),
                bounded: with_consistency(serial, &read.bounded),
            },
            get,
            rows,
            values,
            read,
            ttl_read,
            partitions,
            put,
            put_ordered,
            write_if: conditional(write_if),
            write_if_for: conditional(write_if_for),
            delete_if: conditional(delete_if),
            server_time,
        })
    }
}

const ROW: &str = "WHERE p_key = ? AND c_col = ?";

/// Prepares the statements of a table.
struct Preparation<'s> {
    session: &'s Session,
    table: String,
}

impl Preparation<'_> {
    async fn prepare(&self, text: String) -> Result<PreparedStatement> {
        self.session.prepare(text).await.map_err(errors::not_prepared)
    }

    async fn update(&self, using: &str, condition: &str) -> Result<PreparedStatement> {
        let table = &self.table;
        self.prepare(format!("UPDATE {table} {using} SET value = ? {ROW} {condition}")).await
    }

    async fn select(&self, what: &str, rows: &str) -> Result<PreparedStatement> {
        let table = &self.table;
        let text = format!("SELECT {what} FROM {table} WHERE p_key = ? AND {rows}");
        let mut statement = self.prepare(text).await?;
        // The table never changes, so the answers need not repeat the description of the columns.
        statement.set_use_cached_result_metadata(true);
        Ok(statement)
    }

    async fn read_ranges(&self, what: &str) -> Result<RangeStatements> {
        let (open, bounded) = futures::try_join!(
            self.select(what, "c_col >= ?"),
            self.select(what, "c_col >= ? AND c_col < ?"),
        )?;
        Ok(RangeStatements { open, bounded })
    }

    async fn read_by_keys(&self, with_times: bool) -> Result<BatchStatements> {
        let what = if with_times { "c_col, value, WRITETIME(value)" } else { "c_col, value" };
        let (one, many, run) = futures::try_join!(
            self.select(what, "c_col = ?"),
            self.select(what, "c_col IN ?"),
            self.select(what, "c_col >= ? AND c_col <= ?"),
        )?;
        Ok(BatchStatements { one, many, run, with_times })
    }
}

/// The consistency of a read that is ordered with conditional writes.
fn serial_consistency(session: &Session) -> Consistency {
    match session.get_default_execution_profile_handle().to_profile().get_serial_consistency() {
        Some(SerialConsistency::LocalSerial) => Consistency::LocalSerial,
        _ => Consistency::Serial,
    }
}

fn with_consistency(consistency: Consistency, statement: &PreparedStatement) -> PreparedStatement {
    let mut statement = statement.clone();
    statement.set_consistency(consistency);
    statement
}
