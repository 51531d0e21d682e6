//! The demo application, for trying a node. A node without configured applications runs it.

use isequencer::WsKind;
use processor::Application;
use sysvvm::AppName;

/// Makes the demo application.
///
/// # Panics
/// Never: its name, its tables and its workspaces are valid.
pub(crate) fn demo() -> (AppName, Application) {
    let name = AppName::new("demo", "shop").expect("the name is valid");
    let tables = include_str!("../../config/demo.toml").parse().expect("the tables are valid");
    let application = Application::new(tables).expect("no table is the system's");
    let application = application.with_workspaces("Shop", WsKind(1), []);
    (name, application.expect("the kind is new"))
}
