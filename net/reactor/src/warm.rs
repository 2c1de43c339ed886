//! Memory made ready before it is wanted.
//!
//! Holds: which pages of a pool's region have been asked for, and the thread that has the kernel back them. Never touches: their
//! contents.
//!
//! The first touch of a page costs whoever touches it: the kernel clears 2 MiB at a time, 0.1 to 0.2 ms on bare metal, and
//! in a virtual machine whose host has to find the memory as well 5.5 ms were measured, for each of the first pages that a
//! core's buffers fill after a start. So a page that a buffer is taken from has the next ones made ready by a thread that
//! runs only while the core has nothing else to do (`SCHED_IDLE`; on the core itself, so that the memory is near it).
//! If it does not come in time, the core touches the page itself, as it would without.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What is made ready at a time: a huge page.
pub(crate) const WARM_PAGE: usize = 2 << 20;
/// So many pages are ready behind the one in use, when the thread has caught up.
const AHEAD: usize = 4;
/// It is asked when fewer than this are.
const ASK_BELOW: usize = 2;

/// The start of a region, for the thread.
struct Base(NonNull<u8>);

// SAFETY: the thread never reads or writes through it: it is an address for madvise.
unsafe impl Send for Base {}

/// Keeps the pages ahead of a region's buffers ready. The thread ends with it.
pub(crate) struct Warmer {
    /// By page: whether it was asked for, or touched by a buffer's user; each is asked for once.
    asked: Vec<bool>,
    pages: Option<Sender<Range<usize>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Warmer {
    /// For `bytes` from `base` on, which stay mapped for as long as this lives. `None` if there is no thread to be had.
    pub(crate) fn start(base: NonNull<u8>, bytes: usize) -> Option<Warmer> {
        let (pages, todo) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (base, stopped) = (Base(base), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("warm".into())
            .spawn(move || warm(&base, &todo, &stopped))
            .inspect_err(|error| tracing::debug!(%error, "no thread that makes memory ready ahead"))
            .ok()?;
        Some(Warmer { asked: vec![false; bytes / WARM_PAGE], pages: Some(pages), stop, thread: Some(thread) })
    }

    /// A buffer was taken that ends before `end` bytes into the region.
    pub(crate) fn taken(&mut self, end: usize) {
        let here = (end - 1) / WARM_PAGE;
        let is_near = |page: usize| self.asked.get(page).is_none_or(|asked| *asked);
        if is_near(here) && is_near(here + ASK_BELOW) {
            return;
        }
        let mut from = here;
        // Its own page is being touched now.
        while self.asked.get(from).is_some_and(|asked| *asked || from == here) {
            self.asked[from] = true;
            from += 1;
        }
        let to = (here + 1 + AHEAD).min(self.asked.len());
        let mut end = from;
        while end < to && !self.asked[end] {
            self.asked[end] = true;
            end += 1;
        }
        if let Some(pages) = &self.pages
            && end > from
        {
            // Without the thread the pages are touched by those who need them.
            let _ = pages.send(from..end);
        }
    }
}

impl Drop for Warmer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.pages = None;
        if let Some(thread) = self.thread.take() {
            // It must not ask for memory that is another's by then.
            let _ = thread.join();
        }
    }
}

fn warm(base: &Base, todo: &Receiver<Range<usize>>, stop: &AtomicBool) {
    let idle = libc::sched_param { sched_priority: 0 };
    // SAFETY: changes the scheduling of this thread alone. Refused, it runs as any other.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const idle) };
    for page in todo.iter().flatten() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: within the region, as the pages were counted by its size; backing a page changes no byte of it.
        let done = unsafe {
            libc::madvise(base.0.as_ptr().add(page * WARM_PAGE).cast(), WARM_PAGE, libc::MADV_POPULATE_WRITE)
        };
        if done != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, "memory is not made ready ahead");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::BufferPool;
    use std::time::{Duration, Instant};

    /// Bytes of the mapping around `at` that the kernel has backed.
    fn resident(at: *const u8, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes / 4096];
        // SAFETY: the range is mapped, the vector has a byte for each of its pages.
        let done = unsafe { libc::mincore(at.cast_mut().cast(), bytes, pages.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 != 0).count() * 4096
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what} never came");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn pages_ahead_of_a_buffer_are_backed_before_anybody_touches_them() {
        let pool = BufferPool::new(64 << 20);
        pool.warm_ahead();
        let first = pool.take(4096).unwrap();
        let start = first.as_ptr();
        until("the first pages", || resident(start, 64 << 20) == AHEAD * WARM_PAGE);
        let more: Vec<_> = (0..6).map(|_| pool.take(WARM_PAGE).unwrap()).collect();
        until("the pages behind them", || resident(start, 64 << 20) > (AHEAD + 2) * WARM_PAGE);
        drop(more);
    }

    #[test]
    fn without_being_asked_a_pool_backs_nothing() {
        let pool = BufferPool::new(64 << 20);
        let first = pool.take(4096).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(resident(first.as_ptr(), 64 << 20), 0);
    }

    #[test]
    fn every_page_is_asked_for_once_and_none_that_is_not_there() {
        let pool = BufferPool::new(20 << 20);
        pool.warm_ahead();
        let buffers: Vec<_> = (0..20).map(|_| pool.take(1 << 20).unwrap()).collect();
        drop(buffers);
        let again: Vec<_> = (0..20).map(|_| pool.take(1 << 20).unwrap()).collect();
        assert_eq!(again.len(), 20);
    }
}
