//! A world of nodes, a store, and faults between them. One seed is one history.

mod faults;
mod network;
mod timings;
mod watch;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Duration,
};

use clock::{Instant, ManualClock};
use fastrand::Rng;
use ielections::{
    Budget, Lease, LossReason, Seat,
    engine::{Action, Candidacy, EngineInput, Notice, StoreAnswer, StoreCall},
};

use self::{
    timings::{slow_writes, tight, usual},
    watch::Watch,
};
use crate::{
    defect::Defect,
    invariants::{self, Fact, Invariant, Violation},
    local_clock::LocalClock,
    mistaken::Mistaken,
    store::{Shown, Store},
};

const MILLI: Duration = Duration::from_millis(1);

/// The duration of a lease. All other times are parts of it.
const LEASE: Duration = Duration::from_secs(4);

/// How long faults happen.
const STORM: Duration = Duration::from_secs(40);

/// The longest time that a row may stay after its TTL.
const EXPIRY_DELAY: Duration = Duration::from_millis(500);

/// The time after which the sender of a write gives up.
const WRITE_TIMEOUT: Duration = Duration::from_millis(10);

/// The pause between two writes of the work.
const WORK_EVERY: Duration = Duration::from_millis(60);

/// The largest difference between the rate of a node's clock and the true time, in parts per
/// million.
const DRIFT: i32 = 450;

#[derive(Debug)]
enum Event {
    /// The time that an engine waits for has come.
    Wake {
        process: usize,
        step: u64,
    },
    Arrives {
        process: usize,
        step: u64,
        op: StoreCall,
        /// The version of a lease that had expired for the node when the node sent the call.
        expired: Option<u64>,
    },
    /// The second half of a write to a store that reads first.
    Forced {
        process: usize,
        step: u64,
        op: StoreCall,
    },
    Reply {
        process: usize,
        step: u64,
        answer: StoreAnswer,
        shown: Vec<Shown>,
    },
    Deadline {
        process: usize,
        step: u64,
        writes: bool,
    },
    Work {
        process: usize,
        term: u64,
    },
    WriteLands {
        process: usize,
        term: u64,
        seat: Seat,
        lease: Lease,
        is_answered: bool,
    },
    WorkStops {
        process: usize,
        term: u64,
    },
    Kill {
        process: usize,
        term: u64,
    },
    /// The process is killed.
    Crash {
        process: usize,
    },
    Fault,
    Restart {
        node: usize,
    },
    Candidacy {
        process: usize,
    },
    Calm,
    /// All work under way has ended. A seat has a leader, and that leader loses its leadership now.
    Settled,
    End,
}

impl Event {
    /// Returns whether the time of the event is a time of a node's clock.
    fn is_timer(&self) -> bool {
        matches!(self, Event::Wake { .. } | Event::Deadline { .. } | Event::Kill { .. })
    }
}

struct Node {
    address: std::net::SocketAddr,
    clock: LocalClock,
    /// The error of the calendar of a client that judges expiry by its calendar.
    wall_ahead: Duration,
    cut_off_until: Duration,
    /// The process that runs on the node. The previous process may still stand still.
    process: Option<usize>,
    /// The process that holds the lock file.
    locked_by: Option<usize>,
    /// The leases in the lock file.
    recorded: Vec<Lease>,
}

struct Process {
    node: usize,
    engine: Mistaken,
    /// The leases in the lock file when the process locked it.
    former: Vec<Lease>,
    /// The start of the candidacy, by the clock of the node.
    began: Instant,
    /// The leases that the candidacy has sent, each with the time when it was sent first.
    claims: Vec<(Lease, Instant)>,
    is_alive: bool,
    stands_still_until: Duration,
    resumed: Duration,
    /// The number of the step that the engine waits for. Answers to other steps come too late.
    step: u64,
    term: u64,
    lead: Option<Lead>,
    /// Whether the engine has ended. The work of its leadership may still run.
    has_ended: bool,
    /// Whether the process ends together with its leadership.
    is_leaving: bool,
    watch: Watch,
}

impl Process {
    fn is_working(&self) -> bool {
        self.is_alive && self.lead.as_ref().is_some_and(|lead| lead.is_working)
    }
}

#[derive(Clone, Debug)]
struct Lead {
    seat: Seat,
    lease: Lease,
    work_from: Instant,
    valid_until: Instant,
    is_lost: bool,
    is_working: bool,
    unanswered: usize,
}

