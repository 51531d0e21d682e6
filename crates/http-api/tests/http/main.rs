//! The HTTP API and the admin endpoint of a node in this process, over sockets: routes, refusals,
//! limits and answers.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod access;
mod admin;
mod backup;
mod batches;
mod busy;
mod clients;
mod commands;
mod description;
mod documents;
mod early_answers;
mod follow;
mod follow_storage;
mod frames;
mod head;
mod hosts;
mod inspect;
mod lists;
mod live_page;
mod malformed;
mod memory;
mod numbers;
mod numbers_memory;
mod routes;
mod rules;
mod shares;
mod stalls;
mod support;
mod tls;
mod tls_exchange;
