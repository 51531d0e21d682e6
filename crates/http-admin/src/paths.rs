//! The paths of the admin endpoint.
//!
//! Invariant: the kind of a path decides its method, whether it needs an operator, and whether it
//! is logged. So a new path needs an operator unless it is named as open, and each action is
//! logged.

use hyper::Method;

/// A path of the admin endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminPath<'p> {
    Shown(Shown),
    /// A view of the storage, by its name.
    Inspected(&'p str),
    Action(Action),
}

/// A path that shows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Page,
    Live,
    Ready,
    Metrics,
    Status,
    Cluster,
    ClusterEvents,
    Sequences,
    Repairs,
}

/// A path that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Order(OrderKind),
    /// Begins or ends the drain of this node.
    Drain,
    StepDown,
    MarkEvent,
    RemoveRow,
    RepairNumber,
    Backup,
}

/// A path that gives an order to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    Move,
    Pause,
    Resume,
    Drain,
}

/// All paths with names of their own.
pub(crate) static PATHS: [(&str, AdminPath<'static>); 19] = [
    ("/", AdminPath::Shown(Shown::Page)),
    ("/livez", AdminPath::Shown(Shown::Live)),
    ("/readyz", AdminPath::Shown(Shown::Ready)),
    ("/metrics", AdminPath::Shown(Shown::Metrics)),
    ("/status", AdminPath::Shown(Shown::Status)),
    ("/cluster", AdminPath::Shown(Shown::Cluster)),
    ("/cluster/events", AdminPath::Shown(Shown::ClusterEvents)),
    ("/sequences", AdminPath::Shown(Shown::Sequences)),
    ("/repairs", AdminPath::Shown(Shown::Repairs)),
    ("/cluster/move", AdminPath::Action(Action::Order(OrderKind::Move))),
    ("/cluster/pause", AdminPath::Action(Action::Order(OrderKind::Pause))),
    ("/cluster/resume", AdminPath::Action(Action::Order(OrderKind::Resume))),
    ("/cluster/drain", AdminPath::Action(Action::Order(OrderKind::Drain))),
    ("/drain", AdminPath::Action(Action::Drain)),
    ("/step-down", AdminPath::Action(Action::StepDown)),
    ("/repairs/mark", AdminPath::Action(Action::MarkEvent)),
    ("/repairs/remove", AdminPath::Action(Action::RemoveRow)),
    ("/repairs/number", AdminPath::Action(Action::RepairNumber)),
    ("/backup", AdminPath::Action(Action::Backup)),
];

/// The path of all views of the storage, before their names.
const INSPECT: &str = "/inspect/";

impl<'p> AdminPath<'p> {
    /// Finds a path; `None` if the endpoint does not have it.
    pub(crate) fn of(path: &'p str) -> Option<AdminPath<'p>> {
        if let Some(view) = path.strip_prefix(INSPECT) {
            return Some(AdminPath::Inspected(view));
        }
        PATHS.iter().find(|(named, _)| *named == path).map(|(_, found)| *found)
    }

    /// The methods of the path, and whether this method is one of them.
    pub(crate) fn allows(self, method: &Method) -> (&'static str, bool) {
        match self {
            AdminPath::Shown(_) | AdminPath::Inspected(_) => {
                ("GET, HEAD", matches!(*method, Method::GET | Method::HEAD))
            }
            AdminPath::Action(_) => ("POST", *method == Method::POST),
        }
    }

    /// Whether the path shows data of the node to clients without a token.
    pub(crate) fn has_open_data(self) -> bool {
        match self {
            AdminPath::Shown(shown) => shown.is_open() && shown != Shown::Page,
            AdminPath::Inspected(_) | AdminPath::Action(_) => false,
        }
    }
}

impl Shown {
    /// Whether the path needs no token: probes, the metrics, and the page, which has no data of its
    /// own. The whole status that `/readyz` can show is for operators only.
    pub(crate) fn is_open(self) -> bool {
        match self {
            Shown::Page | Shown::Live | Shown::Ready | Shown::Metrics => true,
            Shown::Status
            | Shown::Cluster
            | Shown::ClusterEvents
            | Shown::Sequences
            | Shown::Repairs => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_found_by_its_text_and_no_other_is() {
        for (text, path) in PATHS {
            assert_eq!(AdminPath::of(text), Some(path));
        }
        assert_eq!(AdminPath::of("/inspect/wlog"), Some(AdminPath::Inspected("wlog")));
        assert_eq!(AdminPath::of("/inspect/"), Some(AdminPath::Inspected("")));
        for none in ["", "/livez/", "//", "/inspect", "/Status", "/cluster/move/1", "/drain?x"] {
            assert_eq!(AdminPath::of(none), None, "{none}");
        }
    }

    #[test]
    fn only_probes_and_metrics_show_data_without_a_token() {
        let paths = PATHS.into_iter().chain([("/inspect/x", AdminPath::Inspected("x"))]);
        let open = paths.filter(|(_, path)| path.has_open_data()).map(|(text, _)| text);
        assert_eq!(Vec::from_iter(open), ["/livez", "/readyz", "/metrics"]);
        let is_open =
            |path: AdminPath<'_>| matches!(path, AdminPath::Shown(shown) if shown.is_open());
        let open = PATHS.into_iter().filter(|(_, path)| is_open(*path)).map(|(text, _)| text);
        assert_eq!(Vec::from_iter(open), ["/", "/livez", "/readyz", "/metrics"]);
    }

    #[test]
    fn only_actions_are_posted() {
        let allows = |path, method| AdminPath::of(path).unwrap().allows(&method).1;
        for path in ["/", "/status", "/inspect/apps"] {
            assert!(allows(path, Method::GET) && allows(path, Method::HEAD), "{path}");
            assert!(!allows(path, Method::POST) && !allows(path, Method::OPTIONS), "{path}");
        }
        for &(path, _) in PATHS.iter().filter(|(_, path)| matches!(path, AdminPath::Action(_))) {
            assert!(allows(path, Method::POST) && !allows(path, Method::GET), "{path}");
        }
    }
}
