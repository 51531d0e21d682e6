//! The outcome of a try of a request, for the tries after it.

use http_server::problem::Answer;

/// The state of an answered batch if some of its commands may have to be tried again. The answer
/// carries the state as a mark that only nodes see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchState {
    /// Some commands were refused as busy.
    ///
    /// Such a refusal says that this try of the command did nothing. If an earlier try of the batch
    /// may have done the command, the refusal must not reach the client
    /// (`Tries::next`).
    PartlyBusy,
    /// Some commands were refused, none of them as busy, by a problem that does not tell the
    /// outcome of an earlier try (`is_settled`).
    PartlyUnsettled,
}

impl BatchState {
    /// The code of the state, in the answer to another node.
    pub fn code(self) -> &'static str {
        match self {
            BatchState::PartlyBusy => "partly_busy",
            BatchState::PartlyUnsettled => "partly_unsettled",
        }
    }

    /// The state with this code; `None` if it is the code of a problem.
    pub fn of(code: &str) -> Option<BatchState> {
        [BatchState::PartlyBusy, BatchState::PartlyUnsettled]
            .into_iter()
            .find(|state| state.code() == code)
    }
}

/// The code of an answer for the tries of its request.
pub fn code_of(answer: &Answer) -> Option<&'static str> {
    match answer {
        Ok(response) => response.extensions().get::<BatchState>().map(|state| state.code()),
        Err(problem) => Some(problem.code()),
    }
}
