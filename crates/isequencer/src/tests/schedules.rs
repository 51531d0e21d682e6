//! The simulation without mistakes: in every order of steps, no number is given twice and none is
//! left out.

use std::sync::Arc;

use shuttle::future::block_on;

use super::world::{Weather, history};

fn run(weather: Weather, lives: usize, schedules: usize) {
    let one = move || block_on(history(weather, lives, |mem| Arc::new(mem)));
    shuttle::check_random_with_seed(one, 1, schedules);
}

#[test]
fn in_good_weather() {
    run(Weather { fails: 0, dies_within: None }, 1, 3_000);
}

#[test]
fn when_calls_fail_or_seem_to() {
    run(Weather { fails: 15, dies_within: None }, 2, 3_000);
}

#[test]
fn when_the_node_dies_between_any_two_calls() {
    run(Weather { fails: 5, dies_within: Some(40) }, 4, 5_000);
}
