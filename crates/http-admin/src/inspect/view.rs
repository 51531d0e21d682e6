//! The views of a storage, by the name and the query of a request.

use http_server::{
    problem::{ProblemDetails, UNKNOWN_PATH_PORT},
    query::{LIMIT_OF_NONE, NO_OFFSET, check_query, parameter, required},
};
use vvm::{
    eventlog::{Offset, WsId},
    istorage::{KeyspaceName, bytes::Bytes},
    sysvvm::AppName,
};

/// The number of lines of a view without a limit of its own.
const DEFAULT_LIMIT: usize = 1_000;

/// A part of a storage that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The applications and their deployments.
    Apps,
    /// The owners of all partitions.
    Partitions,
    /// The leases of all seats, the members and the pause of balancing.
    Leases,
    /// The log of a partition.
    Plog {
        /// The application.
        app: AppName,
        /// The partition.
        partition: u16,
        /// The first offset.
        from: u64,
        /// The most lines.
        limit: usize,
    },
    /// The log of a workspace.
    Wlog {
        /// The application.
        app: AppName,
        /// The workspace.
        ws: WsId,
        /// The first offset.
        from: u64,
        /// The most lines.
        limit: usize,
    },
    /// The records of a workspace.
    Records {
        /// The application.
        app: AppName,
        /// The workspace.
        ws: WsId,
        /// The first id; 0 for all records.
        from: u64,
        /// The most lines.
        limit: usize,
    },
    /// The stored numbers.
    Numbers {
        /// The application.
        app: AppName,
        /// The workspace; `None` for the numbers that belong to no workspace.
        ws: Option<WsId>,
    },
    /// The rows of storage partitions as they are stored.
    Rows {
        /// The keyspace.
        keyspace: KeyspaceName,
        /// The storage partitions.
        partitions: RawPartitions,
        /// The most lines.
        limit: usize,
    },
}

/// The storage partitions of a view of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawPartitions {
    /// One partition.
    One {
        /// The partition key.
        pkey: Bytes,
        /// The first clustering columns.
        from: Bytes,
    },
    /// All partitions with keys that begin with these bytes.
    WithPrefix(Bytes),
}

/// The reason why a request names no view.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidView(String);

