//! What must be in the log of a workspace, by the answers that clients got.

use std::collections::HashMap;

/// The answers to commands, by the ids of their requests.
#[derive(Default)]
pub(crate) struct Oracle(HashMap<String, u16>);

impl Oracle {
    pub(crate) fn note(&mut self, id: String, status: u16) {
        assert!(self.0.insert(id, status).is_none(), "each request has an id of its own");
    }

    /// The number of answers with this status.
    pub(crate) fn count(&self, status: u16) -> usize {
        self.0.values().filter(|seen| **seen == status).count()
    }

    /// Checks the ids in the log: a command with 200 has one event, a command with 503 none, and a
    /// command with 504 at most one.
    pub(crate) fn check(&self, logged: &[String]) {
        let mut events: HashMap<&str, usize> = HashMap::new();
        for id in logged {
            *events.entry(id).or_default() += 1;
        }
        for (id, status) in &self.0 {
            let events = events.get(id.as_str()).copied().unwrap_or_default();
            let is_right = match status {
                200 => events == 1,
                503 => events == 0,
                504 => events <= 1,
                _ => false,
            };
            assert!(is_right, "{id} was answered with {status} and has {events} events");
        }
    }
}
