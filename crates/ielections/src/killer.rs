//! The killer: a thread that ends the process when work continues after the end of a leadership.
//!
//! The thread depends on nothing that may hang: neither on the runtime nor on the store. It is
//! armed from the first moment of a leadership, not from its loss.

use std::{
    io,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use crate::term::Term;

/// Ends the process. It is called once, on a thread of its own.
pub type KillFn = Arc<dyn Fn(&str) + Send + Sync>;

/// The pause between two checks of the clock. The thread checks the clock often, because a timer
/// does not wake on a machine that was suspended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Watches a term until no other part of the node holds the term.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn watch(term: &Arc<Term>, kill: KillFn) -> io::Result<()> {
    let (term, seat) = (Arc::downgrade(term), term.seat);
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread ends with the leadership that it watches"
    )]
    let thread = thread::Builder::new()
        .name(format!("killer of seat {seat}"))
        .spawn(move || run(&term, &*kill))?;
    drop(thread);
    Ok(())
}

fn run(term: &Weak<Term>, kill: &(dyn Fn(&str) + Send + Sync)) {
    while let Some(term) = term.upgrade() {
        let left = term.killed_in();
        if left == Some(Duration::ZERO) {
            let seat = term.seat;
            kill(&format!(
                "the leadership of seat {seat} is over, and its work continued past `stop_grace`"
            ));
            return;
        }
        drop(term);
        thread::park_timeout(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
    }
}
