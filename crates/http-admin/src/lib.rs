//! The admin endpoint of a node, as a [service](vvm::Service) of the node: its health, its metrics,
//! its status, views of its storage, and the actions of its operators.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
pub mod inspect;
mod shared_renderer;

pub use admin::{AdminEndpoint, AdminSettings, OPERATOR_LINES};
pub use shared_renderer::MetricsRenderer;
