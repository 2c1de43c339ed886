//! Operations in flight: their slots, and the future that owns what the kernel was lent.
//!
//! Holds: the bounded slot table, the parking of buffers whose future is gone, the operation future. Never touches:
//! the ring; file names or sockets beyond the bytes an operation carries.
//!
//! ```text
//!            submit             completion          future takes the result
//!   (free) --------> Waiting ----------------> Done --------------------------> (free)
//!                      |  future dropped: cancel, park its buffers
//!                      +---------------------> Orphan --completion--> (free; buffers dropped, handle closed)
//!   (free) --------> Ready (a stream's readiness, many completions) --last completion--> (free)
//! ```

use std::any::Any;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::buf::IoVecs;
use crate::driver::{Completion, Op};
use crate::ids::{Handle, OpToken};
use crate::reactor::Reactor;
use crate::readiness::Readiness;

/// EINTR and EAGAIN are retried inside an operation this often before the caller sees them.
const RETRIES_MAX: u16 = 64;

/// What an operation points to besides its buffers. Boxed, so that it stays put while the table grows; kept with its
/// slot, so that a warm slot allocates nothing.
pub(crate) struct Scratch {
    pub iovecs: IoVecs,
    pub msg: libc::msghdr,
    pub addr: libc::sockaddr_storage,
    pub path: Vec<u8>,
    pub path_to: Vec<u8>,
}

impl Scratch {
    fn new() -> Box<Scratch> {
        // SAFETY: both are plain C structures for which all zeroes is a valid value.
        let (msg, addr) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Box::new(Scratch { iovecs: IoVecs::default(), msg, addr, path: Vec::new(), path_to: Vec::new() })
    }
}

enum SlotState {
    Free,
    Waiting(Option<Waker>),
    Done(i32),
    Orphan { lent: Option<Box<dyn Any>>, yields_handle: bool },
    Ready(Rc<Readiness>),
}

struct Slot {
    generation: u32,
    state: SlotState,
    /// False for a close: a cancelled one might leave its descriptor open, with nobody left who knows it.
    cancellable: bool,
    scratch: Option<Box<Scratch>>,
}

/// What the reactor does about a completion once the table is no longer borrowed.
pub(crate) enum Effect {
    Nothing,
    Wake(Waker),
    /// Drop the buffers; close the handle nobody waits for any more.
    Release {
        lent: Option<Box<dyn Any>>,
        close: Option<Handle>,
    },
    Ready {
        readiness: Rc<Readiness>,
        result: i32,
        more: bool,
    },
}

/// The bounded table of operations in flight.
pub(crate) struct OpTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    slots_max: usize,
    in_flight: usize,
    begun: u64,
    orphans: usize,
    /// Futures that found the table full. All are woken when a slot frees: one that was dropped meanwhile must not
    /// take the wake of another with it.
    starved: Vec<Waker>,
}

