//! The only module that spawns: trials, and the tasks of a trial that race with each other on
//! several threads.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::try_join_all;
use tokio::task::JoinHandle;

use crate::failure::{EarlyEnd, Verdict};

/// A task that ends with its owner: dropping this value aborts the task.
pub(crate) struct Task<T>(JoinHandle<Verdict<T>>);

pub(crate) fn spawn<T, F>(future: F) -> Task<T>
where
    T: Send + 'static,
    F: Future<Output = Verdict<T>> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "races need real parallelism; the owner waits")]
    Task(tokio::spawn(future))
}

/// Runs all futures at once. The first one that stops ends the others.
pub(crate) async fn all<T, F>(futures: impl IntoIterator<Item = F>) -> Verdict<Vec<T>>
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
            Err(error) => Err(EarlyEnd::failed(match error.try_into_panic() {
                Ok(payload) => format!("a call panicked: {}", text_of(&*payload)),
                Err(_) => "a task was ended from outside".to_owned(),
            })),
        })
    }
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lets other tasks run.
pub(crate) async fn yield_now() {
    tokio::task::yield_now().await;
}
