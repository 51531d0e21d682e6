//! Commands that are written together: each is run against what those before it did, and all are answered when it is known what became of
//! them.

use std::{panic::AssertUnwindSafe, sync::Arc};

use bytes::Bytes;
use clock::{Clock, WallTime};
use eventlog::{
    Drawn, Event, Fate, Idempotency, Log, Place, Prepared, RecordId, StoredRecord, Value, WsId,
};
use futures::FutureExt;
use hashbrown::HashMap;
use isequencer::{NotJoined, Transaction, WsKind, standard};

use crate::{
    Answer, Application, Busy, Command, Done, Failure, Handler, Refused, Rejection, RejectionKind,
    RowChange, Work,
    application::{DESCRIPTOR_ID, KIND},
    builtin::{CREATE_WORKSPACE, NewWorkspace},
    queue::{Answered, Queued, Reply},
    recent::Recent,
    state::{Overlay, State},
};

/// What a group is made with.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) application: Arc<Application>,
    pub(crate) log: Arc<Log>,
    pub(crate) clock: Clock,
    /// The kinds of workspaces that are stored.
    pub(crate) kinds: Recent<WsId, WsKind>,
    /// Of the last event.
    pub(crate) time: WallTime,
}

/// Commands that are written together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) events: Vec<Prepared>,
    pub(crate) bytes: usize,
    waiting: Vec<Waiting>,
    overlay: Overlay,
    /// The events whose commands may be sent again, by workspace and key.
    repeats: HashMap<(WsId, [u8; 32]), (usize, [u8; 32])>,
}

/// A command that waits for the fate of its group.
#[derive(Debug)]
struct Waiting {
    reply: Reply,
    outcome: Outcome,
    /// How many events it could see.
    sees: usize,
}

#[derive(Debug)]
enum Outcome {
    /// It is done when this event is.
    Event(usize, Answer),
    /// Another command of the group is the same, and wrote this event.
    Same(usize),
    /// It was done before.
    Repeated(Done),
    Refused(Refused),
}

/// What became of a command that was to join a group.
enum Step {
    Outcome(Outcome),
    /// It has to wait for the next group.
    Full(Command),
}

impl From<Refused> for Step {
    fn from(refused: Refused) -> Step {
        Step::Outcome(Outcome::Refused(refused))
    }
}

fn rejected(rejection: Rejection) -> Step {
    Refused::Rejected(rejection).into()
}

