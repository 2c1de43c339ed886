//! The sealed segments that are open for reads of the disk, and who still reads those that are not open any more.
//!
//! Holds: a few segments of all logs of a shard, last used last; the files that readers were given ranges of. Never touches:
//! bytes; when a file changes or goes (`truncate`, `removal` and compaction ask here who is in the way).
//!
//! A file that is to go waits for the reads of it that are under way (`Readers`), however its segment was closed: taken out
//! for that, to make room for another one, or because its index was wrong. Whoever sends a range of it is not waited for, as
//! a client may take its time: the file is taken back (`Lent`).

use super::cold_range::Places;
use crate::ids::Offset;
use crate::segment::index::SegmentIndex;
use corelog_reactor::{File, SharedFile, WeakSharedFile};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// A sealed segment that is open.
pub(crate) struct ColdSegment {
    pub(super) log: u64,
    pub(super) base: Offset,
    pub(super) file: File,
    pub(super) index: SegmentIndex,
    /// The same file, open for the page cache, once a reader was given a range of it.
    pub(super) shared: RefCell<Option<SharedFile>>,
    pub(super) places: Places,
    /// Exchanges of segments by compaction, when it was opened.
    pub(super) swaps: Option<u64>,
}

/// Reads that may be under way of a segment which no new ones get.
#[derive(Default)]
pub(super) struct Readers(Vec<Weak<ColdSegment>>);

impl Readers {
    /// Whether one of them is.
    pub(super) fn are_there(&self) -> bool {
        self.0.iter().any(|reader| reader.strong_count() > 0)
    }

    /// With more of them.
    pub(super) fn and(mut self, more: Readers) -> Readers {
        self.0.extend(more.0);
        self.0.retain(|reader| reader.strong_count() > 0);
        self
    }
}

/// A file that readers may have a range of, and the log does not use any more.
#[derive(Default)]
pub(super) struct Lent(Vec<WeakSharedFile>);

impl Lent {
    /// It is about to go: whoever still sends from it stops.
    pub(super) fn revoke(&self) {
        self.0.iter().filter_map(WeakSharedFile::upgrade).for_each(|file| file.revoke());
    }
}

/// The sealed segments that are open, last used last.
pub(crate) struct ColdSegments {
    open: RefCell<VecDeque<Rc<ColdSegment>>>,
    max: usize,
    /// Closed while somebody read them.
    closed: RefCell<Vec<Weak<ColdSegment>>>,
    /// Files that readers may still have a range of, also when the segment is not open here any more.
    lent: RefCell<Vec<(u64, Offset, WeakSharedFile)>>,
    revocations: Cell<u64>,
}

impl ColdSegments {
    pub(super) fn new(max: usize) -> Self {
        Self {
            open: RefCell::default(),
            max: max.max(1),
            closed: RefCell::default(),
            lent: RefCell::default(),
            revocations: Cell::new(0),
        }
    }

    /// A segment that is open.
    pub(super) fn find(&self, log: u64, base: Offset) -> Option<Rc<ColdSegment>> {
        let mut open = self.open.borrow_mut();
        let at = open.iter().position(|s| s.log == log && s.base == base)?;
        let found = open.remove(at)?;
        open.push_back(found.clone());
        Some(found)
    }

    /// Keeps a segment open, in the place of the one that was not used for longest.
    pub(super) fn insert(&self, segment: Rc<ColdSegment>) {
        let mut open = self.open.borrow_mut();
        let is_open = open.iter().any(|s| s.log == segment.log && s.base == segment.base);
        assert!(
            !is_open,
            "segment {} of log {} is open already: one of the two would outlive it",
            segment.base, segment.log
        );
        let evicted = if open.len() >= self.max { open.pop_front() } else { None };
        open.push_back(segment);
        drop(open);
        self.note_readers(evicted);
    }

    /// Segments that are closed: whoever has them now reads on.
    fn note_readers(&self, closed: impl IntoIterator<Item = Rc<ColdSegment>>) {
        let mut known = self.closed.borrow_mut();
        // No more of them than there are reads under way.
        known.retain(|segment| segment.strong_count() > 0);
        known.extend(closed.into_iter().filter(|s| Rc::strong_count(s) > 1).map(|s| Rc::downgrade(&s)));
    }

    /// Closes one segment of a log for all reads to come; those that are under way have it until they end.
    pub(super) fn take(&self, log: u64, base: Offset) -> Readers {
        self.close(log, Some(base));
        let is_it = |s: &mut Weak<ColdSegment>| s.upgrade().is_some_and(|s| s.log == log && s.base == base);
        Readers(self.closed.borrow_mut().extract_if(.., is_it).collect())
    }

    /// The same of a segment that another one has replaced; and what readers still have of its file, which stays for a
    /// while.
    pub(super) fn take_replaced(&self, log: u64, base: Offset) -> (Readers, Lent) {
        let is_it = |of: &mut (u64, Offset, WeakSharedFile)| of.0 == log && of.1 == base;
        let lent = self.lent.borrow_mut().extract_if(.., is_it).map(|(.., file)| file).collect();
        (self.take(log, base), Lent(lent))
    }

    /// The same before the file goes: whoever still sends from it stops.
    pub(super) fn take_back(&self, log: u64, base: Offset) -> Readers {
        self.revoke(log, Some(base));
        self.take(log, base)
    }

    /// Closes what is open of a log, or of one segment of it.
    pub(super) fn close(&self, log: u64, base: Option<Offset>) {
        let goes = |s: &Rc<ColdSegment>| s.log == log && base.is_none_or(|base| base == s.base);
        let all = self.open.take();
        let (closed, open) = all.into_iter().partition::<VecDeque<_>, _>(goes);
        self.open.replace(open);
        self.note_readers(closed);
    }

    /// The same before the files change or go: whoever still sends from them stops.
    pub(super) fn forget(&self, log: u64, base: Option<Offset>) {
        self.close(log, base);
        self.revoke(log, base);
    }

    fn revoke(&self, log: u64, base: Option<Offset>) {
        self.revocations.set(self.revocations.get() + 1);
        self.lent.borrow_mut().retain(|(of, segment, file)| {
            let goes = *of == log && base.is_none_or(|base| base == *segment);
            if goes && let Some(file) = file.upgrade() {
                file.revoke();
            }
            !goes
        });
    }

    /// How often files were taken back.
    pub(super) fn revocations(&self) -> u64 {
        self.revocations.get()
    }

    /// A reader is about to be given ranges of this file.
    pub(super) fn lent(&self, log: u64, base: Offset, file: &SharedFile) {
        let mut lent = self.lent.borrow_mut();
        // No more of them than there are files open.
        lent.retain(|(_, _, file)| file.upgrade().is_some());
        lent.push((log, base, file.downgrade()));
    }
}