impl View {
    /// The names of all views.
    pub const NAMES: [&'static str; 8] =
        ["apps", "partitions", "leases", "plog", "wlog", "records", "numbers", "rows"];

    /// Reads a view from its name and the query of a request, such as `plog` and
    /// `app=demo/shop&partition=1`.
    ///
    /// # Errors
    /// If there is no such view, or a parameter is missing, unknown or wrong.
    pub fn parse(name: &str, query: Option<&str>) -> Result<View, InvalidView> {
        View::of(name, query).map_err(|problem| InvalidView(problem.reason().to_owned()))
    }

    pub(crate) fn of(name: &str, query: Option<&str>) -> Result<View, ProblemDetails> {
        let known: &[&str] = match name {
            "apps" | "partitions" | "leases" => &[],
            "plog" => &["app", "partition", "from", "limit"],
            "wlog" | "records" => &["app", "ws", "from", "limit"],
            "numbers" => &["app", "ws"],
            "rows" => &["keyspace", "key", "from", "prefix", "limit"],
            _ => {
                let reason = format!("there is no view {name}, but {}", View::NAMES.join(", "));
                // Only the admin endpoint has views.
                return Err(ProblemDetails::not_found(reason).with(UNKNOWN_PATH_PORT, "admin"));
            }
        };
        check_query(known, query)?;
        let limit = parameter(query, "limit")?.unwrap_or(DEFAULT_LIMIT);
        if limit == 0 {
            return Err(ProblemDetails::bad_request(LIMIT_OF_NONE));
        }
        let from = || parameter(query, "from").map(|from| from.unwrap_or(0_u64));
        let offset = || match parameter(query, "from")?.unwrap_or(Offset::FIRST.0) {
            0 => Err(ProblemDetails::bad_request(NO_OFFSET)),
            offset => Ok(offset),
        };
        let app = || required::<AppName>(query, "app");
        let ws = || required(query, "ws").map(WsId);
        Ok(match name {
            "apps" => View::Apps,
            "partitions" => View::Partitions,
            "leases" => View::Leases,
            "plog" => {
                let partition = required(query, "partition")?;
                View::Plog { app: app()?, partition, from: offset()?, limit }
            }
            "wlog" => View::Wlog { app: app()?, ws: ws()?, from: offset()?, limit },
            "records" => View::Records { app: app()?, ws: ws()?, from: from()?, limit },
            "numbers" => View::Numbers { app: app()?, ws: parameter(query, "ws")?.map(WsId) },
            _ => {
                let name: String = required(query, "keyspace")?;
                let keyspace = KeyspaceName::new(name);
                let keyspace =
                    keyspace.map_err(|error| ProblemDetails::bad_request(error.to_string()))?;
                View::Rows { keyspace, partitions: raw_partitions(query)?, limit }
            }
        })
    }
}

fn raw_partitions(query: Option<&str>) -> Result<RawPartitions, ProblemDetails> {
    let bytes = |name: &str| {
        let text = parameter::<String>(query, name)?;
        text.map(|text| bytes_of(name, &text)).transpose()
    };
    let bad = |reason: &str| Err(ProblemDetails::bad_request(reason));
    match (bytes("key")?, bytes("from")?, bytes("prefix")?) {
        (Some(_), _, Some(_)) => bad("`key` names one storage partition: leave out `prefix`"),
        (None, Some(_), _) => bad("`from` is a place in one storage partition: name its `key`"),
        (Some(pkey), from, None) => Ok(RawPartitions::One { pkey, from: from.unwrap_or_default() }),
        (None, None, prefix) => Ok(RawPartitions::WithPrefix(prefix.unwrap_or_default())),
    }
}

fn bytes_of(name: &str, text: &str) -> Result<Bytes, ProblemDetails> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|it| it.is_ascii_hexdigit());
    let bytes = is_hex.then(|| text.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>());
    bytes.flatten().map(Bytes::from).ok_or_else(|| {
        let reason = format!("the parameter `{name}` must be bytes in hexadecimal, such as 0014ff");
        ProblemDetails::bad_request(reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_is_parsed_and_wrong_ones_are_refused() {
        let app: AppName = "demo/shop".parse().unwrap();
        let plog = View::parse("plog", Some("app=demo/shop&partition=3&limit=7")).unwrap();
        assert_eq!(plog, View::Plog { app: app.clone(), partition: 3, from: 1, limit: 7 });
        let wlog = View::parse("wlog", Some("app=demo/shop&ws=2&from=9")).unwrap();
        let ws = WsId(2);
        assert_eq!(wlog, View::Wlog { app: app.clone(), ws, from: 9, limit: DEFAULT_LIMIT });
        let numbers = View::parse("numbers", Some("app=demo/shop")).unwrap();
        assert_eq!(numbers, View::Numbers { app, ws: None });
        let rows = View::parse("rows", Some("keyspace=sysvvm&key=00000005&from=01")).unwrap();
        let View::Rows { partitions, .. } = rows else { panic!("{rows:?}") };
        let (pkey, from) = (Bytes::from_static(&[0, 0, 0, 5]), Bytes::from_static(&[1]));
        assert_eq!(partitions, RawPartitions::One { pkey, from });
        let rows = View::parse("rows", Some("keyspace=sysvvm&prefix=0000")).unwrap();
        let View::Rows { partitions, .. } = rows else { panic!("{rows:?}") };
        assert_eq!(partitions, RawPartitions::WithPrefix(Bytes::from_static(&[0, 0])));
        // Records may begin at 0, which means all of them.
        assert!(View::parse("records", Some("app=demo/shop&ws=1&from=0")).is_ok());
        for name in ["apps", "partitions", "leases"] {
            assert!(View::parse(name, None).is_ok() && View::parse(name, Some("x=1")).is_err());
        }
        for (name, query, part) in [
            ("none", "", "plog"),
            ("plog", "app=demo/shop", "`partition` is missing"),
            ("plog", "app=demo&partition=1", "`app`"),
            ("wlog", "app=demo/shop&ws=1&limit=-1", "`limit`"),
            // Both were taken: the view had no lines, or began at 1.
            ("records", "app=demo/shop&ws=1&limit=0", "`limit` must be 1 or more"),
            ("wlog", "app=demo/shop&ws=1&from=0", "`from` must be 1 or more"),
            ("plog", "app=demo/shop&partition=1&from=0", "`from` must be 1 or more"),
            ("rows", "keyspace=sysvvm&key=0", "hexadecimal"),
            ("rows", "keyspace=sysvvm&key=+1", "hexadecimal"),
            ("rows", "keyspace=X&key=00", "keyspace"),
            ("rows", "keyspace=sysvvm&key=00&prefix=00", "`prefix`"),
            ("rows", "keyspace=sysvvm&from=00", "`key`"),
        ] {
            let error = View::parse(name, Some(query)).unwrap_err().to_string();
            assert!(error.contains(part), "{name}?{query}: {error}");
        }
    }
}
