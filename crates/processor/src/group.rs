//! A group: commands that are written together, and answered when the outcome of the write is
//! known.
//!
//! Invariant: no command of a group is answered before the write outcome of the group is known.

mod execute;
mod read_ahead;

use base::with_causes;
use eventlog::{EventPlace, Obstacle, Offset, PreparedEvent, WriteOutcome, WsId};
use hashbrown::HashMap;
use isequencer::Transaction;

use crate::{
    Answer, Busy, Done, Refused, command::Answered, known_rows::KnownRows,
    outdated::OutdatedRecord, partition_context::PartitionContext, queue::Reply,
    spans::CommandSpan, state::Overlay,
};

/// Commands that are written together.
#[derive(Debug)]
pub(crate) struct CommandGroup {
    pub(crate) events: Vec<PreparedEvent>,
    pub(crate) bytes: usize,
    waiting: Vec<WaitingCommand>,
    overlay: Overlay,
    /// The rows that were read before the commands ran, and the counter records. They stay here for
    /// the next group.
    known_rows: KnownRows,
    /// Gathered while the group is formed, and taken when it is.
    pub(crate) unread: UnreadRows,
    /// The events of commands with an idempotency key, by workspace and key.
    keys_in_group: HashMap<(WsId, [u8; 32]), (usize, [u8; 32])>,
}

/// What the commands of a group could not read.
#[derive(Debug, Default)]
pub(crate) struct UnreadRows {
    /// Whether a row or a number that a command needs could not be read, or a row names an event
    /// that this node has not replayed. The group ends with that command.
    pub(crate) ends_group: bool,
    /// The offset of the last event that a row names and that this node has not replayed; `None` if
    /// no row names such an event.
    pub(crate) unexpected_event: Option<Offset>,
    /// The damaged rows, with their descriptions.
    pub(crate) damaged: Vec<(Obstacle, String)>,
    /// The outdated record that a command met. The group ends with that command.
    pub(crate) outdated: Option<OutdatedRecord>,
}

/// The role of the node that answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeRole {
    Leader,
    /// Another node may lead and write. If `events_are_final`, that node cannot replace an event in
    /// the log.
    FormerLeader {
        events_are_final: bool,
    },
}

/// A command that waits for the write outcome of its group.
#[derive(Debug)]
struct WaitingCommand {
    reply: Reply,
    outcome: CommandOutcome,
    /// A rejection of the command rests on this many entries of the group.
    rests_on: usize,
}

#[derive(Debug)]
enum CommandOutcome {
    /// The command wrote this event, and is done when the event is.
    Event(usize, Answer),
    /// Another command of the group has the same idempotency key and the same body, and wrote this
    /// event.
    DuplicateInGroup(usize),
    /// The command was done before the group.
    AlreadyDone(Done),
    Refused(Refused),
}

impl CommandGroup {
    /// Makes an empty group. `checks_records` tells whether a write of a record notices what
    /// another program did to the row.
    pub(crate) fn new(checks_records: bool) -> CommandGroup {
        CommandGroup {
            events: Vec::new(),
            bytes: 0,
            waiting: Vec::new(),
            overlay: Overlay::default(),
            known_rows: KnownRows::keeping_counters(checks_records),
            unread: UnreadRows::default(),
            keys_in_group: HashMap::new(),
        }
    }

    /// The number of commands that wait for the write outcome.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The spans of the commands that wait for the write outcome.
    pub(crate) fn spans(&mut self) -> impl Iterator<Item = &mut CommandSpan> {
        self.waiting.iter_mut().map(|waiting| &mut waiting.reply.span)
    }

    /// Adds a fencing entry to a group without events, if the end of the log is not
    /// [fenced](eventlog::LogWriter::is_fenced).
    ///
    /// Invariant: a leader answers no rejection before an entry of its own is in the log. A simpler
    /// version answers at once. Leader A's insert of event 7, the command with key K, gets no
    /// answer; A loses its lease; leader B recovers the log up to event 6; the client sends the
    /// command again, and B rejects it: there is no such workspace. So the client takes the command
    /// for refused. The insert of A lands, the next write of B meets event 7, and B applies it. So
    /// the command is done, although it was refused for good.
    ///
    /// If a read of the group has failed, nothing is added: the storage may be failing. Then
    /// rejections of the group are answered "busy".
    pub(crate) fn fence(
        &mut self,
        partition: &PartitionContext,
        transaction: &mut Transaction<'_>,
    ) {
        if partition.is_fenced() || !self.events.is_empty() || self.unread.ends_group {
            return;
        }
        partition.time.advance(partition.clock.wall());
        let plog = transaction.keep_without_numbers();
        let entry = partition.log.fencing_entry(plog, partition.time.last());
        self.bytes += entry.bytes();
        self.events.push(entry);
    }

