//! The reactor: one core's handle to everything else here.
//!
//! Holds: driver, op table, run queue, timers, pool, the turn's time. Never touches: the loop's order beyond its own
//! three steps; that is the shard's (see [`Reactor::block_on`] for the smallest one).
//!
//! Borrows: the parts are behind `RefCell`s, and none is borrowed while foreign code (a waker, a drop, a future) runs.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::driver::{Completion, DirEntry, Driver, Op, Wait};
use crate::executor::{Executor, PanicGuard, TasksFull};
use crate::ids::{Handle, OpToken, WakeTarget};
use crate::mail::{Mail, NoMail};
use crate::op::{Effect, OpTable};
use crate::pipe::PipePool;
use crate::pool::BufferPool;
use crate::readiness::Readiness;
use crate::stalls::{StallSnapshot, Stalls};
use crate::time::{Monotonic, UnixMillis};
use crate::timers::{Sleep, Timers};
use crate::wake::RemoteWaker;

/// How long [`Reactor::shutdown`] waits for cancelled operations before it leaks what they were lent.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(10);

/// The numbers a reactor is bounded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReactorLimits {
    /// Operations in flight; further ones wait for a slot.
    pub op_slots_max: usize,
    /// Tasks alive; further ones are refused.
    pub tasks_max: usize,
    /// Tasks polled in one turn; the rest run next turn.
    pub polls_per_turn_max: usize,
    /// Bytes of the buffer pool.
    pub pool_bytes_max: usize,
    /// Pipes that bytes go through on their way from files to sockets; without a free one they are read and sent.
    pub pipes_max: usize,
    /// What a pipe is to hold. Without privileges all of a user's pipes hold 64 MiB at most (fs.pipe-user-pages-soft).
    pub pipe_bytes: usize,
    /// How long a turn that did something may spin for more before it sleeps. Zero: sleep at once.
    pub spin_max: Duration,
}

impl Default for ReactorLimits {
    fn default() -> ReactorLimits {
        ReactorLimits {
            op_slots_max: 4096,
            tasks_max: 65_536,
            polls_per_turn_max: 256,
            pool_bytes_max: 256 << 20,
            pipes_max: 32,
            pipe_bytes: 1 << 20,
            spin_max: Duration::ZERO,
        }
    }
}

/// What a reactor is doing and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Turns begun.
    pub turns: u64,
    /// Tasks alive.
    pub tasks: usize,
    /// Times a task was polled.
    pub polls: u64,
    /// Turns that left tasks in the queue, being at their bound.
    pub turns_cut: u64,
    /// Operations started.
    pub ops: u64,
    /// Operations in flight.
    pub ops_in_flight: usize,
    /// Of those, the ones whose future is gone: their buffers are parked.
    pub ops_parked: usize,
    /// Completions reaped.
    pub completions: u64,
    /// Files that have one of the ring's places, see [`crate::File::keep_at_hand`].
    pub files_at_hand: usize,
    /// Timers set.
    pub timers: usize,
    /// Times the thread meant to sleep.
    pub sleeps: u64,
    /// Wake-ups sent to peers.
    pub peers_woken: u64,
}

/// A cheap handle to one core's reactor. Never leaves its thread.
#[derive(Clone)]
pub struct Reactor(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    // Declared, and so dropped, first: tasks own operations.
    executor: Executor,
    pub(crate) driver: RefCell<Box<dyn Driver>>,
    pub(crate) ops: RefCell<OpTable>,
    pub(crate) timers: RefCell<Timers>,
    completions: RefCell<Vec<Completion>>,
    pool: BufferPool,
    pub(crate) pipes: RefCell<PipePool>,
    /// Advice about files that is under way.
    pub(crate) advice: Cell<usize>,
    limits: ReactorLimits,
    now: Cell<Monotonic>,
    unix_ms: Cell<UnixMillis>,
    stalls: RefCell<Stalls>,
    /// The last turn did not sleep: it ends, for the stalls, where the next one begins.
    turn_open: Cell<bool>,
    /// Tasks that go on in the next turn.
    yielded: RefCell<Vec<Waker>>,
    worked: Cell<bool>,
    counters: Cell<Counters>,
    simulated: bool,
    /// See [`Reactor::forget_folders_for_a_test`].
    pub(crate) forgets_folders: Cell<bool>,
}

