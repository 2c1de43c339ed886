//! The run queue: a slab of boxed tasks, first in first out, on one thread.
//!
//! Holds: tasks, their wakers, the queue. Never touches: the driver, timers, other threads.
//!
//! A waker is a number packed into its pointer (executor, generation, task): nothing is counted, cloned or freed.
//! Waking looks the executor up among those of the current thread: a waker that strays to another thread is harmless,
//! it finds nothing there and wakes nobody.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};

const _: () = assert!(usize::BITS == 64, "wakers pack executor, generation and task into one pointer");

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
const EXECUTOR_BITS: u32 = 16;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const EXECUTOR_MASK: u64 = (1 << EXECUTOR_BITS) - 1;
/// The index of the future that `block_on` drives: it has no slot.
const ROOT_INDEX: u64 = INDEX_MASK;
/// Most tasks an executor can number.
pub(crate) const TASKS_MAX: usize = ROOT_INDEX as usize;

/// The task table is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for another task: {tasks_max} are running")]
pub struct TasksFull {
    /// The limit that was reached.
    pub tasks_max: usize,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct TaskSlot {
    generation: u64,
    /// Away while it is being polled.
    task: Option<Task>,
    live: bool,
}

/// What wakers reach: shared with the thread's table of executors.
struct RunQueue {
    queue: RefCell<VecDeque<u32>>,
    /// Per task: generation it is alive in, and whether it is queued.
    marks: RefCell<Vec<(u64, bool)>>,
    root_woken: Cell<bool>,
    root_generation: Cell<u64>,
}

impl RunQueue {
    fn wake(&self, index: u64, generation: u64) {
        if index == ROOT_INDEX {
            if generation == self.root_generation.get() {
                self.root_woken.set(true);
            }
            return;
        }
        let mut marks = self.marks.borrow_mut();
        if let Some((alive, queued)) = marks.get_mut(index as usize)
            && *alive == generation
            && !*queued
        {
            *queued = true;
            self.queue.borrow_mut().push_back(index as u32);
        }
    }
}

thread_local! {
    /// The executors of this thread: one on a shard, several in a simulation.
    static EXECUTORS: RefCell<Vec<(u64, Rc<RunQueue>)>> = const { RefCell::new(Vec::new()) };
}
static NEXT_EXECUTOR: AtomicU64 = AtomicU64::new(0);

const VTABLE: RawWakerVTable = RawWakerVTable::new(clone_waker, wake_waker, wake_waker, drop_waker);

fn clone_waker(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

fn drop_waker(_data: *const ()) {}

fn wake_waker(data: *const ()) {
    let bits = data.addr() as u64;
    let executor = bits >> (INDEX_BITS + GENERATION_BITS);
    // A thread that is winding down has no table, and no task left to run either.
    let _ = EXECUTORS.try_with(|table| {
        let table = table.borrow();
        let found = table.iter().find(|(id, _)| *id == executor);
        // Not found: the executor is gone (a waker outlived it), which is fine.
        if let Some((_, queue)) = found {
            queue.wake(bits & INDEX_MASK, (bits >> INDEX_BITS) & GENERATION_MASK);
        }
    });
}

/// What became of a turn's tasks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ran {
    pub polled: usize,
}

pub(crate) struct Executor {
    id: u64,
    shared: Rc<RunQueue>,
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<u32>>,
    live: Cell<usize>,
    tasks_max: usize,
}

impl Executor {
    pub fn new(tasks_max: usize) -> Executor {
        assert!(tasks_max > 0 && tasks_max < TASKS_MAX, "tasks_max {tasks_max} not below {TASKS_MAX}");
        let shared = Rc::new(RunQueue {
            queue: RefCell::new(VecDeque::new()),
            marks: RefCell::new(Vec::new()),
            root_woken: Cell::new(false),
            root_generation: Cell::new(0),
        });
        let id = EXECUTORS.with(|table| {
            let mut table = table.borrow_mut();
            assert!(table.len() < EXECUTOR_MASK as usize, "executors on one thread: {}", table.len());
            loop {
                // Ids are drawn process-wide, so that a stray waker meets a foreign executor as late as possible.
                let id = NEXT_EXECUTOR.fetch_add(1, Ordering::Relaxed) & EXECUTOR_MASK;
                if !table.iter().any(|(taken, _)| *taken == id) {
                    table.push((id, Rc::clone(&shared)));
                    return id;
                }
            }
        });
        Executor {
            id,
            shared,
            slots: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            live: Cell::new(0),
            tasks_max,
        }
    }

    fn waker(&self, index: u64, generation: u64) -> Waker {
        let bits = (self.id << (INDEX_BITS + GENERATION_BITS)) | (generation << INDEX_BITS) | index;
        let data = std::ptr::without_provenance::<()>(bits as usize);
        // SAFETY: the vtable's functions never dereference the data; they take it as a number, are callable from any
        // thread, and own nothing.
        unsafe { Waker::new(data, &VTABLE) }
    }

