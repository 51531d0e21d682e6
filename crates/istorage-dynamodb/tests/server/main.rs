//! Trials of DynamoDB's own behavior, on DynamoDB Local. The suite that all drivers share proves
//! the contract itself.
//!
//! `VVM_TEST_DYNAMODB` is the URL of the server. If the variable is not set, each trial is reported
//! as ignored. If the variable is set and the server is missing, the trials fail.

#![expect(clippy::unwrap_used, reason = "a trial fails by panicking")]

mod expiry;
mod limits;
mod pages;
mod support;
mod tables;

use std::{future::Future, pin::Pin, process::ExitCode};

use libtest_mimic::{Arguments, Trial};

use support::DynamoDbServer;

type Run = fn(DynamoDbServer) -> Pin<Box<dyn Future<Output = ()>>>;

/// A list of trials, each with its name and its function.
macro_rules! trials {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$((
            concat!("dynamodb::", stringify!($module), "::", stringify!($name)),
            (|server| Box::pin($module::$name(server))) as Run,
        )),*]
    };
}

fn main() -> ExitCode {
    let trials = trials![
        expiry::an_expired_item_stays_in_the_table_and_is_no_row,
        expiry::an_expired_item_is_replaced_by_a_transaction,
        expiry::the_wall_clocks_of_the_nodes_do_not_matter,
        expiry::a_wall_clock_that_is_behind_does_not_matter_to_ordered_rows,
        limits::the_largest_items_of_every_kind_are_accepted,
        limits::a_batch_of_the_largest_items_is_accepted,
        limits::the_largest_transactions_are_accepted,
        limits::a_transaction_with_a_row_too_many_is_invalid,
        limits::empty_keys_are_accepted,
        pages::pages_of_large_rows_are_followed,
        pages::pages_of_many_small_rows_are_followed,
        pages::a_batch_of_more_than_a_page_is_read,
        pages::the_time_of_the_server_can_be_read,
        tables::many_nodes_create_one_table,
        tables::a_table_has_the_configured_capacity,
        tables::a_foreign_table_is_left_alone,
        tables::a_table_that_is_removed_under_a_storage_is_corrupt,
        tables::a_server_that_is_not_there_is_unavailable,
    ];
    #[expect(
        clippy::disallowed_methods,
        reason = "a test learns from the environment which servers there are"
    )]
    let endpoint = std::env::var("VVM_TEST_DYNAMODB").ok();
    let trials = trials.map(|(name, run)| {
        let endpoint = endpoint.clone();
        let ignored = endpoint.is_none();
        let test = move || match &endpoint {
            Some(endpoint) => {
                let runtime = tokio::runtime::Runtime::new()?;
                runtime.block_on(run(DynamoDbServer::at(endpoint)));
                Ok(())
            }
            None => Err("VVM_TEST_DYNAMODB is not set".into()),
        };
        Trial::test(name, test).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}
