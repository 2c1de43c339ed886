//! Asks of this shard that wait for their answers.
//!
//! Holds: a table of open asks, each either awaited by a task or belonging to a pending produce. Never touches:
//! partitions, sockets.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use corelog_reactor::ShardId;
use slab::Slab;

use super::Shard;
use super::mail::{Answer, Ask, AskId};

/// Who gets the answer.
enum Waiting {
    /// A task awaits it through an [`AskFuture`].
    Task { waker: Option<Waker>, answer: Option<Answer> },
    /// It belongs to this pending produce (an index that the produce handler gave).
    Produce { pending: usize },
}

struct Open {
    generation: u32,
    waiting: Waiting,
}

/// The table of open asks. Bounded by what opens asks: requests in flight, each of which asks each shard at most once at a time.
#[derive(Default)]
pub struct Asks {
    open: RefCell<Slab<Open>>,
    generation: std::cell::Cell<u32>,
}

impl Asks {
    fn insert(&self, waiting: Waiting) -> AskId {
        let generation = self.generation.get().wrapping_add(1);
        self.generation.set(generation);
        let index = self.open.borrow_mut().insert(Open { generation, waiting });
        AskId { index: index as u32, generation }
    }

    /// Opens an ask whose answer goes to a pending produce.
    pub fn open_for_produce(&self, pending: usize) -> AskId {
        self.insert(Waiting::Produce { pending })
    }

    /// Asks without an answer.
    pub fn open_count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Takes an answer in. Returns the pending produce and the answer when it belongs to one. An answer nobody waits
    /// for any more is dropped.
    pub fn settle(&self, id: AskId, answer: Answer) -> Option<(usize, Answer)> {
        let mut table = self.open.borrow_mut();
        let open = table.get_mut(id.index as usize).filter(|open| open.generation == id.generation)?;
        match &mut open.waiting {
            Waiting::Task { waker, answer: slot } => {
                *slot = Some(answer);
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
                None
            }
            Waiting::Produce { pending } => {
                let pending = *pending;
                table.remove(id.index as usize);
                Some((pending, answer))
            }
        }
    }
}

/// An answer to come. Dropped early, a watch is called off on the shard that was asked.
pub struct AskFuture {
    shard: Rc<Shard>,
    to: ShardId,
    id: AskId,
    cancel_on_drop: bool,
    answered: bool,
}

impl AskFuture {
    /// Sends `ask` to shard `to` (which may be this one) and returns the answer to come.
    pub fn send(shard: &Rc<Shard>, to: ShardId, ask: Ask) -> AskFuture {
        let id = shard.asks().insert(Waiting::Task { waker: None, answer: None });
        let cancel_on_drop = matches!(ask, Ask::Watch(_));
        shard.deliver_ask(to, id, ask);
        AskFuture { shard: Rc::clone(shard), to, id, cancel_on_drop, answered: false }
    }
}

impl AskFuture {
    /// Tells the shard that was asked that nobody waits for news any more: what it can still say it says soon.
    pub fn call_off(&self) {
        self.shard.cancel_ask(self.to, self.id);
    }

    /// Whether the answer has come; the waker is noted if not.
    fn poll_answered(&self, context: &mut Context<'_>) -> bool {
        let mut table = self.shard.asks().open.borrow_mut();
        let Some(Open { waiting: Waiting::Task { waker, answer }, .. }) = table.get_mut(self.id.index as usize) else {
            return true;
        };
        if answer.is_none() {
            *waker = Some(context.waker().clone());
        }
        answer.is_some()
    }
}

impl Future for AskFuture {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let shard = Rc::clone(&self.shard);
        let mut table = shard.asks().open.borrow_mut();
        let Some(Open { waiting: Waiting::Task { waker, answer }, .. }) = table.get_mut(self.id.index as usize) else {
            return Poll::Ready(Answer::Stopping);
        };
        match answer.take() {
            Some(answer) => {
                self.answered = true;
                Poll::Ready(answer)
            }
            None => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for AskFuture {
    fn drop(&mut self) {
        let open = self.shard.asks().open.borrow_mut().try_remove(self.id.index as usize);
        let settled = matches!(open, Some(Open { waiting: Waiting::Task { answer: Some(_), .. }, .. }));
        if self.cancel_on_drop && !self.answered && !settled {
            self.shard.cancel_ask(self.to, self.id);
        }
    }
}

/// Why [`any_answer`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// An answer has come.
    Answered,
    /// The time is up.
    TimeUp,
    /// Nobody waits for the answer any more.
    HungUp,
}

/// Waits until any of `asked` has its answer (which stays for whoever awaits it), `time_up` completes, or `hung_up` does.
pub async fn any_answer(
    asked: &mut [AskFuture],
    time_up: Option<corelog_reactor::Sleep>,
    mut hung_up: Pin<&mut impl Future<Output = ()>>,
) -> Woken {
    let mut time_up = std::pin::pin!(time_up);
    std::future::poll_fn(|context| {
        if asked.iter_mut().any(|future| future.poll_answered(context)) {
            return Poll::Ready(Woken::Answered);
        }
        if let Some(time_up) = time_up.as_mut().as_pin_mut()
            && time_up.poll(context).is_ready()
        {
            return Poll::Ready(Woken::TimeUp);
        }
        hung_up.as_mut().poll(context).map(|()| Woken::HungUp)
    })
    .await
}
