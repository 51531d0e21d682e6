//! The query of a list of documents.

use std::str::FromStr;

use http_server::{
    problem::ProblemDetails,
    query::{limit, parameter},
};
use vvm::eventlog::{Table, TableKind};

use super::filter::DocFilter;
use crate::rows::ShownFields;

/// The largest number of documents in a list.
pub(crate) const MOST_DOCS: usize = 1_000;

/// The documents that a client asks for.
#[derive(Debug)]
pub(crate) struct ListQuery<'t> {
    pub(super) table: &'t Table,
    pub(super) filter: DocFilter,
    pub(super) shown: ShownFields,
    pub(super) order: ListDirection,
    /// The answer begins after this id, in the order of the list.
    pub(super) after: Option<u64>,
    pub(super) limit: usize,
}

/// The order of a list: by id, upwards or downwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ListDirection {
    #[default]
    Ascending,
    Descending,
}

impl FromStr for ListDirection {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ListDirection, &'static str> {
        match text {
            "id" => Ok(ListDirection::Ascending),
            "-id" => Ok(ListDirection::Descending),
            _ => Err("a list has the order `id` or `-id`"),
        }
    }
}

impl<'t> ListQuery<'t> {
    /// Reads the query of a request for documents of a table.
    ///
    /// # Errors
    /// If the table is not one of a collection, or a parameter is wrong.
    pub(crate) fn of(
        table: &'t Table,
        query: Option<&str>,
    ) -> Result<ListQuery<'t>, ProblemDetails> {
        let name = table.name();
        if table.kind() != TableKind::CDoc {
            let kind = table.kind();
            let reason = format!(
                "{name} is a table of the kind {kind:?}, and only documents of a collection (CDoc) \
                 are listed: read its documents by their ids, or follow the log of the workspace"
            );
            return Err(ProblemDetails::bad_request(reason));
        }
        let (filter, keys): (Option<String>, Option<String>) =
            (parameter(query, "where")?, parameter(query, "keys")?);
        let why_unknown = |field: &str| {
            let is_known = table.field_type(field).is_some();
            (!is_known).then(|| format!("{name} has no field `{field}`"))
        };
        Ok(ListQuery {
            table,
            filter: DocFilter::of(table, filter.as_deref())?,
            shown: ShownFields::of(keys.as_deref(), why_unknown)?,
            order: parameter(query, "order")?.unwrap_or_default(),
            after: parameter(query, "after")?,
            limit: limit(query, MOST_DOCS)?,
        })
    }
}
