//! The versions of the format of a file.

/// The version of everything in [`layout`](super).
pub(crate) const FORMAT: u32 = 4;
/// The version before the bands of orders. Its ranks are positive. Such a file is opened, and
/// becomes a file of [`FORMAT`].
pub(crate) const WITHOUT_BANDS: u32 = 3;
/// The version before the log. Such a file is opened, and becomes a file of [`FORMAT`].
pub(crate) const WITHOUT_LOG: u32 = 2;
