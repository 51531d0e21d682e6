//! The options of a table that the driver relies on.

use istorage::{Error, KeyspaceName, Result};
use scylla::{
    client::session::Session,
    response::query_result::QueryRowsResult,
    value::{CqlValue, Row},
};

use crate::{
    errors::RequestKind,
    layout::{COMMENT, TABLE},
};

/// The option that lets a read repair the replicas that it has found outdated, before it answers.
const BLOCKING: &str = "BLOCKING";

/// Checks that ordered writes of this version are visible in the table, and that no row is lost
/// once a node has read it.
///
/// Invariant: a row that a plain read returned is on a quorum. Without repairs that block, a write
/// reaches one replica of three, and its node dies; the next leader reads the row from that
/// replica, and does not write it again; the replica dies. So the row is lost. The option says
/// nothing about linearizable reads.
///
/// # Errors
/// `Corrupt` if an earlier version of this driver made the table. `Invalid` if reads do not repair.
pub(crate) async fn check(session: &Session, name: &KeyspaceName) -> Result<()> {
    // Servers of other versions, and of other products, have other options.
    let text = format!(
        "SELECT * FROM system_schema.tables WHERE keyspace_name = '{name}' AND table_name = '{TABLE}'"
    );
    let result = session.query_unpaged(text, ()).await;
    let result = result.map_err(|error| RequestKind::Repeatable.failed(error))?;
    let rows = result
        .into_rows_result()
        .map_err(|error| RequestKind::Repeatable.unexpected_answer(error))?;
    check_comment(name, option(&rows, "comment")?.as_deref())?;
    check_read_repair(name, option(&rows, "read_repair")?.as_deref())
}

fn check_comment(name: &KeyspaceName, comment: Option<&str>) -> Result<()> {
    if comment == Some(COMMENT) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "an earlier version of this program made the keyspace `{name}`, and its ordered rows would hide those of this \
         version: begin with an empty storage"
    )))
}

fn check_read_repair(name: &KeyspaceName, read_repair: Option<&str>) -> Result<()> {
    // A server without the option always repairs before it answers.
    if read_repair.is_none_or(|option| option == BLOCKING) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "reads of the Cassandra keyspace `{name}` do not repair outdated replicas, so rows may be lost: run \
         ALTER TABLE {name}.{TABLE} WITH read_repair = '{BLOCKING}'"
    )))
}

/// The text of an option; `None` if the server does not have the option.
fn option(rows: &QueryRowsResult, name: &str) -> Result<Option<String>> {
    let Some(at) = rows.column_specs().iter().position(|column| column.name() == name) else {
        return Ok(None);
    };
    let row = rows.maybe_first_row::<Row>();
    let row = row.map_err(|error| RequestKind::Repeatable.unexpected_answer(error))?;
    let value = row.and_then(|mut row| row.columns.get_mut(at).and_then(Option::take));
    Ok(value.as_ref().and_then(CqlValue::as_text).cloned())
}

#[cfg(test)]
mod tests {
    use istorage::ErrorKind;

    use super::*;

    #[test]
    fn a_table_with_other_options_is_refused() {
        let name = KeyspaceName::new("app_one").unwrap();
        assert!(check_comment(&name, Some(COMMENT)).is_ok());
        for earlier in [None, Some("")] {
            assert_eq!(check_comment(&name, earlier).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        for repairs in [None, Some(BLOCKING)] {
            assert!(check_read_repair(&name, repairs).is_ok());
        }
        let refused = check_read_repair(&name, Some("NONE")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let fix = "ALTER TABLE app_one.values WITH read_repair = 'BLOCKING'";
        assert!(refused.to_string().contains(fix), "{refused}");
    }
}
