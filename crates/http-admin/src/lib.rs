//! The admin endpoint of a node, as a [service](vvm::Service) of the node: its health, its metrics,
//! its status, views of its storage, and the actions of its operators.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod audit;
mod backup;
mod cluster;
mod events;
mod found_app;
pub mod inspect;
mod paths;
mod repair;
mod sequences;
mod shared_renderer;
mod storage_views;

pub use admin::{AdminEndpoint, AdminSettings};
pub use audit::OPERATOR_LINES;
pub use shared_renderer::MetricsRenderer;
