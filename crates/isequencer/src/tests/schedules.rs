//! The simulation without mistakes: in every order of steps, no number is given twice and none is
//! left out.

use std::sync::Arc;

use shuttle::future::block_on;

use super::simulation::{Faults, history};

fn run(faults: Faults, lives: usize, schedules: usize) {
    let one = move || block_on(history(faults, lives, |mem| Arc::new(mem)));
    shuttle::check_random_with_seed(one, 1, schedules);
}

#[test]
fn no_number_is_given_twice_without_faults() {
    run(Faults { fail_percent: 0, dies_within: None }, 1, 3_000);
}

#[test]
fn no_number_is_given_twice_when_calls_fail_or_lose_their_answer() {
    run(Faults { fail_percent: 15, dies_within: None }, 2, 3_000);
}

#[test]
fn no_number_is_given_twice_when_the_node_dies_between_two_calls() {
    run(Faults { fail_percent: 5, dies_within: Some(40) }, 4, 5_000);
}
