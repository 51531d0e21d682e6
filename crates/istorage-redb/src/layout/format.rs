//! The versions of the format of a file.

/// The version of everything in [`layout`](super).
pub(crate) const FORMAT: u32 = 5;
/// The version whose log had the index of rows that expire, and whose files lack the frames of one
/// segment only. Such a file is opened, and becomes a file of [`FORMAT`].
pub(crate) const WITHOUT_FILER: u32 = 4;
/// The version before the bands of orders. Its ranks are positive. Such a file is opened, and
/// becomes a file of [`FORMAT`].
pub(crate) const WITHOUT_BANDS: u32 = 3;
/// The version before the log. Such a file is opened, and becomes a file of [`FORMAT`].
pub(crate) const WITHOUT_LOG: u32 = 2;
