//! The owner of ranges.

/// The owner of the ranges that fast series reserve: one run of a node, or its part that serves one
/// application. A text is an owner without an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeOwner {
    pub(crate) name: String,
    pub(crate) app: Option<String>,
}

impl RangeOwner {
    /// An owner with the name that the ledger shows. The name must be unique to the run: for
    /// example, the node with its epoch.
    pub fn new(name: impl Into<String>) -> RangeOwner {
        RangeOwner { name: name.into(), app: None }
    }

    /// Names the application in the label `app` of all metrics. So the series of several
    /// applications may have the same id.
    #[must_use]
    pub fn with_app(self, app: impl Into<String>) -> RangeOwner {
        RangeOwner { app: Some(app.into()), ..self }
    }
}

impl From<&str> for RangeOwner {
    fn from(name: &str) -> RangeOwner {
        RangeOwner::new(name)
    }
}

impl From<String> for RangeOwner {
    fn from(name: String) -> RangeOwner {
        RangeOwner::new(name)
    }
}
