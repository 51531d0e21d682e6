//! The HTTP client of the commands: the address of a node, the connection to it, and its answers.

mod address;
mod answer;
mod connection_args;
mod no_answer;
mod node_client;
mod path;
mod read_ahead;
mod streamed_answer;
mod target;

pub use self::{
    address::NodeAddress,
    answer::NodeAnswer,
    connection_args::{ConnectionArgs, ConnectionFile, TargetError},
    node_client::{AnswerPieces, NodeClient, NodeRequest},
    target::NodeTarget,
};
pub(crate) use self::{
    no_answer::NoAnswer,
    path::{path_of_app, query_part},
    read_ahead::{PieceReceiver, read_ahead},
    streamed_answer::StreamedAnswer,
};
