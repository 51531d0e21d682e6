//! The tasks of trials. A trial may start tasks that race with each other on several threads.

use std::{
    any::Any,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::try_join_all;
use tokio::task::JoinHandle;

use crate::trial::{EarlyEnd, Verdict};

/// A task that ends with its owner: dropping this value aborts the task.
#[derive(Debug)]
pub struct Task<T>(JoinHandle<Verdict<T>>);

/// Starts a task. If it panics, its verdict is a failure.
pub fn spawn<T, F>(future: F) -> Task<T>
where
    T: Send + 'static,
    F: Future<Output = Verdict<T>> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "races need real parallelism; the owner waits")]
    Task(tokio::spawn(future))
}

/// Runs all futures at once, each in a task. The first one that ends early ends the others.
///
/// # Errors
/// The first early end.
pub async fn all<T, F>(futures: impl IntoIterator<Item = F>) -> Verdict<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Verdict<T>> + Send + 'static,
{
    try_join_all(futures.into_iter().map(spawn)).await
}

impl<T> Future for Task<T> {
    type Output = Verdict<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict<T>> {
        Pin::new(&mut self.0).poll(context).map(|joined| match joined {
            Ok(verdict) => verdict,
            Err(error) => Err(match error.try_into_panic() {
                Ok(panic) => panicked(&*panic),
                Err(_) => EarlyEnd::Failed("a task was ended from outside".to_owned()),
            }),
        })
    }
}

/// The end of a trial that panicked.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> EarlyEnd {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    EarlyEnd::Failed(format!("panicked: {}", text.unwrap_or("without a message")))
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lets other tasks run.
pub async fn yield_now() {
    tokio::task::yield_now().await;
}
