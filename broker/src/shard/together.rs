//! Many futures at once, but not too many.
//!
//! Holds: one function. Never touches: what the futures do.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// Futures that complete in one go before others of the shard get their turn: however many a request asks for.
const COMPLETED_MAX: usize = 256;

/// Runs the futures of `work`, at most `at_once` at a time, and returns their results in order.
pub async fn together<F: Future>(at_once: usize, work: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting = work.into_iter().enumerate();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut results: Vec<Option<F::Output>> = Vec::new();
    std::future::poll_fn(move |context| {
        let begun = results.len();
        loop {
            if results.len() - begun > COMPLETED_MAX + at_once {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            while running.len() < at_once.max(1) {
                let Some((index, future)) = waiting.next() else { break };
                results.push(None);
                running.push((index, Box::pin(future)));
            }
            let before = running.len();
            running.retain_mut(|(index, future)| match future.as_mut().poll(context) {
                Poll::Ready(result) => {
                    results[*index] = Some(result);
                    false
                }
                Poll::Pending => true,
            });
            if running.is_empty() && waiting.size_hint().1 == Some(0) {
                return Poll::Ready(std::mem::take(&mut results).into_iter().flatten().collect());
            }
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn results_come_in_order_and_no_more_run_at_once_than_allowed() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let work = (0..20).map(|number| {
            let (running, most) = (&running, &most);
            async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                let mut polls = 1 + number % 3;
                std::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    polls -= 1;
                    if polls < 0 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                running.set(running.get() - 1);
                number
            }
        });
        let mut all = Box::pin(together(4, work));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let results = loop {
            if let Poll::Ready(results) = all.as_mut().poll(&mut context) {
                break results;
            }
        };
        assert_eq!(results, (0..20).collect::<Vec<i32>>());
        assert_eq!((most.get(), running.get()), (4, 0));
    }

    #[test]
    fn work_that_is_done_at_once_still_lets_others_have_their_turn() {
        let count = 10 * COMPLETED_MAX;
        let mut all = Box::pin(together(16, (0..count).map(std::future::ready)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut polls = 0;
        let results = loop {
            polls += 1;
            if let Poll::Ready(results) = all.as_mut().poll(&mut context) {
                break results;
            }
        };
        assert_eq!(results, (0..count).collect::<Vec<usize>>());
        assert!((9..=11).contains(&polls), "{polls} polls");
    }
}