impl OpTable {
    pub fn new(slots_max: usize) -> OpTable {
        assert!(slots_max > 0, "op slots {slots_max}");
        OpTable {
            slots: Vec::new(),
            free: Vec::new(),
            slots_max,
            in_flight: 0,
            begun: 0,
            orphans: 0,
            starved: Vec::new(),
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Operations begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.slots_max
    }

    pub fn orphans(&self) -> usize {
        self.orphans
    }

    pub fn starve(&mut self, waker: &Waker) {
        if !self.starved.iter().any(|w| w.will_wake(waker)) {
            self.starved.push(waker.clone());
        }
    }

    /// Futures to wake because a slot is free again.
    pub fn take_starved(&mut self) -> Vec<Waker> {
        if self.starved.is_empty() || self.is_full() {
            return Vec::new();
        }
        std::mem::take(&mut self.starved)
    }

    fn begin(&mut self, state: SlotState, cancellable: bool) -> Option<(OpToken, Box<Scratch>)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.slots_max => {
                let (state, scratch) = (SlotState::Free, Some(Scratch::new()));
                self.slots.push(Slot { generation: 0, state, cancellable, scratch });
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        let slot = self.slots.get_mut(index as usize)?;
        (slot.state, slot.cancellable) = (state, cancellable);
        let scratch = slot.scratch.take().unwrap_or_else(Scratch::new);
        self.in_flight += 1;
        self.begun += 1;
        Some((OpToken::new(index, slot.generation), scratch))
    }

    fn lend(&mut self, token: OpToken, scratch: Box<Scratch>) {
        if let Some(slot) = self.slot_mut(token) {
            slot.scratch = Some(scratch);
        }
    }

    /// A slot for an operation without a future: a close, or a stream's readiness.
    pub fn begin_detached(&mut self, readiness: Option<Rc<Readiness>>) -> Option<OpToken> {
        let state = match readiness {
            Some(readiness) => SlotState::Ready(readiness),
            None => SlotState::Orphan { lent: None, yields_handle: false },
        };
        let orphan = matches!(state, SlotState::Orphan { .. });
        let (token, scratch) = self.begin(state, !orphan)?;
        self.lend(token, scratch);
        self.orphans += usize::from(orphan);
        Some(token)
    }

    fn slot_mut(&mut self, token: OpToken) -> Option<&mut Slot> {
        self.slots.get_mut(token.index()).filter(|slot| slot.generation == token.generation())
    }

    fn release(&mut self, token: OpToken) {
        let Some(slot) = self.slot_mut(token) else {
            return;
        };
        slot.state = SlotState::Free;
        // The top bit stays clear: tokens that have it are the drivers' own.
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        if let Some(scratch) = &mut slot.scratch {
            scratch.iovecs.clear();
        }
        self.free.push(token.index() as u32);
    }

    /// Takes note of a completion.
    pub fn complete(&mut self, completion: Completion) -> Effect {
        let Completion { token, result, more } = completion;
        let Some(slot) = self.slot_mut(token) else {
            // A driver must not report a token twice after its last completion.
            tracing::error!(token = token.0, result, "completion for an operation that is not in flight");
            return Effect::Nothing;
        };
        if more {
            return match &slot.state {
                SlotState::Ready(readiness) => Effect::Ready { readiness: Rc::clone(readiness), result, more },
                SlotState::Free | SlotState::Waiting(_) | SlotState::Done(_) | SlotState::Orphan { .. } => {
                    Effect::Nothing
                }
            };
        }
        match std::mem::replace(&mut slot.state, SlotState::Free) {
            SlotState::Waiting(waker) => {
                slot.state = SlotState::Done(result);
                self.in_flight -= 1;
                waker.map_or(Effect::Nothing, Effect::Wake)
            }
            SlotState::Orphan { lent, yields_handle } => {
                self.in_flight -= 1;
                self.orphans -= 1;
                self.release(token);
                let close = (yields_handle && result >= 0).then_some(Handle(result));
                Effect::Release { lent, close }
            }
            SlotState::Ready(readiness) => {
                self.in_flight -= 1;
                self.release(token);
                Effect::Ready { readiness, result, more }
            }
            state @ (SlotState::Free | SlotState::Done(_)) => {
                slot.state = state;
                tracing::error!(token = token.0, result, "second completion of one operation");
                Effect::Nothing
            }
        }
    }

    /// The result, if it is there; the slot is free then. Else remembers whom to wake.
    fn take_result(&mut self, token: OpToken, waker: &Waker) -> Option<i32> {
        let slot = self.slot_mut(token)?;
        match &mut slot.state {
            SlotState::Done(result) => {
                let result = *result;
                self.release(token);
                Some(result)
            }
            SlotState::Waiting(held) => {
                match held {
                    Some(held) => held.clone_from(waker),
                    None => *held = Some(waker.clone()),
                }
                None
            }
            SlotState::Free | SlotState::Orphan { .. } | SlotState::Ready(_) => None,
        }
    }

    /// The future is gone. Ok: still in flight, its buffers are parked; whether it wants cancelling. Err: it was done
    /// already; the buffers come back, with the result.
    fn abandon(
        &mut self,
        token: OpToken,
        lent: Box<dyn Any>,
        yields_handle: bool,
    ) -> Result<bool, (Box<dyn Any>, i32)> {
        let Some(slot) = self.slot_mut(token) else {
            return Err((lent, -libc::ECANCELED));
        };
        match slot.state {
            SlotState::Done(result) => {
                self.release(token);
                Err((lent, result))
            }
            SlotState::Waiting(_) => {
                slot.state = SlotState::Orphan { lent: Some(lent), yields_handle };
                let cancel = slot.cancellable;
                self.orphans += 1;
                Ok(cancel)
            }
            SlotState::Free | SlotState::Orphan { .. } | SlotState::Ready(_) => Err((lent, -libc::ECANCELED)),
        }
    }

    /// Tokens of what is in flight and not yet cancelled, for the shutdown. Closes are left to finish.
    pub fn tokens_to_cancel(&self) -> Vec<OpToken> {
        let in_flight = |slot: &Slot| matches!(slot.state, SlotState::Waiting(_) | SlotState::Ready(_));
        let wanted = |slot: &Slot| slot.cancellable && in_flight(slot);
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| wanted(slot));
        slots.map(|(index, slot)| OpToken::new(index as u32, slot.generation)).collect()
    }
}