impl Inner {
    pub(crate) fn tally(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Wakes futures that found the op table full, now that a slot is free.
    pub(crate) fn wake_starved(&self) {
        let starved = self.ops.borrow_mut().take_starved();
        starved.into_iter().for_each(Waker::wake);
    }
}

impl Reactor {
    /// A reactor of the current thread on `driver`.
    pub fn new(mut driver: Box<dyn Driver>, limits: ReactorLimits) -> Reactor {
        let (now, unix_ms, simulated) = (driver.now(), driver.unix_ms(), driver.is_simulated());
        Reactor(Rc::new(Inner {
            executor: Executor::new(limits.tasks_max),
            driver: RefCell::new(driver),
            ops: RefCell::new(OpTable::new(limits.op_slots_max)),
            timers: RefCell::default(),
            completions: RefCell::default(),
            pool: BufferPool::new(limits.pool_bytes_max),
            pipes: RefCell::default(),
            advice: Cell::new(0),
            limits,
            now: Cell::new(now),
            unix_ms: Cell::new(unix_ms),
            stalls: RefCell::new(Stalls::new()),
            turn_open: Cell::new(false),
            yielded: RefCell::default(),
            worked: Cell::new(false),
            counters: Cell::default(),
            simulated,
            forgets_folders: Cell::new(false),
        }))
    }

    // ---- time and chance ----

    /// The turn's time: read once, in [`Reactor::reap`].
    pub fn now(&self) -> Monotonic {
        self.0.now.get()
    }

    /// The turn's wall time.
    pub fn unix_ms(&self) -> UnixMillis {
        self.0.unix_ms.get()
    }

    /// A random number; in the simulation from its seed.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// Random bytes of cryptographic quality; in the simulation from its seed.
    pub fn fill_random(&self, into: &mut [u8]) {
        self.0.driver.borrow_mut().fill_random(into);
    }

    /// Whether this runs in the simulation.
    pub fn is_simulated(&self) -> bool {
        self.0.simulated
    }

    // ---- tasks and timers ----

    /// Starts a task: boxed once, polled from the next [`Reactor::run_tasks`] on. A task that panics ends the process
    /// (in the simulation: the test).
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> Result<(), TasksFull> {
        self.0.executor.spawn(Box::pin(future))
    }

    /// Completes after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Completes at `deadline`.
    pub fn sleep_until(&self, deadline: Monotonic) -> Sleep {
        Sleep::new(self.clone(), deadline)
    }

    /// Waits for `work`, but not behind `deadline`; `None` when that has come first. Give it a pinned reference to go on
    /// with the same work afterwards.
    pub async fn until<T>(&self, deadline: Monotonic, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut alarm) = (pin!(work), pin!(self.sleep_until(deadline)));
        std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => alarm.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// The same with a length of time from now on.
    pub async fn within<T>(&self, patience: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.until(self.now() + patience, work).await
    }

    /// Goes on in the next turn, behind all that can run by then: also what waits for a completion or for mail. (Behind
    /// this turn's other tasks alone, long work in many slices would be one long turn.)
    pub fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        let inner = Rc::clone(&self.0);
        let mut yielded = false;
        std::future::poll_fn(move |cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            inner.yielded.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
    }

    // ---- the turn ----

    /// Begins a turn: takes completions to their waiters, reads the clocks, fires due timers.
    pub fn reap(&self) {
        let inner = &*self.0;
        let mut completions = inner.completions.take();
        let mut driver = inner.driver.borrow_mut();
        let (now, unix_ms) = (driver.now(), driver.unix_ms());
        driver.reap(&mut completions);
        drop(driver);
        if inner.turn_open.take() {
            inner.stalls.borrow_mut().record(now.saturating_since(inner.now.get()));
        }
        inner.now.set(now);
        inner.unix_ms.set(unix_ms);
        inner.tally(|c| {
            c.turns += 1;
            c.completions += completions.len() as u64;
        });
        if !completions.is_empty() {
            inner.worked.set(true);
        }
        for completion in completions.drain(..) {
            let effect = inner.ops.borrow_mut().complete(completion);
            match effect {
                Effect::Nothing => {}
                Effect::Wake(waker) => waker.wake(),
                Effect::Ready { readiness, result, more } => {
                    readiness.report(result, more);
                    if !more {
                        inner.wake_starved();
                    }
                }
                Effect::Release { lent, close } => {
                    drop(lent);
                    if let Some(handle) = close {
                        self.close(handle);
                    }
                    inner.wake_starved();
                }
            }
        }
        // Kept for its room.
        inner.completions.replace(completions);
        self.fire_timers();
        let mut yielded = inner.yielded.take();
        yielded.drain(..).for_each(Waker::wake);
        inner.yielded.replace(yielded);
    }

