//! The operations of endpoints, and the values in their paths.

use std::str::FromStr;

use http_server::problem::ProblemDetails;
use vvm::{
    docnumbers::{DefinitionError, SeriesId},
    eventlog::{QName, RecordId},
};

/// The operation of an endpoint, with the names and ids of the path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ApiOperation {
    Command(QName),
    CommandBatch,
    CreateDoc(QName),
    /// Several records of any tables. The query has their ids.
    ReadDocs,
    ReadDoc(QName, RecordId),
    ChangeDoc(QName, RecordId),
    DeactivateDoc(QName, RecordId),
    ListDocs(QName),
    Log,
    /// The log of a partition. The workspace of the route stands for its partition.
    PartitionLog,
    ListSeries,
    ReadSeries(SeriesId),
    DrawNumbers(SeriesId),
    PeekNumber(SeriesId),
    ListGaps(SeriesId),
}

impl ApiOperation {
    /// Whether the body of a request tells how many commands the request counts as. Every other
    /// write counts as one.
    pub(crate) fn is_counted_by_body(&self) -> bool {
        matches!(
            self,
            ApiOperation::Command(_) | ApiOperation::CommandBatch | ApiOperation::DrawNumbers(_)
        )
    }
}

pub(super) fn name(name: &str) -> Result<QName, ProblemDetails> {
    QName::from_str(name).map_err(|bad| ProblemDetails::bad_request(bad.to_string()))
}

pub(super) fn record(id: &str) -> Result<RecordId, ProblemDetails> {
    path_number(id, "the id of a record", LARGEST).map(RecordId)
}

/// The largest number of a workspace and of a record over HTTP: languages without larger numbers
/// can hold it.
pub(super) const LARGEST: u64 = i64::MAX as u64;

/// A number in a path. It has one form only, so that a resource has one path: `7`, and neither
/// `07` nor `+7`.
pub(super) fn path_number(text: &str, of: &str, most: u64) -> Result<u64, ProblemDetails> {
    let number: Option<u64> = text.parse().ok();
    number.filter(|number| *number <= most && number.to_string() == text).ok_or_else(|| {
        ProblemDetails::bad_request(format!(
            "`{text}` is not {of}: write a number without a sign and without zeros in front, up to \
             {most}"
        ))
    })
}

pub(super) fn series(id: &str) -> Result<SeriesId, ProblemDetails> {
    id.parse().map_err(|bad: DefinitionError| ProblemDetails::bad_request(bad.to_string()))
}