    /// Takes a task in, queued to run.
    pub fn spawn(&self, task: Task) -> Result<(), TasksFull> {
        if self.live.get() >= self.tasks_max {
            return Err(TasksFull { tasks_max: self.tasks_max });
        }
        let mut slots = self.slots.borrow_mut();
        let mut marks = self.shared.marks.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(TaskSlot { generation: 0, task: None, live: false });
            marks.push((0, false));
            (slots.len() - 1) as u32
        });
        if let (Some(slot), Some(mark)) = (slots.get_mut(index as usize), marks.get_mut(index as usize)) {
            slot.generation = (slot.generation + 1) & GENERATION_MASK;
            slot.task = Some(task);
            slot.live = true;
            *mark = (slot.generation, true);
            self.shared.queue.borrow_mut().push_back(index);
            self.live.set(self.live.get() + 1);
        }
        Ok(())
    }

    pub fn has_runnable(&self) -> bool {
        self.shared.root_woken.get() || !self.shared.queue.borrow().is_empty()
    }

    pub fn live(&self) -> usize {
        self.live.get()
    }

    /// Polls at most `polls_max` queued tasks, in order; those woken meanwhile queue up behind.
    pub fn run(&self, polls_max: usize, guard: PanicGuard) -> Ran {
        let mut ran = Ran::default();
        while ran.polled < polls_max {
            let Some(index) = self.shared.queue.borrow_mut().pop_front() else {
                break;
            };
            let Some((mut task, generation)) = self.check_out(index) else {
                continue;
            };
            ran.polled += 1;
            let waker = self.waker(u64::from(index), generation);
            let mut cx = Context::from_waker(&waker);
            let done = guard.run(|| task.as_mut().poll(&mut cx).is_ready());
            if done {
                // Dropped before its slot is free, and without any borrow: a drop may spawn, wake or send.
                guard.run(|| drop(task));
                self.retire(index);
            } else if let Some(slot) = self.slots.borrow_mut().get_mut(index as usize) {
                slot.task = Some(task);
            }
        }
        ran
    }

    fn check_out(&self, index: u32) -> Option<(Task, u64)> {
        if let Some(mark) = self.shared.marks.borrow_mut().get_mut(index as usize) {
            mark.1 = false;
        }
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index as usize)?;
        slot.task.take().map(|task| (task, slot.generation))
    }

    fn retire(&self, index: u32) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(index as usize)
            && std::mem::take(&mut slot.live)
        {
            if let Some(mark) = self.shared.marks.borrow_mut().get_mut(index as usize) {
                // No generation is alive in this slot now: wakes of the dead task find nothing. A wake that is
                // already queued finds no task.
                mark.0 = u64::MAX;
            }
            self.free.borrow_mut().push(index);
            self.live.set(self.live.get() - 1);
        }
    }

    /// Drops every task.
    pub fn clear(&self) {
        loop {
            let mut slots = self.slots.borrow_mut();
            let found = slots.iter_mut().enumerate().find_map(|(index, slot)| Some((index, slot.task.take()?)));
            drop(slots);
            let Some((index, task)) = found else { break };
            drop(task);
            self.retire(index as u32);
        }
        self.shared.queue.borrow_mut().clear();
    }

    /// The waker of a future that `block_on` is about to drive, which counts as woken.
    pub fn root_waker(&self) -> Waker {
        let generation = (self.shared.root_generation.get() + 1) & GENERATION_MASK;
        self.shared.root_generation.set(generation);
        self.shared.root_woken.set(true);
        self.waker(ROOT_INDEX, generation)
    }

    /// The future that `block_on` drove has ended: wakers of it that are still about find nothing to run.
    pub fn retire_root(&self) {
        let generation = (self.shared.root_generation.get() + 1) & GENERATION_MASK;
        self.shared.root_generation.set(generation);
        self.shared.root_woken.set(false);
    }

    pub fn take_root_woken(&self) -> bool {
        self.shared.root_woken.take()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.clear();
        let _ = EXECUTORS.try_with(|table| table.borrow_mut().retain(|(id, _)| *id != self.id));
    }
}

/// What happens when a task panics. A shard with a task missing is a broker that lies, so the process ends; in a
/// simulation the panic goes on to the test that runs it.
#[derive(Clone, Copy)]
pub(crate) enum PanicGuard {
    Abort,
    Propagate,
}

impl PanicGuard {
    fn run<T>(self, f: impl FnOnce() -> T) -> T {
        match self {
            PanicGuard::Propagate => f(),
            PanicGuard::Abort => {
                let bomb = AbortOnUnwind;
                let out = f();
                std::mem::forget(bomb);
                out
            }
        }
    }
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        // The panic hook has printed message and place already.
        eprintln!("a task panicked: aborting");
        std::process::abort();
    }
}
