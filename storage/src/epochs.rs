//! Which leader epoch begins at which offset (KIP-101, KIP-279).
//!
//! Holds: the cache of `(epoch, start offset)` pairs of one partition, and the text of its checkpoint.
//! Never touches: files; the log engine writes [`EpochCache::encode`] to `leader-epoch-checkpoint`.
//!
//! ```text
//!  0            version
//!  2            entries
//!  3 0          epoch, start offset; both grow from line to line
//!  5 1204
//! ```

use crate::ids::{LeaderEpoch, Offset};
use core::fmt::Write as _;
use core::str::FromStr;

/// The file's name in a partition's folder.
pub const CHECKPOINT_FILE_NAME: &str = "leader-epoch-checkpoint";
/// The only version of the file.
const CHECKPOINT_VERSION: i32 = 0;
/// More epochs than this in a file are not believed: 2^20 changes of leadership, about 20 MB of text.
const ENTRIES_MAX: usize = 1 << 20;

/// One epoch and the offset of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Offset of the first record that its leader wrote.
    pub start: Offset,
}

/// What `OffsetForLeaderEpoch` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest known epoch that is not above the requested one.
    pub epoch: LeaderEpoch,
    /// Where it ends: the start of the next known epoch, or the log end.
    pub end: Offset,
}

impl EpochEnd {
    /// "Don't know": epoch and offset -1.
    pub const UNDEFINED: Self = Self { epoch: LeaderEpoch::NONE, end: Offset::NONE };
}

/// Why an epoch could not be assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader epoch {epoch} cannot start at offset {start}: both must be 0 or more")]
pub struct AssignError {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its start.
    pub start: Offset,
}

/// Why bytes are no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Not text.
    #[error("leader epoch checkpoint is not UTF-8")]
    NotText,
    /// Another version.
    #[error("leader epoch checkpoint has version {version}, {CHECKPOINT_VERSION} is known")]
    Version {
        /// The version found.
        version: i32,
    },
    /// A line that is not what it should be.
    #[error("leader epoch checkpoint is malformed in line {line}")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// More or fewer entries than promised.
    #[error("leader epoch checkpoint promises {promised} entries and has {found}")]
    Count {
        /// The second line.
        promised: usize,
        /// Lines after it.
        found: usize,
    },
}

/// The epochs of one partition, oldest first; epochs and offsets both grow strictly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochCache {
    entries: Vec<EpochEntry>,
}

impl EpochCache {
    /// No epochs.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// All entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest epoch, with its start.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The oldest epoch, with its start.
    #[must_use]
    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// The largest known epoch below `epoch`.
    #[must_use]
    pub fn previous(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        let below = self.entries.partition_point(|entry| entry.epoch < epoch);
        below.checked_sub(1).and_then(|at| self.entries.get(at)).copied()
    }

    /// Notes that `epoch` starts at `start`, called for every appended batch. Returns whether anything changed, and thus whether
    /// the checkpoint must be written.
    ///
    /// Entries that this contradicts (an epoch or a start not below the new one's) are dropped: they describe records that were
    /// truncated, or an epoch that wrote nothing.
    ///
    /// # Errors
    /// When either number is negative.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> Result<bool, AssignError> {
        if epoch.0 < 0 || start.0 < 0 {
            return Err(AssignError { epoch, start });
        }
        if let Some(latest) = self.latest()
            && latest.epoch == epoch
            && latest.start <= start
        {
            return Ok(false);
        }
        while self.latest().is_some_and(|last| last.epoch >= epoch || last.start >= start) {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start });
        Ok(true)
    }

    /// The end of the largest known epoch that is not above `requested`; see [`EpochEnd`].
    ///
    /// - The newest epoch ends at the log end, also while it is written to.
    /// - Below the oldest epoch the answer is the requested epoch itself and the start of the oldest: what was there is gone.
    /// - Above the newest, or without any epoch, it is [`EpochEnd::UNDEFINED`].
    #[must_use]
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> EpochEnd {
        if requested == LeaderEpoch::NONE {
            return EpochEnd::UNDEFINED;
        }
        if self.latest().is_some_and(|latest| latest.epoch == requested) {
            return EpochEnd { epoch: requested, end: log_end };
        }
        let above = self.entries.partition_point(|entry| entry.epoch <= requested);
        let Some(next) = self.entries.get(above) else {
            return EpochEnd::UNDEFINED;
        };
        let floor = above.checked_sub(1).and_then(|at| self.entries.get(at));
        EpochEnd { epoch: floor.map_or(requested, |entry| entry.epoch), end: next.start }
    }

    /// The epoch that the record at `offset` was written in, as far as is known.
    #[must_use]
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start <= offset);
        after.checked_sub(1).and_then(|at| self.entries.get(at)).map(|entry| entry.epoch)
    }

    /// Forgets what starts at `end` or later: the log was cut there. Returns whether anything changed.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        if end.0 >= 0 {
            let keep = self.entries.partition_point(|entry| entry.start < end);
            self.entries.truncate(keep);
        }
        self.entries.len() != before
    }

    /// Forgets what ends at `start` or earlier: the log starts there now. The epoch that `start` lies in stays and starts there.
    /// Returns whether anything changed.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let gone = self.entries.partition_point(|entry| entry.start <= start);
        let Some(last) = gone.checked_sub(1) else {
            return false;
        };
        let Some(kept) = self.entries.get_mut(last) else {
            return false;
        };
        let is_moved = kept.start != start;
        kept.start = start;
        self.entries.drain(..last);
        is_moved || last > 0
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The checkpoint's text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!("{CHECKPOINT_VERSION}\n{}\n", self.entries.len());
        for EpochEntry { epoch, start } in &self.entries {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{epoch} {start}");
        }
        text
    }

    /// Reads a checkpoint. An empty file, or one that ends after its version, holds no epochs. Entries that contradict later
    /// ones are dropped, as when they are assigned one by one.
    ///
    /// # Errors
    /// When the text is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let text = str::from_utf8(bytes).map_err(|_| CheckpointError::NotText)?;
        let mut lines = text.lines().zip(1..);
        let Some((version, line)) = lines.next() else {
            return Ok(Self::new());
        };
        let version: i32 = number(version, line)?;
        if version != CHECKPOINT_VERSION {
            return Err(CheckpointError::Version { version });
        }
        let Some((promised, line)) = lines.next() else {
            return Ok(Self::new());
        };
        let promised: usize = number(promised, line)?;
        let mut cache = Self::new();
        let mut found = 0;
        for (text, line) in lines {
            found += 1;
            if found > promised || found > ENTRIES_MAX {
                return Err(CheckpointError::Count { promised, found });
            }
            let mut words = text.split_whitespace();
            let (Some(epoch), Some(start), None) = (words.next(), words.next(), words.next()) else {
                return Err(CheckpointError::Line { line });
            };
            let (epoch, start) = (LeaderEpoch(number(epoch, line)?), Offset(number(start, line)?));
            cache.assign(epoch, start).map_err(|_| CheckpointError::Line { line })?;
        }
        if found == promised { Ok(cache) } else { Err(CheckpointError::Count { promised, found }) }
    }
}

