//! The tables of the system that applications have: the descriptor of a workspace, and the counter
//! records of gapless series.

use docnumbers::SeriesId;
use eventlog::{FieldType, Name, QName, RecordId, SINGLETON_IDS, Table};

/// The table of the descriptors of workspaces.
pub(crate) const DESCRIPTOR: &str = "sys.WorkspaceDescriptor";

/// The id of the descriptor of each workspace.
pub(crate) const DESCRIPTOR_ID: RecordId = RecordId(*SINGLETON_IDS.start());

/// The fields of a descriptor.
pub(crate) const KIND: &str = "kind";
pub(crate) const NAME: &str = "name";

/// Parses a name that is written in this program.
pub(crate) fn known<N: std::str::FromStr>(name: &str) -> N
where
    N::Err: std::fmt::Debug,
{
    name.parse().expect("a name that is written in this program is one")
}

/// The table of the descriptors.
pub(crate) fn descriptor_table() -> Table {
    Table::singleton(known(DESCRIPTOR), DESCRIPTOR_ID)
        .with_field(known::<Name>(KIND), FieldType::String)
        .with_field(known::<Name>(NAME), FieldType::String)
}

/// The fields of a counter record.
pub(crate) const SERIES: &str = "series";
pub(crate) const PERIOD: &str = "period";
pub(crate) const NEXT: &str = "next";

/// The name of the table of a counter record.
pub(crate) fn counter_name(counter: RecordId) -> QName {
    known(&format!("sys.NumberCounter{}", counter.0))
}

/// The table of a counter record. Its name has the id of the record, and the field of the series is
/// a number field of that series. So the deployed tables tie the record to the series: an
/// application that leaves the series out, moves it to another record, or lets another series count
/// in the record is refused.
///
/// A simpler version declares the series as a text. Two series swap their records; workspace 7 has
/// no record of the second series yet; so its first series starts again, and gives a number twice.
pub(crate) fn counter_table(counter: RecordId, series: &SeriesId) -> Table {
    Table::singleton(counter_name(counter), counter)
        .with_number(known::<Name>(SERIES), series.as_str())
        .with_field(known::<Name>(PERIOD), FieldType::String)
        .with_field(known::<Name>(NEXT), FieldType::Int64)
}