/// The frequency of each fault, in parts per thousand.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u32,
    slow: u32,
    late: u32,
}

pub(crate) struct World {
    rng: Rng,
    defect: Option<Defect>,
    budget: Budget,
    last_seat: Seat,
    weather: Weather,
    /// Whether each node judges by itself which leases have expired. Otherwise the store judges.
    nodes_watch: bool,
    /// Whether rows live longer than their TTL.
    expires_late: bool,
    /// Whether clocks stop while a machine sleeps. No promise covers such clocks: two leaders may
    /// work at the same time, but in different epochs.
    clocks_stop: bool,
    now: Duration,
    count: u64,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: HashMap<u64, Event>,
    store: Store,
    nodes: Vec<Node>,
    processes: Vec<Process>,
    invariants: Vec<Box<dyn Invariant>>,
    violation: Option<Violation>,
    pub(crate) terms: u64,
}

impl World {
    pub(crate) fn new(seed: u64, defect: Option<Defect>) -> World {
        let mut rng = Rng::with_seed(seed);
        // Most histories with a mistake have nothing to spare, and many faults.
        let is_worst = defect.is_some() && !seed.is_multiple_of(4);
        let nodes_watch = rng.bool();
        let nodes_watch = defect.map_or(nodes_watch, |defect| defect.is_of_watching(nodes_watch));
        // Where nodes watch leases, no clocks of servers are compared.
        let clock_skew = if nodes_watch { Duration::ZERO } else { 200 * MILLI };
        let timing = match rng.u32(0..3) {
            0 if !is_worst => usual(clock_skew),
            1 => slow_writes(clock_skew),
            _ => tight(clock_skew),
        };
        #[expect(clippy::unwrap_used, reason = "both numbers are seats")]
        let last_seat = Seat::new(rng.u32(1..=2)).unwrap();
        let expires_late = rng.bool();
        let budget = if nodes_watch {
            Budget::of_watched(timing)
        } else {
            Budget::new(timing, EXPIRY_DELAY)
        };
        #[expect(clippy::unwrap_used, reason = "all timings fit")]
        let budget = budget.unwrap();
        let clocks_stop = rng.u32(0..8) == 0;
        let often = |rng: &mut Rng| [0, 10, 50, 200][rng.usize(0..4)];
        let mut weather =
            Weather { lost: often(&mut rng), slow: often(&mut rng), late: often(&mut rng) };
        if is_worst {
            weather = Weather { lost: 50, slow: 200, late: 200 };
        }
        let base = ManualClock::new(0).clock().now();
        let node = |n: usize, rng: &mut Rng| Node {
            address: std::net::SocketAddr::from(([10, 0, 0, n as u8 + 1], 80)),
            clock: LocalClock {
                base,
                ahead: Duration::from_millis(rng.u64(1_000_000..2_000_000)),
                per_million: rng.i32(-DRIFT..=DRIFT),
            },
            wall_ahead: Duration::from_millis(rng.u64(0..8_000)),
            cut_off_until: Duration::ZERO,
            process: None,
            locked_by: None,
            recorded: Vec::new(),
        };
        let nodes = (0..rng.usize(2..=4)).map(|n| node(n, &mut rng)).collect();
        let mut world = World {
            rng,
            defect,
            budget,
            last_seat,
            weather,
            nodes_watch,
            expires_late,
            clocks_stop,
            now: Duration::ZERO,
            count: 0,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            store: Store::default(),
            nodes,
            processes: Vec::new(),
            invariants: if clocks_stop { invariants::by_any_clock() } else { invariants::all() },
            violation: None,
            terms: 0,
        };
        for node in 0..world.nodes.len() {
            let soon = world.between(Duration::ZERO, LEASE);
            world.at(soon, Event::Restart { node });
        }
        world.at(STORM / 20, Event::Fault);
        world.at(STORM, Event::Calm);
        world
    }

    /// Makes a world whose clocks stop, but that is judged as if they did not.
    pub(crate) fn with_clocks_that_stop(seed: u64) -> World {
        World { clocks_stop: true, invariants: invariants::all(), ..World::new(seed, None) }
    }

