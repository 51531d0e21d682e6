//! The progress of a transaction, so that a panic of redb is blamed on the right request and row.

use std::cell::{Cell, RefCell};

/// The place that a transaction has reached, to be read after redb panicked.
#[derive(Debug, Default)]
pub(crate) struct TxnProgress {
    pub(crate) step: Cell<TxnStep>,
    /// The key of the row that the current request looks at or writes.
    key: RefCell<Vec<u8>>,
}

/// The steps of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TxnStep {
    /// The transaction begins, or ends without a commit.
    #[default]
    Begin,
    /// The transaction runs the request with this index.
    Request(usize),
    /// The transaction removes expired rows.
    Expiry,
    /// The transaction commits.
    Commit,
}

impl TxnProgress {
    /// Notes that a request begins, and has reached no row yet.
    pub(crate) fn begin(&self, request: usize) {
        self.step.set(TxnStep::Request(request));
        self.enter(&[]);
    }

    pub(crate) fn enter(&self, key: &[u8]) {
        let mut entered = self.key.borrow_mut();
        entered.clear();
        entered.extend_from_slice(key);
    }

    /// The key of the row that the request has reached; empty if it has reached none.
    pub(crate) fn key(&self) -> Vec<u8> {
        self.key.borrow().clone()
    }
}
