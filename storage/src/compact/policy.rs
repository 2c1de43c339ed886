//! Which part of a log a round of compaction takes, whether that is worth it, and which segments become one.
//!
//! Holds: Kafka's rules over facts about segments (`LogCleanerManager`, `LogToClean`, `Cleaner.groupSegmentsBySize`).
//! Never touches: the log, the clock.
//!
//! A round begins where the last one ended and takes whole segments. It never takes
//!
//! - the active segment;
//! - a segment with the last stable offset in it or behind it: what is not decided, or not committed, stays as it is;
//! - one with a record younger than `min.compaction.lag.ms`, and what is behind it.

use crate::ids::{Offset, Timestamp};
use std::ops::Range;

/// What is known of a segment that is not the active one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its first offset.
    pub base: Offset,
    /// Bytes of its records.
    pub bytes: u64,
    /// Bytes of its offset index.
    pub index_bytes: u64,
    /// Bytes of its time index.
    pub time_index_bytes: u64,
    /// Largest timestamp of its first batch; looked at for the most lag only.
    pub first_timestamp: Option<Timestamp>,
    /// Largest timestamp of all its batches; looked at for the least lag only.
    pub largest_timestamp: Option<Timestamp>,
}

/// What is known of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogFacts<'a> {
    /// Its segments but the active one, oldest first.
    pub segments: &'a [SegmentFacts],
    /// First offset of the active segment.
    pub active_base: Offset,
    /// The first offset that readers may see.
    pub log_start: Offset,
    /// The offset behind the last record.
    pub log_end: Offset,
    /// The last stable offset, which is at most the high watermark.
    pub last_stable: Offset,
    /// Where the last round ended; `None` if there was none.
    pub clean_to: Option<Offset>,
}

/// What a topic asks of compaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wishes {
    /// `min.cleanable.dirty.ratio`.
    pub dirty_ratio_min: f64,
    /// `min.compaction.lag.ms`.
    pub lag_ms_min: i64,
    /// `max.compaction.lag.ms`.
    pub lag_ms_max: i64,
}

/// A round that a log could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where the last round ended: keys are gathered from here on.
    pub first_dirty: Offset,
    /// The base of the first segment that the round must not touch.
    pub end: Offset,
    /// Bytes before the first dirty offset.
    pub clean_bytes: u64,
    /// Bytes from there up to the end.
    pub dirty_bytes: u64,
    /// A record is older than `max.compaction.lag.ms`.
    pub is_overdue: bool,
}

impl Candidate {
    /// What is known of the log's next round.
    #[must_use]
    pub fn of(log: &LogFacts<'_>, wishes: &Wishes, now: Timestamp) -> Self {
        // A place that no log of this start and end can have comes from a log that was cut: all of it counts as dirty.
        let first_dirty = match log.clean_to {
            Some(clean_to) if log.log_start <= clean_to && clean_to <= log.log_end => clean_to,
            Some(_) | None => log.log_start,
        };
        let from = |offset: Offset| if offset < log.active_base { from(log.segments, offset) } else { &[] };
        let dirty = from(first_dirty);
        let lag_ms_min = wishes.lag_ms_min.max(0);
        let too_young = dirty.iter().find(|segment| {
            let horizon = now.0.saturating_sub(lag_ms_min);
            lag_ms_min > 0 && segment.largest_timestamp.is_some_and(|largest| largest.0 > horizon)
        });
        let bounds = [Some(log.last_stable), Some(log.active_base), too_young.map(|segment| segment.base)];
        let uncleanable = bounds.into_iter().flatten().min().unwrap_or(first_dirty).max(first_dirty);
        // Whole segments only.
        let end = from(uncleanable).first().map_or(log.active_base, |segment| segment.base);
        let bytes_in = |range: Range<Offset>| -> u64 {
            let part = from(range.start);
            part.iter().take_while(|segment| segment.base < range.end).map(|segment| segment.bytes).sum()
        };
        let oldest = dirty.iter().filter_map(|s| s.first_timestamp).filter(|first| first.0 > 0).min();
        let overdue_before = now.0.saturating_sub(wishes.lag_ms_max.max(0));
        Self {
            first_dirty,
            end,
            clean_bytes: bytes_in(Offset::NONE..first_dirty),
            dirty_bytes: if first_dirty < end { bytes_in(first_dirty..end) } else { 0 },
            is_overdue: oldest.is_some_and(|oldest| oldest.0 < overdue_before),
        }
    }