    fn fire_timers(&self) {
        let now = self.now();
        loop {
            let due = self.0.timers.borrow_mut().pop_due(now);
            let Some(waker) = due else { break };
            waker.wake();
        }
    }

    /// Runs queued tasks, first come, first served, up to the turn's bound.
    pub fn run_tasks(&self) {
        let inner = &*self.0;
        let guard = if inner.simulated { PanicGuard::Propagate } else { PanicGuard::Abort };
        let ran = inner.executor.run(inner.limits.polls_per_turn_max, guard);
        if ran.polled > 0 {
            inner.worked.set(true);
            let cut = ran.polled >= inner.limits.polls_per_turn_max && inner.executor.has_runnable();
            inner.tally(|c| {
                c.polls += ran.polled as u64;
                c.turns_cut += u64::from(cut);
            });
        }
    }

    /// Ends a turn: starts what was queued; sleeps until a completion, the next deadline, or a wake-up, unless there
    /// is work or mail.
    pub fn park(&self, mail: &dyn Mail) {
        let inner = &*self.0;
        let worked = inner.worked.take();
        let deadline = inner.timers.borrow().next_deadline();
        let mut driver = inner.driver.borrow_mut();
        let turn_end = driver.now();

        let has_runnable = inner.executor.has_runnable() || !inner.yielded.borrow().is_empty();
        if has_runnable || mail.has_mail() || deadline <= turn_end {
            inner.turn_open.set(true);
            return driver.park(Wait::Poll, true);
        }
        inner.stalls.borrow_mut().record(turn_end.saturating_since(self.now()));
        let spin_max = inner.limits.spin_max;
        if worked && !spin_max.is_zero() && !inner.simulated {
            let spin_end = deadline.min(turn_end + spin_max);
            driver.flush();
            while driver.now() < spin_end {
                if driver.has_completions() || mail.has_mail() {
                    return driver.park(Wait::Poll, worked);
                }
                std::hint::spin_loop();
            }
        }
        mail.set_parked(driver.wake_target());
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if mail.has_mail() {
            driver.park(Wait::Poll, true);
        } else {
            inner.tally(|c| c.sleeps += 1);
            driver.park(Wait::Until(deadline), worked);
        }
        // A simulated sleep returns at once and lasts until the next turn: mail that comes meanwhile must still wake.
        if !inner.simulated {
            mail.clear_parked();
        }
    }

