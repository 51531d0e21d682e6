//! The choice between the long rounds of a suite and a short sample.

/// Whether `VVM_TEST_LONG` is set, as `cargo xtask test --long` sets it. Without the variable, or
/// if it is empty or `0`, a suite runs a small fixed sample.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "suites learn this from the environment")]
pub fn is_long() -> bool {
    std::env::var_os("VVM_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}
