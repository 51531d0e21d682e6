//! The demo application, for trying a node. A node without configured applications runs it.

use eventlog::RecordId;
use isequencer::{SeqId, Sequence, WsKind};
use processor::{
    Application, Declarations, SeriesPolicy,
    docnumbers::{Definition, FastSettings, Reset, Series},
};
use sysvvm::AppName;

/// The counter record of the bills in each workspace.
const BILL_COUNTER: RecordId = RecordId(65_601);

/// The numbers of deliveries, as the tables and the configuration name them.
const DELIVERY: &str = "Delivery";

/// Makes the demo application. Its bills have gapless numbers such as `INV2026-0042`. Clients may
/// draw numbers such as `ORDER2026-1123-00042` for their orders. Its deliveries have the numbers of
/// a sequence: 1, 2 and so on.
///
/// # Panics
/// Never: its name, its tables, its workspaces, its sequence and its series are valid.
pub(crate) fn demo() -> (AppName, Application) {
    let name = AppName::new("demo", "shop").expect("the name is valid");
    let tables = include_str!("../../config/demo.toml").parse().expect("the tables are valid");
    let declared = Declarations::new(tables).expect("no table is the system's");
    let deliveries = Sequence::within(SeqId(256), 1..1_000_000).expect("the range is valid");
    let deliveries = (DELIVERY.parse().expect("the name is valid"), deliveries);
    let declared = declared.with_workspaces("Shop", WsKind(1), [deliveries]);
    let declared = declared.expect("the kind is new");
    let bill = Definition {
        reset: Reset::Year,
        start: 1,
        ..Definition::new("bill", "INV{date:yyyy}-{counter:4}")
    };
    let bill = Series::new(bill).expect("the year is in the text");
    let order = Series::new(Definition::daily("order", "ORDER")).expect("the day is in the text");
    let gapless = SeriesPolicy::Gapless { counter: BILL_COUNTER };
    let declared = declared.with_series(bill, gapless).expect("the series is new");
    let fast = SeriesPolicy::Fast(FastSettings::default());
    let declared = declared.with_series(order, fast).expect("the series is new");
    (name, Application::new(declared))
}