fn unreadable(error: &(dyn std::error::Error + 'static)) -> Step {
    Refused::Busy(Busy::Storage(in_full(error))).into()
}

/// An error with all its causes.
pub(crate) fn in_full(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

impl Group {
    /// Runs a command. One for which there is no room comes back.
    pub(crate) async fn add(
        &mut self,
        bench: &mut Bench,
        transaction: &mut Transaction<'_>,
        queued: Queued,
    ) -> Option<Queued> {
        let Queued { command, reply } = queued;
        if !reply.take() {
            return None;
        }
        let sees = self.events.len();
        match self.run(bench, transaction, command).await {
            Step::Outcome(outcome) => {
                self.waiting.push(Waiting { reply, outcome, sees });
                None
            }
            Step::Full(command) => {
                reply.put_back();
                Some(Queued { command, reply })
            }
        }
    }

    async fn run(
        &mut self,
        bench: &mut Bench,
        transaction: &mut Transaction<'_>,
        command: Command,
    ) -> Step {
        if let Some(step) = self.repeated(bench, &command).await {
            return step;
        }
        let ws = command.ws;
        let application = Arc::clone(&bench.application);
        let Some(handler) = application.handler(&command.name) else {
            let what = format!("there is no command {}", command.name);
            return rejected(Rejection::not_found(what));
        };
        let kind = match self.kind(bench, &command).await {
            Ok(kind) => kind,
            Err(step) => return step,
        };
        let mut joined = match transaction.join(kind, isequencer::WsId(ws.0)).await {
            Ok(joined) => joined,
            Err(NotJoined::Full) => return Step::Full(command),
            Err(error @ NotJoined::UnknownKind(_)) => {
                return rejected(Rejection::new(RejectionKind::Internal, error.to_string()));
            }
            Err(error @ NotJoined::Storage(..)) => return unreadable(&error),
        };
        let wlog = match joined.next(standard::WLOG_OFFSET) {
            Ok(wlog) => eventlog::Offset(wlog),
            Err(error) => return rejected(Rejection::conflict(error.to_string())),
        };
        let Command { name, params, rows, request, repeat, deadline, .. } = command;
        let state = State { overlay: &self.overlay, reader: bench.log.reader() };
        let mut work = Work {
            application: &application,
            ws,
            kind,
            state: &state,
            numbers: &mut joined,
            changes: Vec::with_capacity(rows.len()),
            before: Vec::new(),
            ids: Vec::with_capacity(rows.len()),
        };
        let ran = AssertUnwindSafe(handled(&**handler, &params, rows, &mut work)).catch_unwind();
        let result = match bench.clock.timeout_at(deadline, ran).await {
            Ok(Ok(Ok(result))) => result,
            Ok(Ok(Err(Failure::Rejected(rejection)))) => return rejected(rejection),
            Ok(Ok(Err(Failure::Storage(error)))) => return unreadable(&error),
            Ok(Err(_)) => {
                let what = format!("the handler of {name} panicked");
                return rejected(Rejection::new(RejectionKind::Internal, what));
            }
            Err(_) => return Refused::Busy(Busy::TimedOut).into(),
        };
        let Work { changes, before, ids, .. } = work;
        let answer = Answer { ids, result };
        let (epoch, plog) = (bench.log.epoch(), eventlog::Offset(joined.offset().get()));
        let place = Place { epoch, plog, ws, wlog };
        let drawn = joined.drawn().map(|(key, last)| Drawn { seq: key.seq.0, last }).collect();
        bench.time = bench.time.max(bench.clock.wall());
        let event = Event {
            place,
            time: bench.time,
            request,
            idempotency: repeat.map(|repeat| Idempotency {
                principal: repeat.principal,
                key: repeat.key,
                body: repeat.body,
                answer: answer.to_bytes(),
            }),
            command: name,
            params,
            changes,
            drawn,
        };
        let read = |id: RecordId| {
            before.iter().find(|(read, _)| *read == id).map(|(_, bytes)| bytes.clone())
        };
        let prepared = Prepared::new(&event, read);
        let (largest, limit) = (prepared.largest_row(), bench.log.largest_row());
        if largest > limit {
            let what = format!(
                "what it writes needs {largest} bytes in a row, and there is room for {limit}"
            );
            return rejected(Rejection::new(RejectionKind::TooLarge, what));
        }
        // From here on its numbers and its offset are its own: nothing can fail any more.
        let offset = joined.keep();
        debug_assert_eq!(offset.get(), plog.0);
        let index = self.events.len();
        if let Some(repeat) = &event.idempotency {
            self.repeats.insert((ws, repeat.key), (index, repeat.body));
        }
        self.bytes += prepared.bytes();
        self.events.push(prepared);
        self.overlay.add(place, event.changes);
        Step::Outcome(Outcome::Event(index, answer))
    }

    /// Whether a command was sent before.
    async fn repeated(&self, bench: &Bench, command: &Command) -> Option<Step> {
        let repeat = command.repeat.as_ref()?;
        let reused = || {
            let what = "the key was used before, for a command that said something else";
            Some(rejected(Rejection::new(RejectionKind::KeyReused, what)))
        };
        if let Some((event, body)) = self.repeats.get(&(command.ws, repeat.key)) {
            return if *body == repeat.body {
                Some(Step::Outcome(Outcome::Same(*event)))
            } else {
                reused()
            };
        }
        let stored = match bench.log.reader().answer(command.ws, repeat.key).await {
            Ok(stored) => stored?,
            Err(error) => return Some(unreadable(&error)),
        };
        if stored.body != repeat.body {
            return reused();
        }
        let Some(answer) = Answer::from_bytes(&stored.answer) else {
            let what = "the first answer cannot be read";
            return Some(rejected(Rejection::new(RejectionKind::Internal, what)));
        };
        let (plog, wlog) = (stored.place.plog, stored.place.wlog);
        let done = Done { plog, wlog, answer, is_repeated: true };
        Some(Step::Outcome(Outcome::Repeated(done)))
    }

    /// The kind of the command's workspace, as those before it in the group leave it, or as it will be.
    async fn kind(&self, bench: &mut Bench, command: &Command) -> Result<WsKind, Step> {
        let ws = command.ws;
        if command.name.as_str() == CREATE_WORKSPACE {
            let NewWorkspace { kind, .. } =
                NewWorkspace::read(&command.params).map_err(rejected)?;
            let known = bench.application.kinds().get(&kind).copied();
            return known.ok_or_else(|| {
                rejected(Rejection::invalid(format!("there are no workspaces of kind `{kind}`")))
            });
        }
        if let Some(kind) = bench.kinds.get(&ws) {
            return Ok(*kind);
        }
        let state = State { overlay: &self.overlay, reader: bench.log.reader() };
        let read = match state.read(ws, DESCRIPTOR_ID).await {
            Ok(Some(read)) => read,
            Ok(None) => {
                let what = format!("there is no workspace {}", ws.0);
                return Err(rejected(Rejection::not_found(what)));
            }
            Err(error) => return Err(unreadable(&error)),
        };
        let StoredRecord { record, .. } = &read.stored;
        let kind = match record.fields.get(KIND) {
            Some(Value::String(kind)) => bench.application.kinds().get(kind).copied(),
            _ => None,
        };
        let kind = kind.ok_or_else(|| {
            let what = format!("workspace {} is of a kind that the application has not", ws.0);
            rejected(Rejection::new(RejectionKind::Internal, what))
        })?;
        if read.bytes.is_some() {
            bench.kinds.insert(ws, kind);
        }
        Ok(kind)
    }

    /// Answers all. `may_answer` says whether this node still leads.
    pub(crate) fn answer(&mut self, fate: &Fate, may_answer: bool) {
        let places: Vec<Place> = self.events.iter().map(Prepared::place).collect();
        // The answers of those that others are the same as.
        let mut answers: HashMap<usize, Answer> = HashMap::new();
        if self.waiting.iter().any(|waiting| matches!(waiting.outcome, Outcome::Same(_))) {
            for waiting in &self.waiting {
                if let Outcome::Event(event, answer) = &waiting.outcome {
                    answers.insert(*event, answer.clone());
                }
            }
        }
        for Waiting { reply, outcome, sees } in self.waiting.drain(..) {
            let is_repeated = matches!(outcome, Outcome::Same(_));
            let answered = match outcome {
                Outcome::Event(event, answer) => {
                    of_event(fate, places[event], event, answer, is_repeated)
                }
                Outcome::Same(event) => {
                    let answer = answers.get(&event).cloned().unwrap_or_default();
                    of_event(fate, places[event], event, answer, is_repeated)
                }
                Outcome::Repeated(done) => Ok(done),
                // It was judged by what is not there.
                Outcome::Refused(Refused::Rejected(_)) if sees > fate.committed => {
                    Err(not_written(fate))
                }
                Outcome::Refused(refused) => Err(refused),
            };
            reply.answer(if may_answer { answered } else { without_lead(answered) });
        }
        self.events.clear();
        self.bytes = 0;
        self.overlay.clear();
        self.repeats.clear();
    }
}

async fn handled(
    handler: &dyn Handler,
    params: &Bytes,
    rows: Vec<RowChange>,
    work: &mut Work<'_>,
) -> Result<Bytes, Failure> {
    handler.run(params, rows, work).await
}

fn of_event(
    fate: &Fate,
    place: Place,
    event: usize,
    answer: Answer,
    is_repeated: bool,
) -> Answered {
    let Place { plog, wlog, .. } = place;
    if event >= fate.committed {
        return Err(not_written(fate));
    }
    match &fate.applied {
        Ok(()) => Ok(Done { plog, wlog, answer, is_repeated }),
        Err(error) => Err(Refused::NotApplied { plog, why: in_full(error) }),
    }
}

/// Of an event that is not in the log, or may not be.
fn not_written(fate: &Fate) -> Refused {
    match &fate.others {
        Some(error @ eventlog::Error::Unknown(_)) => Refused::Unknown(in_full(error)),
        Some(error @ eventlog::Error::LeadLost(_)) => Refused::Busy(Busy::LeadLost(in_full(error))),
        Some(error @ eventlog::Error::Violation(_)) => {
            Refused::Busy(Busy::Violation(in_full(error)))
        }
        Some(error) => Refused::Busy(Busy::Storage(in_full(error))),
        None => Refused::Busy(Busy::Storage("its group was not written".to_owned())),
    }
}

/// Another node may have done, or undone, what this one read or wrote.
fn without_lead(answered: Answered) -> Answered {
    let why = "this node does not lead any more";
    match answered {
        Ok(_) => Err(Refused::Unknown(why.to_owned())),
        Err(Refused::Rejected(_)) => Err(Refused::Busy(Busy::LeadLost(why.to_owned()))),
        Err(refused) => Err(refused),
    }
}
