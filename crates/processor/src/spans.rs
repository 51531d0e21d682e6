//! The spans of commands whose requests are traced, and of the groups with such commands.
//!
//! The span of a command lasts from its place in the queue to its answer. It has a link to the span
//! of the command's group. The span of a group is a part of the first of its traced commands, and
//! has links to all others. The times have the names of the stages in the metric
//! `processor_stage_seconds`, in microseconds.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use clock::{Clock, Instant};
use opentelemetry::{
    Context, KeyValue,
    global::{self, BoxedSpan},
    trace::{Link, Span as _, SpanContext, Status, TraceContextExt as _, Tracer as _},
};

use crate::{Busy, Refused, command::Answered};

/// The span of a command, if its request is traced.
#[derive(Default)]
pub(crate) struct CommandSpan(Option<Box<TracedCommand>>);

struct TracedCommand {
    span: BoxedSpan,
    /// When the command began to wait.
    since: Instant,
}

impl CommandSpan {
    /// Begins the span of a command that begins to wait.
    pub(crate) fn begin(request: &SpanContext, since: Instant) -> CommandSpan {
        if !request.is_sampled() {
            return CommandSpan(None);
        }
        let parent = Context::new().with_remote_span_context(request.clone());
        let tracer = global::tracer("vvm");
        let span = tracer.build_with_context(tracer.span_builder("command"), &parent);
        CommandSpan(Some(Box::new(TracedCommand { span, since })))
    }

    /// Notes the outcome, and ends the span.
    pub(crate) fn end(self, answered: &Answered) {
        let Some(traced) = self.0 else { return };
        let mut span = traced.span;
        let (outcome, is_fault) = match answered {
            Ok(done) if done.is_repeated => ("repeated", false),
            Ok(_) => ("done", false),
            Err(Refused::Busy(Busy::WroteTooMuch(_))) => ("limited", false),
            Err(Refused::Busy(_)) => ("busy", true),
            Err(Refused::Rejected(_)) => ("rejected", false),
            Err(Refused::NotApplied { .. }) => ("not_applied", true),
            Err(Refused::Unknown(_)) => ("unknown", true),
        };
        span.set_attribute(KeyValue::new("vvm.outcome", outcome));
        if is_fault {
            span.set_status(Status::error(outcome));
        }
        span.end();
    }
}

impl fmt::Debug for CommandSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CommandSpan").field(&self.0.is_some()).finish()
    }
}

/// The facts of a group for its span.
pub(crate) struct GroupFacts {
    pub(crate) commands: usize,
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    /// How long its commands ran.
    pub(crate) run: Duration,
    /// The time until its events were in the log.
    pub(crate) log: Duration,
    /// The time until its events were applied.
    pub(crate) apply: Duration,
}

/// The span of a group, if one of its commands is traced.
pub(crate) struct GroupSpan(Option<BoxedSpan>);

impl GroupSpan {
    /// Makes the span of a group that began at `start`. Its commands get a link to the span.
    pub(crate) fn of<'c>(
        commands: impl Iterator<Item = &'c mut CommandSpan>,
        start: Instant,
        partition: &str,
        clock: &Clock,
    ) -> GroupSpan {
        let mut traced = commands.filter_map(|command| command.0.as_deref_mut()).peekable();
        // Most groups end here.
        if traced.peek().is_none() {
            return GroupSpan(None);
        }
        let mut traced: Vec<_> = traced.collect();
        let mut places = traced.iter().map(|command| command.span.span_context().clone());
        let parent = places.next().unwrap_or(SpanContext::NONE);
        let links: Vec<_> = places.map(Link::with_context).collect();
        let tracer = global::tracer("vvm");
        let builder = tracer
            .span_builder("group")
            .with_start_time(wall_time_of(start, clock))
            .with_attributes([KeyValue::new("vvm.partition", partition.to_owned())])
            .with_links(links);
        let parent = Context::new().with_remote_span_context(parent);
        let span = tracer.build_with_context(builder, &parent);
        for command in &mut traced {
            // Commands that arrived while the group was being formed did not wait.
            let wait = start.saturating_since(command.since);
            command.span.set_attribute(micros("vvm.wait_us", wait));
            command.span.add_link(span.span_context().clone(), Vec::new());
        }
        GroupSpan(Some(span))
    }

    /// Notes what the group did, and ends its span.
    pub(crate) fn end(self, facts: &GroupFacts) {
        let Some(mut span) = self.0 else { return };
        let count = |name: &'static str, number: usize| {
            KeyValue::new(name, i64::try_from(number).unwrap_or(i64::MAX))
        };
        span.set_attributes([
            count("vvm.commands", facts.commands),
            count("vvm.events", facts.events),
            count("vvm.bytes", facts.bytes),
            micros("vvm.run_us", facts.run),
            micros("vvm.log_us", facts.log),
            micros("vvm.apply_us", facts.apply),
        ]);
        span.end();
    }
}

fn micros(name: &'static str, time: Duration) -> KeyValue {
    KeyValue::new(name, i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}

/// The time of the calendar at an earlier moment.
fn wall_time_of(earlier: Instant, clock: &Clock) -> SystemTime {
    let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(clock.wall().as_nanos());
    now - clock.now().saturating_since(earlier)
}
