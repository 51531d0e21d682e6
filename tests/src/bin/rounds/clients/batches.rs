//! Batches of commands.

use std::{collections::VecDeque, net::SocketAddr};

use super::{
    Client, Pauses, Sender, Shared, is_end,
    requests::{self, Sent},
};
use crate::{
    api,
    history::{Outcome, Version},
};

/// The commands of a batch.
const COMMANDS: std::ops::RangeInclusive<usize> = 2..=5;

impl Client {
    /// Sends a batch, and sends it again if it has a key and the outcome of a command is not known.
    pub(super) async fn batch(&mut self, ws: u64, articles: &VecDeque<(u64, Version)>) {
        let count = self.rng.usize(COMMANDS);
        let commands: Vec<Sent> = (0..count).map(|_| self.command(ws, articles)).collect();
        let (id, has_key) = (self.shared.new_id(), self.rng.u32(0..100) < 60);
        let mut pauses = Pauses::new(&self.shared.clock);
        loop {
            let node = self.node();
            let outcomes =
                self.shared.batch_once(self.sender, node, ws, &commands, (&id, has_key)).await;
            let is_over = outcomes.iter().all(is_end) || !has_key || self.shared.is_stopped();
            if is_over || !pauses.wait(&self.shared.clock).await {
                return;
            }
        }
    }

    /// A command for a batch. No two commands send the same values.
    fn command(&mut self, ws: u64, articles: &VecDeque<(u64, Version)>) -> Sent {
        let value = self.rng.u64(..);
        let article = articles.get(self.rng.usize(..articles.len().max(1))).copied();
        match (self.rng.u32(0..100), article) {
            (0..50, Some((id, version))) => {
                let if_match = self.rng.bool().then_some(version);
                requests::changed(ws, id, if_match, value)
            }
            (50..60, _) => requests::bill(ws, value),
            (60..70, _) => requests::delivery(ws, value),
            _ => requests::article(ws, value),
        }
    }
}

impl Shared {
    /// Sends a batch once, and records an operation for each of its commands.
    async fn batch_once(
        &self,
        sender: Sender,
        node: SocketAddr,
        ws: u64,
        commands: &[Sent],
        (id, has_key): (&str, bool),
    ) -> Vec<Outcome> {
        let request = requests::batch(ws, commands).with_id(id, has_key);
        let begin = self.recorder.now();
        let read = |answer: Result<&api::HttpAnswer, String>| api::batch(answer, commands.len());
        let outcomes = api::ask(&self.clock, node, &request, sender.patience, read).await;
        for ((place, sent), outcome) in (0..).zip(commands).zip(&outcomes) {
            let request = sent.recorded(id, has_key, Some(place));
            self.record((sender.client, node), begin, ws, (sent, request), outcome);
        }
        outcomes
    }
}