    /// Answers all commands of the group, by the role that this node has now.
    ///
    /// Invariant: a rejection rests only on events that are in the log. A simpler version always
    /// answers with the rejection. Command 1 creates a singleton; command 2 is rejected because the
    /// singleton exists; the write of the group fails. So the singleton does not exist, and the
    /// rejection of command 2 would be wrong. Command 2 is answered "busy".
    ///
    /// Invariant: after a rejection, no event of a former leader comes into the log. See
    /// [`CommandGroup::fence`].
    pub(crate) fn answer(&mut self, written: &WriteOutcome, role: NodeRole) {
        // A fencing entry is the only entry of its group, so each index is that of an event.
        let places: Vec<EventPlace> = self.events.iter().filter_map(PreparedEvent::place).collect();
        // The answers of the events that other commands of the group share.
        let mut answers: HashMap<usize, Answer> = HashMap::new();
        if self
            .waiting
            .iter()
            .any(|waiting| matches!(waiting.outcome, CommandOutcome::DuplicateInGroup(_)))
        {
            for waiting in &self.waiting {
                if let CommandOutcome::Event(event, answer) = &waiting.outcome {
                    answers.insert(*event, answer.clone());
                }
            }
        }
        for WaitingCommand { reply, outcome, rests_on } in self.waiting.drain(..) {
            let is_repeated = matches!(outcome, CommandOutcome::DuplicateInGroup(_));
            let answered = match outcome {
                CommandOutcome::Event(event, answer) => {
                    of_event(written, places[event], event, answer, is_repeated)
                }
                CommandOutcome::DuplicateInGroup(event) => {
                    let answer = answers.get(&event).cloned().unwrap_or_default();
                    of_event(written, places[event], event, answer, is_repeated)
                }
                CommandOutcome::AlreadyDone(done) => Ok(done),
                // The handler rejected the command after it saw events that were not written, or
                // the end of the log is not fenced.
                CommandOutcome::Refused(Refused::Rejected(_)) if rests_on > written.committed => {
                    Err(match not_written(written) {
                        Refused::Unknown(_) => {
                            let why = "the outcome of earlier commands of the group is unknown";
                            Refused::Busy(Busy::Failed(why.to_owned()))
                        }
                        refused => refused,
                    })
                }
                CommandOutcome::Refused(refused) => Err(refused),
            };
            reply.answer(match role {
                NodeRole::Leader => answered,
                NodeRole::FormerLeader { events_are_final } => {
                    of_former_leader(answered, events_are_final)
                }
            });
        }
        self.events.clear();
        self.bytes = 0;
        self.overlay.clear();
        self.keys_in_group.clear();
    }
}

fn of_event(
    written: &WriteOutcome,
    place: EventPlace,
    event: usize,
    answer: Answer,
    is_repeated: bool,
) -> Answered {
    let EventPlace { epoch, plog, wlog, .. } = place;
    if event >= written.committed {
        return Err(not_written(written));
    }
    match &written.applied {
        Ok(()) => Ok(Done { epoch, plog, wlog, answer, is_repeated }),
        Err(error) => Err(Refused::NotApplied { plog, why: with_causes(error) }),
    }
}

/// The refusal of a command whose event is not, or possibly not, in the log.
fn not_written(written: &WriteOutcome) -> Refused {
    match &written.commit_error {
        Some(error @ eventlog::Error::Unknown(_)) => Refused::Unknown(with_causes(error)),
        Some(eventlog::Error::LeadershipLost(lost)) => {
            Refused::Busy(Busy::LeadershipLost(lost.0.clone()))
        }
        Some(error @ eventlog::Error::Violation(_)) => {
            Refused::Busy(Busy::Violation(with_causes(error)))
        }
        Some(error) => Refused::Busy(Busy::Storage(with_causes(error))),
        None => Refused::Busy(Busy::Storage("the group of the command was not written".to_owned())),
    }
}

/// The answer of a node that no longer leads. Another node may have replaced the rows that this
/// node read or wrote.
fn of_former_leader(answered: Answered, events_are_final: bool) -> Answered {
    let why = "the leadership was lost before the command was answered";
    match answered {
        Ok(_) => Err(Refused::Unknown(why.to_owned())),
        Err(Refused::NotApplied { .. }) if !events_are_final => {
            Err(Refused::Unknown(why.to_owned()))
        }
        // The partition fails because the leadership was lost.
        Err(Refused::Rejected(_) | Refused::Busy(Busy::Failed(_))) => {
            Err(Refused::Busy(Busy::LeadershipLost(why.to_owned())))
        }
        Err(refused) => Err(refused),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use eventlog::{Error, istorage};

    use super::*;
    use crate::Rejection;

    /// Returns the answer to a command that was rejected after it saw an event of its group. The
    /// outcome of that event is unknown.
    fn after_unknown_outcome(role: NodeRole) -> Answered {
        let (reply, _, mut answered) = Reply::new(CommandSpan::default());
        let rejected = CommandOutcome::Refused(Refused::Rejected(Rejection::conflict("it exists")));
        let waiting = vec![WaitingCommand { reply, outcome: rejected, rests_on: 1 }];
        let unknown = Error::Unknown(istorage::Error::outcome_unknown("no answer"));
        let written = WriteOutcome {
            committed: 0,
            applied: Ok(()),
            commit_error: Some(unknown),
            log_time: Duration::ZERO,
        };
        CommandGroup { waiting, ..CommandGroup::new(true) }.answer(&written, role);
        answered.try_recv().unwrap()
    }

    /// The node still led, but the answer was `LeadershipLost`. The API redirected the client to
    /// the node that had answered.
    #[test]
    fn a_rejection_after_an_unknown_outcome_names_the_leadership_only_if_it_is_lost() {
        let refused = after_unknown_outcome(NodeRole::Leader).unwrap_err();
        assert!(matches!(refused, Refused::Busy(Busy::Failed(_))), "{refused:?}");
        for events_are_final in [false, true] {
            let former = NodeRole::FormerLeader { events_are_final };
            let refused = after_unknown_outcome(former).unwrap_err();
            assert!(matches!(refused, Refused::Busy(Busy::LeadershipLost(_))), "{refused:?}");
        }
    }
}