fn number<T: FromStr>(text: &str, line: usize) -> Result<T, CheckpointError> {
    text.parse().map_err(|_| CheckpointError::Line { line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::new();
        for &(epoch, start) in entries {
            cache.assign(LeaderEpoch(epoch), Offset(start)).expect("not negative");
        }
        cache
    }

    fn pairs(cache: &EpochCache) -> Vec<(i32, i64)> {
        cache.entries().iter().map(|entry| (entry.epoch.0, entry.start.0)).collect()
    }

    fn end_of(cache: &EpochCache, epoch: i32) -> (i32, i64) {
        let EpochEnd { epoch, end } = cache.end_offset_for(LeaderEpoch(epoch), Offset(100));
        (epoch.0, end.0)
    }

    #[test]
    fn an_epoch_starts_where_it_was_first_seen() {
        let mut cache = cache(&[(2, 0), (2, 5), (4, 9)]);
        assert_eq!(pairs(&cache), [(2, 0), (4, 9)]);
        assert_eq!(cache.assign(LeaderEpoch(4), Offset(12)), Ok(false));
        assert_eq!(cache.assign(LeaderEpoch(5), Offset(12)), Ok(true));
    }

    #[test]
    fn an_epoch_that_wrote_nothing_is_replaced_by_the_next() {
        assert_eq!(pairs(&cache(&[(1, 0), (2, 7), (3, 7)])), [(1, 0), (3, 7)]);
    }

    #[test]
    fn entries_that_contradict_a_new_one_are_dropped() {
        assert_eq!(pairs(&cache(&[(1, 0), (2, 5), (3, 9), (2, 7)])), [(1, 0), (2, 7)]);
        assert_eq!(pairs(&cache(&[(1, 0), (2, 5), (3, 9), (4, 3)])), [(1, 0), (4, 3)]);
        assert_eq!(pairs(&cache(&[(2, 6), (2, 4)])), [(2, 4)]);
    }

    #[test]
    fn negative_numbers_are_refused() {
        let mut cache = EpochCache::new();
        assert!(cache.assign(LeaderEpoch(-1), Offset(0)).is_err());
        assert!(cache.assign(LeaderEpoch(0), Offset(-1)).is_err());
        assert_eq!(cache.latest(), None);
    }

    #[test]
    fn an_epoch_ends_where_the_next_known_one_starts_and_the_newest_at_the_log_end() {
        let cache = cache(&[(2, 10), (4, 20), (7, 30)]);
        assert_eq!(end_of(&cache, 2), (2, 20));
        assert_eq!(end_of(&cache, 3), (2, 20), "an unknown one counts as the known one before it");
        assert_eq!(end_of(&cache, 4), (4, 30));
        assert_eq!(end_of(&cache, 7), (7, 100));
    }

    #[test]
    fn an_epoch_before_the_oldest_ends_where_the_oldest_starts() {
        assert_eq!(end_of(&cache(&[(2, 10), (4, 20)]), 0), (0, 10));
    }

    #[test]
    fn an_epoch_past_the_newest_and_no_epoch_at_all_are_undefined() {
        assert_eq!(end_of(&cache(&[(2, 10)]), 3), (-1, -1));
        assert_eq!(end_of(&cache(&[(2, 10)]), -1), (-1, -1));
        assert_eq!(end_of(&EpochCache::new(), 0), (-1, -1));
    }

    #[test]
    fn the_epoch_of_an_offset_is_the_last_that_started_by_then() {
        let cache = cache(&[(2, 10), (4, 20)]);
        let epoch = |offset| cache.epoch_for_offset(Offset(offset)).map(|epoch| epoch.0);
        assert_eq!([epoch(9), epoch(10), epoch(19), epoch(20), epoch(99)], [None, Some(2), Some(2), Some(4), Some(4)]);
        assert_eq!(cache.previous(LeaderEpoch(4)).map(|entry| entry.epoch.0), Some(2));
        assert_eq!(cache.previous(LeaderEpoch(2)), None);
    }

    #[test]
    fn truncation_from_the_end_forgets_what_starts_there_or_later() {
        let full = cache(&[(1, 0), (2, 5), (3, 9)]);
        for (end, left, changed) in
            [(10, 3, false), (9, 2, true), (6, 2, true), (5, 1, true), (0, 0, true), (-1, 3, false)]
        {
            let mut cache = full.clone();
            assert_eq!(cache.truncate_from_end(Offset(end)), changed, "to {end}");
            assert_eq!(cache.entries().len(), left, "to {end}");
        }
    }

    #[test]
    fn truncation_from_the_start_lets_the_epoch_of_the_new_start_begin_there() {
        let full = cache(&[(1, 2), (2, 5), (3, 9)]);
        let cases = [
            (1, vec![(1, 2), (2, 5), (3, 9)], false),
            (2, vec![(1, 2), (2, 5), (3, 9)], false),
            (4, vec![(1, 4), (2, 5), (3, 9)], true),
            (5, vec![(2, 5), (3, 9)], true),
            (8, vec![(2, 8), (3, 9)], true),
            (20, vec![(3, 20)], true),
        ];
        for (start, left, changed) in cases {
            let mut cache = full.clone();
            assert_eq!(cache.truncate_from_start(Offset(start)), changed, "to {start}");
            assert_eq!(pairs(&cache), left, "to {start}");
        }
    }

    #[test]
    fn the_checkpoint_is_kafkas() {
        let cache = cache(&[(3, 0), (5, 1204)]);
        assert_eq!(cache.encode(), "0\n2\n3 0\n5 1204\n");
        assert_eq!(EpochCache::decode(cache.encode().as_bytes()), Ok(cache));
    }

    #[test]
    fn an_empty_or_headless_checkpoint_has_no_epochs() {
        for text in ["", "0\n", "0\n0\n"] {
            assert_eq!(EpochCache::decode(text.as_bytes()), Ok(EpochCache::new()), "{text:?}");
        }
    }

    #[test]
    fn malformed_checkpoints_are_refused_with_their_line() {
        let cases = [
            ("1\n0\n", CheckpointError::Version { version: 1 }),
            ("x\n0\n", CheckpointError::Line { line: 1 }),
            ("0\n-1\n", CheckpointError::Line { line: 2 }),
            ("0\n1\n5\n", CheckpointError::Line { line: 3 }),
            ("0\n1\n5 6 7\n", CheckpointError::Line { line: 3 }),
            ("0\n1\n-5 6\n", CheckpointError::Line { line: 3 }),
            ("0\n2\n5 6\n\n", CheckpointError::Line { line: 4 }),
            ("0\n2\n5 6\n", CheckpointError::Count { promised: 2, found: 1 }),
            ("0\n1\n5 6\n7 8\n", CheckpointError::Count { promised: 1, found: 2 }),
            ("0\n99999999999999999999\n", CheckpointError::Line { line: 2 }),
        ];
        for (text, error) in cases {
            assert_eq!(EpochCache::decode(text.as_bytes()), Err(error), "{text:?}");
        }
        assert_eq!(EpochCache::decode(&[0xff]), Err(CheckpointError::NotText));
    }

    proptest! {
        #[test]
        fn entries_always_grow_and_survive_their_checkpoint(moves in prop::collection::vec((0_i32..20, 0_i64..40, 0_u8..4), 0..60)) {
            let mut cache = EpochCache::new();
            for (epoch, offset, what) in moves {
                match what {
                    0 => { cache.truncate_from_end(Offset(offset)); }
                    1 => { cache.truncate_from_start(Offset(offset)); }
                    _ => { cache.assign(LeaderEpoch(epoch), Offset(offset)).expect("not negative"); }
                }
                prop_assert!(cache.entries().is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start), "{:?}", cache);
                prop_assert_eq!(EpochCache::decode(cache.encode().as_bytes()), Ok(cache.clone()));
            }
        }

        #[test]
        fn any_text_is_decoded_or_refused_without_a_panic(text in "[0-9 \\n-]{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = EpochCache::decode(text.as_bytes());
            let _ = EpochCache::decode(&bytes);
        }
    }
}