/// A driver's result as io::Result.
pub(crate) fn count(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

enum Stage {
    Unsent,
    InFlight(OpToken),
    Finished,
}

/// One operation: owns the buffers `D` it lends; sent at the first poll. Dropped in flight, the operation is cancelled
/// and the buffers wait in its slot for the completion.
pub(crate) struct OpFuture<D: 'static, F> {
    reactor: Reactor,
    lent: Option<D>,
    describe: F,
    stage: Stage,
    retries: u16,
    yields_handle: bool,
    cancellable: bool,
}

// Nothing in here is self-referential: operations point into the heap data of `D` and into the boxed scratch.
impl<D: 'static, F> Unpin for OpFuture<D, F> {}

impl<D: 'static, F> OpFuture<D, F>
where
    F: FnMut(&mut D, &mut Scratch) -> Op,
{
    pub fn new(reactor: &Reactor, lent: D, describe: F) -> OpFuture<D, F> {
        OpFuture {
            reactor: reactor.clone(),
            lent: Some(lent),
            describe,
            stage: Stage::Unsent,
            retries: 0,
            yields_handle: false,
            cancellable: true,
        }
    }

    /// The result is a handle: closed if nobody is left to take it.
    pub fn yielding_handle(mut self) -> OpFuture<D, F> {
        self.yields_handle = true;
        self
    }

    /// A close: EINTR and EAGAIN are results like others, as it has closed in any case; and it is never cancelled.
    pub fn closing(mut self) -> OpFuture<D, F> {
        self.retries = RETRIES_MAX;
        self.cancellable = false;
        self
    }

    /// False when the table is full: the waker has been noted.
    fn send(&mut self, waker: &Waker) -> bool {
        let inner = &self.reactor.0;
        let begun = inner.ops.borrow_mut().begin(SlotState::Waiting(None), self.cancellable);
        let Some((token, mut scratch)) = begun else {
            inner.ops.borrow_mut().starve(waker);
            return false;
        };
        if let Some(lent) = &mut self.lent {
            // The table is not borrowed here: `describe` runs the caller's code.
            let op = (self.describe)(lent, &mut scratch);
            inner.ops.borrow_mut().lend(token, scratch);
            // SAFETY: `op` points into the slot's boxed scratch, which is not touched before the slot is released,
            // and into bytes that `lent` keeps still: it is held here, and parked in the slot if we are dropped.
            unsafe { inner.driver.borrow_mut().submit(token, op) };
            self.stage = Stage::InFlight(token);
        }
        true
    }
}

impl<D: 'static, F> Future for OpFuture<D, F>
where
    F: FnMut(&mut D, &mut Scratch) -> Op,
{
    type Output = (i32, D);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, D)> {
        loop {
            match self.stage {
                Stage::Unsent => {
                    if !self.send(cx.waker()) {
                        return Poll::Pending;
                    }
                }
                Stage::InFlight(token) => {
                    let Some(result) = self.reactor.0.ops.borrow_mut().take_result(token, cx.waker()) else {
                        return Poll::Pending;
                    };
                    self.reactor.0.wake_starved();
                    if matches!(-result, libc::EINTR | libc::EAGAIN) && self.retries < RETRIES_MAX {
                        self.retries += 1;
                        self.stage = Stage::Unsent;
                        continue;
                    }
                    self.stage = Stage::Finished;
                    if let Some(lent) = self.lent.take() {
                        return Poll::Ready((result, lent));
                    }
                }
                Stage::Finished => return Poll::Pending,
            }
        }
    }
}

impl<D: 'static, F> Drop for OpFuture<D, F> {
    fn drop(&mut self) {
        let Stage::InFlight(token) = self.stage else {
            return;
        };
        let Some(lent) = self.lent.take() else { return };
        let inner = &self.reactor.0;
        let abandoned = inner.ops.borrow_mut().abandon(token, Box::new(lent), self.yields_handle);
        match abandoned {
            Ok(true) => inner.driver.borrow_mut().cancel(token),
            Ok(false) => {}
            Err((lent, result)) => {
                drop(lent);
                inner.wake_starved();
                if self.yields_handle && result >= 0 {
                    self.reactor.close(Handle(result));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_in_flight_is_never_cancelled_and_other_operations_are() {
        let mut table = OpTable::new(4);
        let mut begin = |cancellable| table.begin(SlotState::Waiting(None), cancellable).map(|(token, _)| token);
        let (close, write) = (begin(false).unwrap(), begin(true).unwrap());
        assert_eq!(table.tokens_to_cancel(), [write], "at the shutdown");
        assert!(matches!(table.abandon(close, Box::new(()), false), Ok(false)), "when its future is dropped");
        assert!(matches!(table.abandon(write, Box::new(()), false), Ok(true)));
    }
}
