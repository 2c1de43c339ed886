//! A file that is read from several cores.
//!
//! Holds: the handle, its way back to the core that opened it, what its readers have found. Never touches: what is in it.
//!
//! Closing may be the last of a deleted file, and then takes as long as freeing all its blocks: so it is left to the ring
//! of the core that opened the file, wherever the last user was.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::buf::IoBufMut;
use crate::driver::{Advice, Op, OpenHow};
use crate::ids::Handle;
use crate::net::Closer;
use crate::op::{OpFuture, count};
use crate::reactor::Reactor;

/// Advice operations of a core that are under way; further ones are left out.
const ADVICE_MAX: usize = 16;

/// Handles that nobody needs any more, on their way to the driver that closes them.
#[derive(Debug, Default)]
pub struct ClosingBin {
    any: AtomicBool,
    handles: Mutex<Vec<Handle>>,
}

impl ClosingBin {
    pub(crate) fn put(&self, handle: Handle) {
        // A thread that panicked with the lock held has left a whole list: pushing is all that is done under it.
        self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(handle);
        self.any.store(true, Ordering::Release);
    }

    /// What there is; looked at once a turn, so without the lock while there is nothing.
    pub(crate) fn take(&self) -> Vec<Handle> {
        if !self.any.load(Ordering::Relaxed) || !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Drop for ClosingBin {
    fn drop(&mut self) {
        let handles = self.handles.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for handle in handles.drain(..) {
            // SAFETY: a descriptor that only this list knows. The driver is gone: nobody is left to be held up.
            unsafe { libc::close(handle.0) };
        }
    }
}

#[derive(Debug)]
struct Shared {
    handle: Handle,
    closer: Closer,
    path: Box<Path>,
    revoked: AtomicBool,
    failed: AtomicBool,
    /// Up to where the page cache was last given back.
    behind: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.closer.close(self.handle);
    }
}

/// An open file for reading; clones of it may go to other cores. The last one closes it, without waiting.
#[derive(Clone, Debug)]
pub struct SharedFile(Arc<Shared>);

/// Finds a [`SharedFile`] as long as somebody has it.
#[derive(Clone, Debug)]
pub struct WeakSharedFile(Weak<Shared>);

impl WeakSharedFile {
    /// The file, if it is still open.
    pub fn upgrade(&self) -> Option<SharedFile> {
        self.0.upgrade().map(SharedFile)
    }
}

impl SharedFile {
    /// The descriptor (in the simulation: its number there).
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Does not keep it open.
    pub fn downgrade(&self) -> WeakSharedFile {
        WeakSharedFile(Arc::downgrade(&self.0))
    }

    /// The file is about to change: whoever has not yet taken bytes from it must not. To be called before the change.
    pub fn revoke(&self) {
        self.0.revoked.store(true, Ordering::SeqCst);
    }

    /// Whether what was taken from the file until now may be something else than what was promised. To be asked after the
    /// taking.
    pub fn is_revoked(&self) -> bool {
        self.0.revoked.load(Ordering::SeqCst)
    }

    /// A reader could not get what it was promised: the next one is to look more closely.
    pub fn fail(&self) {
        self.0.failed.store(true, Ordering::Relaxed);
    }

    /// Whether a reader had to [fail](Self::fail) it.
    pub fn has_failed(&self) -> bool {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Reads at most `buf`'s length at `offset`, into its front. Zero: the end of the file. May be short.
    pub async fn read_at<B: IoBufMut>(&self, reactor: &Reactor, buf: B, offset: u64) -> (io::Result<usize>, B) {
        let handle = self.0.handle;
        let read = OpFuture::new(reactor, (buf, self.clone()), move |(buf, _): &mut (B, SharedFile), _| {
            let len = u32::try_from(buf.room()).unwrap_or(i32::MAX as u32);
            Op::Read { handle, buf: buf.start(), len, offset }
        });
        let (result, (buf, _)) = read.await;
        (count(result), buf)
    }

    /// Tells the kernel what is not needed soon of a part of the file.
    pub async fn advise(&self, reactor: &Reactor, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
        let handle = self.0.handle;
        let op = Op::Advise { handle, offset, len, advice };
        let (result, _) = OpFuture::new(reactor, self.clone(), move |_, _| op).await;
        count(result).map(drop)
    }

    /// The same without waiting. False: it was left out, as too much of it is under way.
    pub fn advise_soon(&self, reactor: &Reactor, offset: u64, len: u64, advice: Advice) -> bool {
        let under_way = &reactor.0.advice;
        if len == 0 || under_way.get() >= ADVICE_MAX {
            return false;
        }
        let (file, on) = (self.clone(), reactor.clone());
        let begun = AdviceBegun::new(reactor);
        let advise = async move {
            // Advice that can't be taken changes no byte: the read without it is slower.
            if let Err(error) = file.advise(&on, offset, len, advice).await {
                tracing::debug!(path = %file.path().display(), %error, ?advice, "the kernel takes no advice");
            }
            drop(begun);
        };
        reactor.spawn(advise).is_ok()
    }

    /// What of the page cache can be given back behind a reader that has taken everything up to `to`, if it is at least
    /// `step`.
    pub fn next_behind(&self, to: u64, window: u64, step: u64) -> Option<(u64, u64)> {
        let before = self.0.behind.load(Ordering::Relaxed);
        // Another reader, far from the last one, begins anew.
        let begin = if before <= to && to - before <= 8 * window { before } else { to.saturating_sub(window) };
        if to - begin < step {
            return None;
        }
        self.0.behind.store(to, Ordering::Relaxed);
        Some((begin, to))
    }
}

/// Counts advice under way, also when its task is dropped.
struct AdviceBegun(Reactor);

impl AdviceBegun {
    fn new(reactor: &Reactor) -> AdviceBegun {
        reactor.0.advice.set(reactor.0.advice.get() + 1);
        AdviceBegun(reactor.clone())
    }
}

impl Drop for AdviceBegun {
    fn drop(&mut self) {
        self.0.0.advice.set(self.0.0.advice.get() - 1);
    }
}

impl Reactor {
    /// Opens a file for reading from several cores, through the page cache.
    pub async fn open_shared(&self, path: &Path) -> io::Result<SharedFile> {
        let file = self.open(path, OpenHow::read()).await?;
        let handle = file.into_handle();
        let closer = self.0.driver.borrow_mut().closer();
        Ok(SharedFile(Arc::new(Shared {
            handle,
            closer,
            path: path.into(),
            revoked: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            behind: AtomicU64::new(0),
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> SharedFile {
        SharedFile(Arc::new(Shared {
            handle: Handle(-1),
            closer: Closer::World(Arc::default()),
            path: Path::new("x").into(),
            revoked: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            behind: AtomicU64::new(0),
        }))
    }

    #[test]
    fn the_page_cache_is_given_back_in_steps_and_only_behind_the_reader() {
        let (file, window) = (file(), 400);
        let mut given = 0;
        for to in (0..5000).step_by(100) {
            if let Some((from, until)) = file.next_behind(to, window, 200) {
                assert_eq!((from, until), (given, to));
                given = until;
            }
            assert!(to - given < 200, "{given} given back behind {to}");
        }
        assert_eq!(file.next_behind(500, window, 200), Some((100, 500)), "another reader");
    }
}