    /// Drives `future` and all tasks on this thread until it completes. For tests, tools and start-up. In the
    /// simulation time moves on when nothing is runnable.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let waker = self.0.executor.root_waker();
        let mut cx = Context::from_waker(&waker);
        loop {
            self.reap();
            if self.0.executor.take_root_woken() {
                self.0.worked.set(true);
                if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
                    self.0.executor.retire_root();
                    return out;
                }
            }
            self.run_tasks();
            self.park(&NoMail);
        }
    }

    /// Drops every task, cancels every operation and waits for the kernel to let go of what it was lent. A reactor
    /// whose tasks hold handles to it is freed only after this.
    pub fn shutdown(&self) {
        self.0.executor.clear();
        self.0.yielded.take();
        self.0.driver.borrow_mut().flush();
        drain(&self.0);
    }

    // ---- looking in ----

    /// Turn lengths so far.
    pub fn stalls(&self) -> StallSnapshot {
        self.0.stalls.borrow().snapshot()
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        let ops = self.0.ops.borrow();
        Counters {
            tasks: self.0.executor.live(),
            ops_in_flight: ops.in_flight(),
            ops_parked: ops.orphans(),
            ops: ops.begun(),
            timers: self.0.timers.borrow().len(),
            ..self.0.counters.get()
        }
    }

    /// The limits it was made with.
    pub fn limits(&self) -> ReactorLimits {
        self.0.limits
    }

    /// This core's buffers.
    pub fn pool(&self) -> &BufferPool {
        &self.0.pool
    }

    // ---- wake-ups ----

    /// A waker for threads that have no reactor.
    pub fn remote_waker(&self) -> io::Result<RemoteWaker> {
        self.0.driver.borrow_mut().remote_waker()
    }

    pub(crate) fn wake_peer(&self, peer: WakeTarget) {
        self.0.tally(|c| c.peers_woken += 1);
        self.0.driver.borrow_mut().wake_peer(peer);
    }

    // ---- files without a future ----

    /// From now on folders are not synced: so that a test can show that it notices. Set by no configuration.
    #[doc(hidden)]
    pub fn forget_folders_for_a_test(&self) {
        self.0.forgets_folders.set(true);
    }

    /// Lists a directory, in no particular order. Blocks the core: for start-up and topic deletion.
    pub fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.driver.borrow_mut().list_dir(path)
    }

    /// The same as [`Reactor::device_of`], at once. Blocks the core: for the start-up.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn device_of_now(&self, path: &Path) -> io::Result<u64> {
        self.0.driver.borrow_mut().device_of(path)
    }

    /// When what is in a file was last changed; `None` in the simulation, which keeps no such times.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn changed_at(&self, path: &Path) -> io::Result<Option<UnixMillis>> {
        self.0.driver.borrow_mut().changed_at(path)
    }

    /// Closes without waiting.
    pub(crate) fn close(&self, handle: Handle) {
        if self.begin_detached(None, Op::Close { handle }, None).is_none() {
            self.0.driver.borrow_mut().close_now(handle);
        }
    }

    /// Starts an operation that has no future. None: the table is full, and `waker` is woken when it is not.
    pub(crate) fn begin_detached(
        &self,
        readiness: Option<Rc<Readiness>>,
        op: Op,
        waker: Option<&Waker>,
    ) -> Option<OpToken> {
        let mut ops = self.0.ops.borrow_mut();
        let Some(token) = ops.begin_detached(readiness) else {
            if let Some(waker) = waker {
                ops.starve(waker);
            }
            return None;
        };
        drop(ops);
        // SAFETY: detached operations (close, readiness) point to nothing.
        unsafe { self.0.driver.borrow_mut().submit(token, op) };
        Some(token)
    }
}

/// Cancels everything in flight and waits for it to end.
fn drain(inner: &Inner) {
    let tokens = inner.ops.borrow().tokens_to_cancel();
    let mut driver = inner.driver.borrow_mut();
    for token in tokens {
        driver.cancel(token);
    }
    driver.cancel_all();
    let give_up = driver.now() + SHUTDOWN_WAIT;
    drop(driver);
    let mut completions = Vec::new();
    while inner.ops.borrow().in_flight() > 0 && inner.driver.borrow_mut().now() < give_up {
        let mut driver = inner.driver.borrow_mut();
        driver.park(Wait::Until(give_up), true);
        driver.reap(&mut completions);
        drop(driver);
        for completion in completions.drain(..) {
            let effect = inner.ops.borrow_mut().complete(completion);
            match effect {
                Effect::Nothing => {}
                Effect::Wake(waker) => waker.wake(),
                Effect::Ready { readiness, result, more } => readiness.report(result, more),
                Effect::Release { lent, close } => {
                    drop(lent);
                    if let Some(handle) = close {
                        inner.driver.borrow_mut().close_now(handle);
                    }
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.executor.clear();
        let pipes = self.pipes.get_mut().take_idle();
        for pipe in pipes {
            let mut driver = self.driver.borrow_mut();
            driver.close_now(pipe.read);
            driver.close_now(pipe.write);
        }
        drain(self);
        let held = self.ops.borrow().in_flight();
        if held > 0 {
            // The kernel may still write into what it was lent: better lost than reused.
            tracing::error!(held, "operations did not end in time: leaking their buffers");
            std::mem::forget(self.ops.replace(OpTable::new(1)));
        }
    }
}