    /// # Errors
    /// Fails with the first invariant that does not hold.
    pub(crate) fn run(mut self) -> Result<u64, Violation> {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            let Some(event) = self.events.remove(&number) else { continue };
            self.now = at;
            let is_end = matches!(event, Event::End);
            self.happens(event);
            if is_end || self.violation.is_some() {
                break;
            }
        }
        match self.violation {
            Some(Violation { of, what }) => {
                Err(Violation { of, what: format!("after {:?}: {what}", self.now) })
            }
            None => Ok(self.terms),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn is_calm(&self) -> bool {
        self.now >= STORM
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.count += 1;
        self.queue.push(Reverse((at.max(self.now), self.count)));
        self.events.insert(self.count, event);
    }

    fn between(&mut self, low: Duration, high: Duration) -> Duration {
        low + Duration::from_nanos(self.rng.u64(0..=(high - low).as_nanos() as u64))
    }

    fn perhaps(&mut self, per_mille: u32) -> bool {
        !self.is_calm() && self.rng.u32(0..1_000) < per_mille
    }

    fn observe(&mut self, fact: Fact) {
        let now = self.now;
        for invariant in &mut self.invariants {
            if let Err(what) = invariant.on(now, &fact) {
                self.violation.get_or_insert(Violation { of: invariant.name(), what });
            }
        }
    }

    fn local(&self, process: usize) -> Instant {
        self.nodes[self.processes[process].node].clock.at(self.now)
    }

    /// Returns the process that an event concerns. A process gets no events while it stands still.
    fn process_of(event: &Event) -> Option<usize> {
        match event {
            Event::Wake { process, .. }
            | Event::Reply { process, .. }
            | Event::Deadline { process, .. }
            | Event::Work { process, .. }
            | Event::WorkStops { process, .. }
            | Event::Kill { process, .. }
            | Event::Candidacy { process } => Some(*process),
            _ => None,
        }
    }

    fn happens(&mut self, event: Event) {
        if let Some(process) = World::process_of(&event) {
            let Process { is_alive, stands_still_until, .. } = self.processes[process];
            if !is_alive {
                return;
            }
            if stands_still_until > self.now {
                self.at(stands_still_until, event);
                return;
            }
        }
        match event {
            Event::Wake { process, step } => self.wakes(process, step),
            Event::Reply { process, step, answer, shown } => {
                if self.processes[process].step == step {
                    let answer = self.judged(process, answer, &shown);
                    self.step(process, EngineInput::Answer(answer));
                }
            }
            Event::Deadline { process, step, writes } => {
                if self.processes[process].step == step {
                    let answer =
                        if writes { StoreAnswer::Unknown } else { StoreAnswer::Unavailable };
                    self.step(process, EngineInput::Answer(answer));
                }
            }
            Event::Arrives { process, step, op, expired } => {
                self.arrives(process, step, op, expired);
            }
            Event::Forced { process, step, op } => {
                let answer = self.store.force(&op, self.now);
                self.reply(process, step, &op, answer);
            }
            Event::Work { process, term } => self.work(process, term),
            Event::WriteLands { process, term, seat, lease, is_answered } => {
                self.observe(Fact::WriteLanded { seat, epoch: lease.epoch });
                if is_answered {
                    self.write_answered(process, term);
                }
            }
            Event::WorkStops { process, term } => {
                if self.processes[process].term == term {
                    if let Some(lead) = &mut self.processes[process].lead {
                        lead.is_working = false;
                    }
                    self.stopped_perhaps(process);
                }
            }
            Event::Kill { process, term } => self.kill(process, term),
            Event::Candidacy { process } => self.candidacy(process),
            Event::Crash { process } => {
                if self.processes[process].is_alive {
                    let restarts = self.between(MILLI, 100 * MILLI);
                    self.dies(process, restarts);
                }
            }
            Event::Restart { node } => self.restart(node),
            Event::Fault => self.fault(),
            Event::Calm => self.calm(),
            Event::Settled => self.settled(),
            Event::End => self.observe(Fact::Due),
        }
    }

    fn wakes(&mut self, process: usize, step: u64) {
        if self.processes[process].step == step {
            let is_unhealthy = self.processes[process].lead.is_some() && self.perhaps(5);
            let input = match is_unhealthy {
                true => EngineInput::Ends(LossReason::Unhealthy),
                false => EngineInput::Woke,
            };
            self.step(process, input);
        }
    }

    fn write_answered(&mut self, process: usize, term: u64) {
        let Process { is_alive, term: current, .. } = self.processes[process];
        if is_alive && current == term {
            if let Some(lead) = &mut self.processes[process].lead {
                lead.unanswered -= 1;
            }
            self.stopped_perhaps(process);
        }
    }

    // Nodes and their processes.

    fn restart(&mut self, node: usize) {
        let former = self.nodes[node].process.map(|process| &self.processes[process]);
        if former.is_some_and(|former| former.is_alive && former.stands_still_until <= self.now) {
            return;
        }
        let process = self.processes.len();
        let holder = self.nodes[node].locked_by.map(|holder| &self.processes[holder]);
        // A process that only stands still keeps its lock.
        let locks = holder.is_none_or(|holder| !holder.is_alive);
        if locks {
            self.nodes[node].locked_by = Some(process);
        }
        let may_come_back = locks || self.has(Defect::ComebackByAddress);
        let former = if may_come_back { self.nodes[node].recorded.clone() } else { Vec::new() };
        let engine = self.engine(node, former.clone());
        let resumed = self.now;
        self.processes.push(Process {
            node,
            engine,
            former,
            began: self.nodes[node].clock.at(self.now),
            claims: Vec::new(),
            is_alive: true,
            stands_still_until: Duration::ZERO,
            resumed,
            step: 0,
            term: 0,
            lead: None,
            has_ended: false,
            is_leaving: false,
            watch: Watch::default(),
        });
        self.nodes[node].process = Some(process);
        self.step(process, EngineInput::Woke);
    }

    /// Records a lease in the lock file when the lease is sent.
    fn record(&mut self, process: usize, lease: Lease, over: Option<Lease>) {
        let node = self.processes[process].node;
        let Node { locked_by, recorded, .. } = &mut self.nodes[node];
        if *locked_by == Some(process) || self.defect == Some(Defect::ComebackByAddress) {
            recorded.extend(over.into_iter().chain([lease]));
        }
    }

    /// Notes the lease that a candidate sends, and whether it replaces a lease that the candidate
    /// has sent itself.
    fn claim(&mut self, process: usize, lease: Lease, over: Option<Lease>) {
        let now = self.local(process);
        let Process { began, claims, .. } = &mut self.processes[process];
        let former_writes_end = *began + self.budget.timing().late_write;
        let own = claims.iter().find(|(claimed, _)| Some(*claimed) == over);
        let late = own.map(|(_, sent)| sent.saturating_since(former_writes_end));
        if claims.iter().all(|(claimed, _)| *claimed != lease) {
            claims.push((lease, now));
        }
        if let Some(late) = late {
            self.observe(Fact::ReplacedOwn { process, late });
        }
    }

    fn engine(&mut self, node: usize, former: Vec<Lease>) -> Mistaken {
        let candidacy = Candidacy {
            owner: self.nodes[node].address,
            last_seat: self.last_seat,
            until: Instant::FAR_FUTURE,
            former,
        };
        let mut rng = self.rng.fork();
        Mistaken::new(candidacy, self.budget, Box::new(move || rng.u64(..)), self.defect)
    }

    /// Starts the next candidacy of a process that led.
    fn candidacy(&mut self, process: usize) {
        let node = self.processes[process].node;
        let former = self.processes[process].former.clone();
        self.processes[process].engine = self.engine(node, former);
        self.processes[process].began = self.local(process);
        self.processes[process].claims.clear();
        self.processes[process].has_ended = false;
        self.step(process, EngineInput::Woke);
    }

    fn dies(&mut self, process: usize, restarts_after: Duration) {
        self.processes[process].is_alive = false;
        self.observe(Fact::Died { process });
        let node = self.processes[process].node;
        if self.nodes[node].process == Some(process) {
            self.at(self.now + restarts_after, Event::Restart { node });
        }
    }

    // The steps of an engine.

    fn step(&mut self, process: usize, input: EngineInput) {
        let now = self.local(process);
        let step = self.processes[process].engine.next(now, input);
        self.processes[process].step += 1;
        if let Some(notice) = step.notice {
            self.notice(process, notice);
        }
        let Process { step: number, node, .. } = self.processes[process];
        match step.next {
            Action::Wait(until) => {
                let at = self.nodes[node].clock.truth(until);
                self.at(at, Event::Wake { process, step: number });
            }
            Action::Call(op, deadline) => self.call(process, number, op, deadline),
            Action::End => self.ended(process),
        }
    }

    fn ended(&mut self, process: usize) {
        self.processes[process].has_ended = true;
        if self.processes[process].is_leaving {
            self.dies(process, LEASE / 8);
        } else if self.processes[process].lead.as_ref().is_none_or(|lead| !lead.is_working) {
            self.processes[process].lead = None;
            let soon = self.now + self.between(MILLI, 100 * MILLI);
            self.at(soon, Event::Candidacy { process });
        }
    }

    fn notice(&mut self, process: usize, notice: Notice) {
        match notice {
            Notice::Leads { seat, lease, work_from, valid_until } => {
                self.leads(process, seat, lease, work_from, valid_until);
            }
            Notice::Extended { valid_until } => {
                if let Some(lead) = &mut self.processes[process].lead {
                    lead.valid_until = valid_until;
                }
            }
            Notice::Lost(_) => self.lost(process),
            Notice::LeaseGone => {}
            Notice::GaveUp(why) => {
                let what = format!("process {process} gave up: {why}");
                self.violation.get_or_insert(Violation { of: "liveness", what });
            }
        }
    }

    fn leads(
        &mut self,
        process: usize,
        seat: Seat,
        lease: Lease,
        work_from: Instant,
        valid_until: Instant,
    ) {
        self.terms += 1;
        self.observe(Fact::Leads { process, seat, epoch: lease.epoch });
        let lead = Lead {
            seat,
            lease,
            work_from,
            valid_until,
            is_lost: false,
            is_working: true,
            unanswered: 0,
        };
        self.processes[process].term += 1;
        self.processes[process].lead = Some(lead);
        // A leader may be cut off before its first renewal.
        if self.perhaps(30) {
            let long = self.between(LEASE, 2 * LEASE);
            let node = self.processes[process].node;
            self.nodes[node].cut_off_until = self.now + long;
        }
        let term = self.processes[process].term;
        self.at(self.now, Event::Work { process, term });
        self.at(self.now, Event::Kill { process, term });
    }

    fn lost(&mut self, process: usize) {
        self.observe(Fact::Lost { process });
        let term = self.processes[process].term;
        let Some(lead) = &mut self.processes[process].lead else { return };
        lead.is_lost = true;
        let grace = self.budget.timing().stop_grace;
        // Some work is too slow, and is killed.
        let stops = self.now + self.between(MILLI, grace + grace / 4);
        self.at(stops, Event::WorkStops { process, term });
    }

    /// Tells the engine that all work has stopped and all its writes were answered, if that is so.
    fn stopped_perhaps(&mut self, process: usize) {
        let Process { stands_still_until, has_ended, .. } = self.processes[process];
        let Some(lead) = &self.processes[process].lead else { return };
        if lead.is_working || stands_still_until > self.now {
            return;
        }
        match (has_ended, lead.unanswered) {
            (true, _) => self.ended(process),
            (false, 0) => self.step(process, EngineInput::Stopped),
            _ => {}
        }
    }

    // Work.

    fn work(&mut self, process: usize, term: u64) {
        let now = self.local(process);
        let Process { term: current, resumed, .. } = self.processes[process];
        let Some(lead) = self.processes[process].lead.clone().filter(|_| current == term) else {
            return;
        };
        if !lead.is_working || lead.is_lost {
            return;
        }
        let late = now.saturating_since(lead.valid_until);
        if late > 2 * WORK_EVERY && self.now - resumed > 4 * WORK_EVERY {
            self.observe(Fact::LossNotNoticed { process, late });
        }
        if now >= lead.work_from && now + WRITE_TIMEOUT < lead.valid_until {
            let Lead { seat, lease, .. } = lead;
            self.observe(Fact::WriteSent { seat, epoch: lease.epoch });
            let is_answered = !self.perhaps(self.weather.lost / 10);
            let slowest =
                if self.perhaps(100) { self.budget.timing().late_write } else { 20 * MILLI };
            let lands = self.now + self.between(MILLI, slowest);
            if let Some(lead) = &mut self.processes[process].lead {
                lead.unanswered += 1;
            }
            self.at(lands, Event::WriteLands { process, term, seat, lease, is_answered });
        }
        self.at(self.now + WORK_EVERY, Event::Work { process, term });
    }

    fn kill(&mut self, process: usize, term: u64) {
        let Process { term: current, node, .. } = self.processes[process];
        let Some(lead) = self.processes[process].lead.as_ref().filter(|_| current == term) else {
            return;
        };
        if !lead.is_working {
            return;
        }
        let kill_at = self.budget.kill_at(lead.valid_until);
        if self.local(process) >= kill_at {
            self.dies(process, LEASE / 2);
        } else {
            let at = self.nodes[node].clock.truth(kill_at);
            self.at(at, Event::Kill { process, term });
        }
    }
}
