//! What a request counts against the limit of its principal.
//!
//! Without this, a client could send in one request what it must not send in many.

use bytes::Bytes;
use processor::MOST_ROWS;
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    context::ApiRequest,
    numbers::numbers_drawn,
    route::{ApiOperation, MOST_COMMANDS},
};

/// A command counts as one for each `ROWS` rows, rounded up. So a document with a few records
/// counts as one, and a command of 4,096 rows as 410.
const ROWS: usize = 10;

/// What a request with this body counts as. Invalid rows of a command count, too. A body that is
/// not a command, batch or draw counts as one. Each drawn number counts as one.
pub(crate) fn counted(request: &ApiRequest<'_>, body: &Bytes) -> u32 {
    let counted = match request.operation {
        ApiOperation::Command(_) => rows_counted(body),
        ApiOperation::CommandBatch => batch_counted(body),
        ApiOperation::DrawNumbers(id) => numbers_drawn(request.app, id, body),
        _ => None,
    };
    counted.unwrap_or(1).max(1)
}

fn rows_counted(body: &Bytes) -> Option<u32> {
    serde_json::from_slice(body).ok().map(AnyCommand::counted)
}

fn batch_counted(body: &Bytes) -> Option<u32> {
    serde_json::from_slice(body).ok().and_then(AnyBatch::counted)
}

#[derive(Deserialize)]
struct AnyCommand {
    #[serde(default)]
    rows: Vec<IgnoredAny>,
}

impl AnyCommand {
    fn counted(self) -> u32 {
        match self.rows.len() {
            rows @ 1..=MOST_ROWS => rows.div_ceil(ROWS) as u32,
            _ => 1,
        }
    }
}

#[derive(Deserialize)]
struct AnyBatch {
    commands: Vec<AnyCommand>,
}

impl AnyBatch {
    fn counted(self) -> Option<u32> {
        (1..=MOST_COMMANDS)
            .contains(&self.commands.len())
            .then(|| self.commands.into_iter().map(AnyCommand::counted).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(rows: usize) -> String {
        format!(r#"{{"command":"sys.CUD","rows":[{}]}}"#, vec!["{}"; rows].join(","))
    }

    /// A principal with a limit of 10 commands in a second wrote 4,096,000 rows in a second.
    #[test]
    fn a_command_counts_by_its_rows() {
        let cud = |rows| rows_counted(&command(rows).into());
        for (rows, expected) in [(0, 1), (1, 1), (10, 1), (11, 2), (4_096, 410), (4_097, 1)] {
            assert_eq!(cud(rows), Some(expected), "{rows} rows");
        }
        assert_eq!(rows_counted(&Bytes::from_static(br#"{"args":{"kind":"Shop"}}"#)), Some(1));
        let batch = |commands: Vec<String>| {
            batch_counted(&format!(r#"{{"commands":[{}]}}"#, commands.join(",")).into())
        };
        assert_eq!(batch(vec![command(1); 100]), Some(100));
        assert_eq!(batch(vec![command(0), command(25), command(4_096)]), Some(1 + 3 + 410));
        // A body that is refused must not count as the commands that it names.
        assert_eq!(batch(vec![command(1); 101]), None);
        for none in ["", "{}", r#"{"commands":[]}"#, r#"{"commands":{}}"#, r#"{"commands":[{}"#] {
            assert_eq!(batch_counted(&Bytes::from_static(none.as_bytes())), None, "{none}");
        }
    }
}
