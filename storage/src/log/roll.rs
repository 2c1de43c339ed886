//! When a segment is full or old enough, and the next one becomes the active one.
//!
//! Holds: Kafka's rules for it, and ours for pre-written room. Never touches: files (the next commit makes the new one's).

use super::config::LogConfig;
use super::state::{Phase, Segment, State};
use crate::batch::BatchHeader;
use crate::disk::spare::SpareTicket;
use crate::ids::{Offset, Timestamp};
use corelog_reactor::Reactor;

/// A segment's share of `segment.jitter.ms`: so that those of logs that were begun together are not closed together.
pub(super) fn roll_jitter(reactor: &Reactor, config: &LogConfig) -> i64 {
    match u64::try_from(config.segment_jitter_ms_max.min(config.segment_ms_max)) {
        Ok(bound @ 1..) => i64::try_from(reactor.random_u64() % bound).unwrap_or(0),
        Ok(0) | Err(_) => 0,
    }
}

impl State {
    /// Whether a batch of `bytes` needs a new segment. As Kafka decides it, and one thing more: when the pre-written room
    /// is used up and a spare is ready.
    pub(super) fn must_roll(
        &self,
        bytes: usize,
        header: &BatchHeader,
        last_offset: Offset,
        now: Timestamp,
        config: &LogConfig,
    ) -> bool {
        let active = &self.active;
        if active.bytes() == 0 {
            return false;
        }
        let end = active.bytes() + bytes as u64;
        let waited_ms = match active.first_timestamp {
            Some(first) if first.0 >= 0 => header.max_timestamp.0.saturating_sub(first.0),
            Some(_) | None => now.0.saturating_sub(active.created.0),
        };
        end > u64::from(config.segment_bytes_max)
            || waited_ms > config.segment_ms_max.saturating_sub(active.jitter_ms)
            || last_offset - active.base > i64::from(i32::MAX)
            || active.index.as_ref().is_some_and(|index| index.is_full(config.index_bytes_max))
            || (end > active.room && self.ticket.as_ref().is_some_and(|t| t.is_ready() && t.bytes() >= bytes as u64))
    }

    /// Makes a new segment the active one. The old one is sealed once it is durable. Returns whether the new one has a
    /// pre-written file.
    pub(super) fn roll(&mut self, now: Timestamp, jitter_ms: i64) -> bool {
        let mut fresh = Segment { jitter_ms, ..Segment::new(self.log_end, now) };
        fresh.spare = self.ticket.as_ref().and_then(SpareTicket::take);
        let to_spare = fresh.spare.is_some();
        if to_spare {
            self.ticket = None;
        }
        let mut old = std::mem::replace(&mut self.active, fresh);
        old.phase = Phase::Rolled;
        old.snapshot = Some(self.producers.snapshot());
        self.older.push_back(old);
        self.capture = None;
        self.bytes_since_capture = 0;
        to_spare
    }
}
