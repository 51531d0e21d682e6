//! The paths of the admin endpoint.
//!
//! Invariant: the kind of a path decides about its method, its operator and its line in the log. So
//! a new path needs an operator unless it is named as open, and each action has a line.

use hyper::Method;

/// A path of the admin endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminPath<'p> {
    Shown(Shown),
    /// A view of the storage, by its name.
    Inspected(&'p str),
    Action(Action),
}

/// A path that shows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
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
pub(super) enum Action {
    Order(Order),
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
pub(super) enum Order {
    Move,
    Pause,
    Resume,
    Drain,
}

/// Lists all values of a type with their paths.
///
/// Invariant: a value without a path does not compile, because `path` has an arm for each line of
/// the list and for nothing else. With a list apart from the arms, a new value that is not in the
/// list compiles, and its path is answered with 404.
macro_rules! each_path {
    ($of:ident: $($kind:ident $(($inner:path))? = $path:literal,)+) => {
        impl $of {
            pub(super) const ALL: [$of; [$($path),+].len()] = [$($of::$kind $(($inner))?),+];

            pub(super) fn path(self) -> &'static str {
                match self {
                    $($of::$kind $(($inner))? => $path,)+
                }
            }
        }
    };
}

/// The path of all views of the storage, before their names.
const INSPECT: &str = "/inspect/";

impl<'p> AdminPath<'p> {
    /// Finds a path; `None` if the endpoint does not have it.
    pub(super) fn of(path: &'p str) -> Option<AdminPath<'p>> {
        if let Some(view) = path.strip_prefix(INSPECT) {
            return Some(AdminPath::Inspected(view));
        }
        let shown = Shown::ALL.into_iter().find(|shown| shown.path() == path);
        let action = || Action::ALL.into_iter().find(|action| action.path() == path);
        shown.map(AdminPath::Shown).or_else(|| action().map(AdminPath::Action))
    }

    /// The methods of the path, and whether this method is one of them.
    pub(super) fn allows(self, method: &Method) -> (&'static str, bool) {
        match self {
            AdminPath::Shown(_) | AdminPath::Inspected(_) => {
                ("GET, HEAD", matches!(*method, Method::GET | Method::HEAD))
            }
            AdminPath::Action(_) => ("POST", *method == Method::POST),
        }
    }

    /// Whether the path shows data of the node to clients without a token.
    pub(super) fn has_open_data(self) -> bool {
        match self {
            AdminPath::Shown(shown) => shown.is_open() && shown != Shown::Page,
            AdminPath::Inspected(_) | AdminPath::Action(_) => false,
        }
    }
}

each_path!(Shown:
    Page = "/",
    Live = "/livez",
    Ready = "/readyz",
    Metrics = "/metrics",
    Status = "/status",
    Cluster = "/cluster",
    ClusterEvents = "/cluster/events",
    Sequences = "/sequences",
    Repairs = "/repairs",
);

each_path!(Action:
    Order(Order::Move) = "/cluster/move",
    Order(Order::Pause) = "/cluster/pause",
    Order(Order::Resume) = "/cluster/resume",
    Order(Order::Drain) = "/cluster/drain",
    Drain = "/drain",
    StepDown = "/step-down",
    MarkEvent = "/repairs/mark",
    RemoveRow = "/repairs/remove",
    RepairNumber = "/repairs/number",
    Backup = "/backup",
);

impl Shown {
    /// Whether the path needs no token: probes, the metrics, and the page, which has no data of its
    /// own. The whole status that `/readyz` can show is for operators only.
    pub(super) fn is_open(self) -> bool {
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
        for shown in Shown::ALL {
            assert_eq!(AdminPath::of(shown.path()), Some(AdminPath::Shown(shown)));
        }
        for action in Action::ALL {
            assert_eq!(AdminPath::of(action.path()), Some(AdminPath::Action(action)));
        }
        assert_eq!(AdminPath::of("/inspect/wlog"), Some(AdminPath::Inspected("wlog")));
        assert_eq!(AdminPath::of("/inspect/"), Some(AdminPath::Inspected("")));
        for none in ["", "/livez/", "//", "/inspect", "/Status", "/cluster/move/1", "/drain?x"] {
            assert_eq!(AdminPath::of(none), None, "{none}");
        }
    }

    #[test]
    fn only_probes_and_metrics_show_data_without_a_token() {
        let paths: Vec<_> = Shown::ALL.map(Shown::path).into_iter().collect();
        let paths = paths.into_iter().chain(Action::ALL.map(Action::path)).chain(["/inspect/x"]);
        let has_open_data = |path: &&str| AdminPath::of(path).unwrap().has_open_data();
        let open: Vec<_> = paths.filter(has_open_data).collect();
        assert_eq!(open, ["/livez", "/readyz", "/metrics"]);
        let open: Vec<_> = Shown::ALL.into_iter().filter(|shown| shown.is_open()).collect();
        assert_eq!(open, [Shown::Page, Shown::Live, Shown::Ready, Shown::Metrics]);
    }

    #[test]
    fn only_actions_are_posted() {
        let allows = |path, method| AdminPath::of(path).unwrap().allows(&method).1;
        for path in ["/", "/status", "/inspect/apps"] {
            assert!(allows(path, Method::GET) && allows(path, Method::HEAD), "{path}");
            assert!(!allows(path, Method::POST) && !allows(path, Method::OPTIONS), "{path}");
        }
        for action in Action::ALL {
            let path = action.path();
            assert!(allows(path, Method::POST) && !allows(path, Method::GET), "{path}");
        }
    }
}
