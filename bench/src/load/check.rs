//! Whether what was read is what was acknowledged.
//!
//! Holds: for each producer and partition the next sequence expected, and what was missing. Never touches: how records
//! were read. Memory is bounded: beyond a number of missing records only their count is kept.

use std::collections::{BTreeSet, HashMap};

use crate::payload::stamp::Stamp;

/// Missing records remembered one by one.
const MISSING_MAX: usize = 1 << 20;
/// Findings told in words.
const FINDINGS_MAX: usize = 10;

/// Counts what is wrong.
#[derive(Default)]
pub struct Check {
    streams: HashMap<(u32, u32), Expected>,
    next_offset: HashMap<u32, i64>,
    missing: usize,
    /// Records read.
    pub records: u64,
    /// Records that came twice.
    pub doubled: u64,
    /// Records that came after a later one.
    pub reordered: u64,
    /// Records without a sound stamp.
    pub damaged: u64,
    /// Offsets that were left out or came twice.
    pub offset_gaps: u64,
    findings: Vec<String>,
}

#[derive(Default)]
struct Expected {
    next: u64,
    missing: BTreeSet<u64>,
}

impl Check {
    /// A record of `partition` was read.
    pub fn record(&mut self, partition: u32, offset: i64, stamp: Option<Stamp>) {
        self.records += 1;
        let due = self.next_offset.insert(partition, offset + 1);
        if due.is_some_and(|due| due != offset) {
            self.offset_gaps += 1;
            self.find(format!("partition {partition}: offset {offset} where {} was due", due.unwrap_or(0)));
        }
        let Some(stamp) = stamp else {
            self.damaged += 1;
            return self.find(format!("partition {partition}, offset {offset}: no sound stamp"));
        };
        let expected = self.streams.entry((partition, stamp.producer)).or_default();
        let what = if stamp.sequence == expected.next {
            expected.next += 1;
            return;
        } else if stamp.sequence > expected.next {
            for lost in expected.next..stamp.sequence {
                if self.missing < MISSING_MAX {
                    expected.missing.insert(lost);
                    self.missing += 1;
                }
            }
            expected.next = stamp.sequence + 1;
            "skips ahead"
        } else if expected.missing.remove(&stamp.sequence) {
            self.missing -= 1;
            self.reordered += 1;
            "comes late"
        } else {
            self.doubled += 1;
            "comes again"
        };
        let Stamp { producer, sequence, .. } = stamp;
        self.find(format!("partition {partition}, offset {offset}: record {sequence} of producer {producer} {what}"));
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Holds what was read against what was acknowledged (`[lane][partition]`, counts). Returns the lost records.
    pub fn lost(&self, acknowledged: &[Vec<u64>]) -> u64 {
        let mut lost = 0;
        for (lane, partitions) in acknowledged.iter().enumerate() {
            for (partition, count) in partitions.iter().enumerate() {
                lost += match self.streams.get(&(partition as u32, lane as u32)) {
                    Some(expected) => {
                        count.saturating_sub(expected.next) + expected.missing.range(..*count).count() as u64
                    }
                    None => *count,
                };
            }
        }
        lost
    }

    /// The verdict in words: `Err` when anything is wrong.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verdict(&self, acknowledged: &[Vec<u64>]) -> Result<String, String> {
        let lost = self.lost(acknowledged);
        let total: u64 = acknowledged.iter().flatten().sum();
        let Self { records, doubled, reordered, damaged, offset_gaps, .. } = self;
        let counts = format!(
            "{total} records acknowledged, {records} read: {lost} lost, {doubled} doubled, {reordered} out of order, \
             {damaged} damaged, {offset_gaps} offsets not contiguous"
        );
        if lost + doubled + reordered + damaged + offset_gaps == 0 {
            return Ok(counts);
        }
        let findings: String = self.findings.iter().map(|finding| format!("\n  {finding}")).collect();
        Err(format!("{counts}{findings}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sequences: &[u64]) -> Check {
        let mut check = Check::default();
        for (offset, sequence) in sequences.iter().enumerate() {
            check.record(0, offset as i64, Some(Stamp { producer: 0, sequence: *sequence, at_ns: 1 }));
        }
        check
    }

    #[test]
    fn a_whole_stream_in_order_is_clean_and_more_than_acknowledged_may_be_there() {
        assert!(read(&[0, 1, 2, 3]).verdict(&[vec![3]]).is_ok());
    }

    #[test]
    fn lost_doubled_and_reordered_records_are_told_apart() {
        let lost = read(&[0, 1, 3, 4]);
        assert_eq!((lost.lost(&[vec![5]]), lost.doubled, lost.reordered), (1, 0, 0));
        let tail = read(&[0, 1]);
        assert_eq!(tail.lost(&[vec![5]]), 3);
        let doubled = read(&[0, 1, 1, 2]);
        assert_eq!((doubled.lost(&[vec![3]]), doubled.doubled, doubled.reordered), (0, 1, 0));
        let reordered = read(&[0, 2, 1, 3]);
        assert_eq!((reordered.lost(&[vec![4]]), reordered.doubled, reordered.reordered), (0, 0, 1));
        for check in [lost, tail, doubled, reordered] {
            assert!(check.verdict(&[vec![5]]).is_err());
        }
        assert_eq!(Check::default().lost(&[vec![2, 3], vec![4, 0]]), 9);
    }

    #[test]
    fn damage_and_gaps_between_offsets_are_found() {
        let mut check = Check::default();
        check.record(3, 10, None);
        check.record(3, 12, Some(Stamp { producer: 0, sequence: 0, at_ns: 0 }));
        assert_eq!((check.damaged, check.offset_gaps), (1, 1));
        assert!(check.verdict(&[]).is_err());
    }
}
