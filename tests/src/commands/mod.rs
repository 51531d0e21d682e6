//! An application with running partitions, for suites and for the bench.

mod invariants;
mod narrow;
mod shop;
mod site;
mod stall;

pub use invariants::{Ledger, Terms, World, check, check_under};
pub use narrow::Narrow;
pub use shop::{
    Batch, article, bill, child, create_workspace, cud, raw, record_name, shop, text, update,
};
pub use site::{Node, NodeSettings, Site, TestLead};
pub use stall::{At, Stall};
