//! An application with running partitions, for suites and for the bench.

mod narrow_storage;
mod shop;
mod shop_database;
mod stalling_storage;
mod stored_state;

pub use narrow_storage::NarrowStorage;
pub use shop::{
    Batch, article, bill, child, create_workspace, cud, raw, record_name, shop, text, update,
};
pub use shop_database::{ShopDatabase, ShopNode, ShopNodeSettings, TestFence};
pub use stalling_storage::{StallPoint, StallingStorage};
pub use stored_state::{AnswerLedger, CheckOptions, StoredState, check, check_under};