    /// The dirty part of what a round would look at.
    #[must_use]
    pub fn dirty_ratio(&self) -> f64 {
        match self.clean_bytes + self.dirty_bytes {
            0 => 0.0,
            total => self.dirty_bytes as f64 / total as f64,
        }
    }

    /// Whether the round is worth it.
    #[must_use]
    pub fn is_due(&self, wishes: &Wishes) -> bool {
        self.dirty_bytes > 0 && (self.is_overdue || self.dirty_ratio() > wishes.dirty_ratio_min)
    }
}

/// The segments from the one that holds `offset` on; from the first, if it lies before all of them. The last one counts
/// as without end.
fn from(segments: &[SegmentFacts], offset: Offset) -> &[SegmentFacts] {
    let behind = segments.partition_point(|segment| segment.base <= offset);
    segments.get(behind.saturating_sub(1)..).unwrap_or_default()
}

/// What the segments that become one may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// `segment.bytes`.
    pub bytes: u64,
    /// `segment.index.bytes`, which bounds both indexes.
    pub index_bytes: u64,
}

/// Which segments become one, by their numbers: neighbours, as long as they stay within the limits, and their offsets
/// within what an index entry can say. `end` is the first offset behind the last segment.
#[must_use]
pub fn groups(segments: &[SegmentFacts], end: Offset, limits: GroupLimits) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut first: Option<SegmentFacts> = None;
    for (at, segment) in segments.iter().enumerate() {
        let last_offset = segments.get(at + 1).map_or(end, |next| next.base).0.saturating_sub(1);
        if let (Some(sum), Some(group)) = (&mut first, groups.last_mut()) {
            let fits = sum.bytes + segment.bytes <= limits.bytes
                && sum.index_bytes + segment.index_bytes <= limits.index_bytes
                && sum.time_index_bytes + segment.time_index_bytes <= limits.index_bytes
                && last_offset.saturating_sub(sum.base.0) <= i64::from(i32::MAX);
            if fits {
                sum.bytes += segment.bytes;
                sum.index_bytes += segment.index_bytes;
                sum.time_index_bytes += segment.time_index_bytes;
                group.end = at + 1;
                continue;
            }
        }
        first = Some(*segment);
        groups.push(at..at + 1);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(base: i64, bytes: u64, first: i64, largest: i64) -> SegmentFacts {
        SegmentFacts {
            base: Offset(base),
            bytes,
            index_bytes: 8,
            time_index_bytes: 12,
            first_timestamp: Some(Timestamp(first)),
            largest_timestamp: Some(Timestamp(largest)),
        }
    }

    /// Segments of ten offsets and a hundred bytes; the active one begins at 40.
    fn segments() -> Vec<SegmentFacts> {
        (0..4).map(|n| segment(n * 10, 100, 1_000 + n * 100, 1_099 + n * 100)).collect()
    }

    fn log(segments: &[SegmentFacts]) -> LogFacts<'_> {
        LogFacts {
            segments,
            active_base: Offset(40),
            log_start: Offset(0),
            log_end: Offset(45),
            last_stable: Offset(45),
            clean_to: None,
        }
    }

    const WISHES: Wishes = Wishes { dirty_ratio_min: 0.5, lag_ms_min: 0, lag_ms_max: i64::MAX };
    const NOW: Timestamp = Timestamp(1_500);

    #[test]
    fn without_a_round_before_everything_but_the_active_segment_is_dirty() {
        let segments = segments();
        let found = Candidate::of(&log(&segments), &WISHES, NOW);
        let expected =
            Candidate { first_dirty: Offset(0), end: Offset(40), clean_bytes: 0, dirty_bytes: 400, is_overdue: false };
        assert_eq!(found, expected);
        assert!(found.is_due(&WISHES));
    }

    #[test]
    fn a_log_is_due_once_its_dirty_part_is_more_than_the_ratio() {
        let segments = segments();
        for (clean_to, dirty_bytes, is_due) in [(10, 300, true), (20, 200, false), (30, 100, false), (40, 0, false)] {
            let log = LogFacts { clean_to: Some(Offset(clean_to)), ..log(&segments) };
            let found = Candidate::of(&log, &WISHES, NOW);
            assert_eq!((found.dirty_bytes, found.is_due(&WISHES)), (dirty_bytes, is_due), "clean up to {clean_to}");
        }
        let empty = LogFacts { active_base: Offset(0), log_end: Offset(0), last_stable: Offset(0), ..log(&[]) };
        assert!(!Candidate::of(&empty, &Wishes { dirty_ratio_min: 0.0, ..WISHES }, NOW).is_due(&WISHES));
    }

    #[test]
    fn a_round_ends_before_the_segment_with_the_last_stable_offset() {
        let segments = segments();
        for (last_stable, end) in [(45, 40), (40, 40), (39, 30), (30, 30), (29, 20), (5, 0)] {
            let log = LogFacts { last_stable: Offset(last_stable), ..log(&segments) };
            assert_eq!(Candidate::of(&log, &WISHES, NOW).end, Offset(end), "stable up to {last_stable}");
        }
    }

    #[test]
    fn a_round_ends_before_the_first_segment_with_a_record_that_is_too_young() {
        let segments = segments();
        // Largest: 1099, 1199, 1299, 1399.
        for (lag_ms_min, end) in [(0, 40), (100, 40), (102, 30), (300, 20), (302, 10), (600, 0)] {
            let wishes = Wishes { lag_ms_min, ..WISHES };
            assert_eq!(Candidate::of(&log(&segments), &wishes, NOW).end, Offset(end), "lag {lag_ms_min}");
        }
    }

    #[test]
    fn a_record_older_than_the_most_lag_makes_a_clean_log_due() {
        let segments = segments();
        let log = LogFacts { clean_to: Some(Offset(30)), ..log(&segments) };
        // The first batch of the last segment: 1300.
        for (lag_ms_max, is_due) in [(200, false), (199, true), (1, true)] {
            let wishes = Wishes { lag_ms_max, ..WISHES };
            assert_eq!(Candidate::of(&log, &wishes, NOW).is_due(&wishes), is_due, "lag {lag_ms_max}");
        }
    }

    #[test]
    fn a_round_before_the_log_start_or_behind_the_end_counts_for_nothing() {
        let segments = segments();
        for clean_to in [4, 46] {
            let log = LogFacts { log_start: Offset(5), clean_to: Some(Offset(clean_to)), ..log(&segments) };
            assert_eq!(Candidate::of(&log, &WISHES, NOW).first_dirty, Offset(5));
        }
    }

    /// The one group that there is.
    fn whole(groups: Vec<Range<usize>>) -> Option<Range<usize>> {
        groups.first().cloned().filter(|_| groups.len() == 1)
    }

    #[test]
    fn neighbours_become_one_as_far_as_the_limits_go() {
        let segments = segments();
        let limits = GroupLimits { bytes: 1000, index_bytes: 1000 };
        assert_eq!(whole(groups(&segments, Offset(40), limits)), Some(0..4));
        assert_eq!(groups(&segments, Offset(40), GroupLimits { bytes: 200, ..limits }), [0..2, 2..4]);
        assert_eq!(groups(&segments, Offset(40), GroupLimits { bytes: 50, ..limits }), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(groups(&segments, Offset(40), GroupLimits { index_bytes: 36, ..limits }), [0..3, 3..4]);
        let far = [segment(0, 1, 1, 1), segment(i64::from(i32::MAX) - 5, 1, 1, 1)];
        assert_eq!(whole(groups(&far, Offset(i64::from(i32::MAX) + 1), limits)), Some(0..2));
        assert_eq!(groups(&far, Offset(i64::from(i32::MAX) + 2), limits), [0..1, 1..2]);
    }

    proptest! {
        #[test]
        fn groups_cover_all_segments_in_order(bytes in prop::collection::vec(0_u64..300, 0..20), limit in 1_u64..700) {
            let segments: Vec<_> = bytes.iter().enumerate().map(|(n, b)| segment(n as i64, *b, 1, 1)).collect();
            let limits = GroupLimits { bytes: limit, index_bytes: u64::MAX };
            let groups = groups(&segments, Offset(bytes.len() as i64), limits);
            let covered: Vec<usize> = groups.iter().cloned().flatten().collect();
            prop_assert_eq!(covered, (0..bytes.len()).collect::<Vec<_>>());
            for group in groups {
                prop_assert!(group.len() == 1 || bytes[group].iter().sum::<u64>() <= limit);
            }
        }
    }
}
