//! Whether what was read is what was acknowledged.
//!
//! Holds: for each producer and partition the next sequence expected, and what was missing. Never touches: how records
//! were read. Memory is bounded: it grows with the gaps, of which there are as many as batches were lost or never answered, and
//! beyond a number of them only the missing records' count is kept.

use std::collections::{BTreeSet, HashMap};

use super::ranges::{Ranges, Unanswered};
use crate::payload::stamp::Stamp;

/// Gaps remembered one by one.
const GAPS_MAX: usize = 1 << 20;
/// Findings told in words.
const FINDINGS_MAX: usize = 10;

/// Counts what is wrong.
#[derive(Default)]
pub struct Check {
    streams: HashMap<(u32, u32), Expected>,
    next_offset: HashMap<u32, i64>,
    /// Partitions whose end was seen to be before what had been read of them.
    cut_short: BTreeSet<u32>,
    unanswered: Unanswered,
    gaps: usize,
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
    missing: Ranges,
    /// Missing, beyond what is remembered.
    forgotten: u64,
}

impl Check {
    /// Records in `unanswered` may be there once, or not, and at a later place than they were sent for.
    pub fn new(unanswered: &Unanswered) -> Self {
        Self { unanswered: unanswered.clone(), ..Self::default() }
    }

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
        let Stamp { producer, sequence, .. } = stamp;
        let expected = self.streams.entry((partition, producer)).or_default();
        let gaps_before = expected.missing.len();
        let what = if sequence == expected.next {
            expected.next += 1;
            return;
        } else if sequence > expected.next {
            let gap = expected.next..sequence;
            let unanswered = self.unanswered.with(partition, producer, |ranges| ranges.within(gap.clone()));
            let may_be_left_out = unanswered == sequence - expected.next;
            if self.gaps < GAPS_MAX {
                expected.missing.add(gap);
            } else {
                expected.forgotten += sequence - expected.next - unanswered;
            }
            expected.next = sequence + 1;
            (!may_be_left_out).then_some("skips ahead")
        } else if expected.missing.remove(sequence) {
            let may_be_late =
                self.unanswered.with(partition, producer, |ranges| ranges.within(sequence..sequence + 1)) > 0;
            self.reordered += u64::from(!may_be_late);
            (!may_be_late).then_some("comes late")
        } else {
            self.doubled += 1;
            Some("comes again")
        };
        self.gaps = self.gaps + expected.missing.len() - gaps_before;
        if let Some(what) = what {
            self.find(format!(
                "partition {partition}, offset {offset}: record {sequence} of producer {producer} {what}"
            ));
        }
    }

    /// What had been read of `partition` up to `offset` is no longer there.
    pub fn cut_short(&mut self, partition: u32, offset: i64) {
        self.cut_short.insert(partition);
        self.find(format!("partition {partition} was read up to offset {offset} and ends before it now"));
    }

    /// Whether everything up to `ends` was read, as far as it can be; `starts` is where reading began.
    pub fn is_at(&self, starts: &[i64], ends: &[i64]) -> bool {
        starts.iter().zip(ends).enumerate().all(|(partition, (start, end))| {
            let partition = partition as u32;
            self.next_offset.get(&partition).unwrap_or(start) >= end || self.cut_short.contains(&partition)
        })
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Holds what was read against what was sent (`[lane][partition]`, counts): what has an answer and isn't there is lost.
    pub fn lost(&self, sent: &[Vec<u64>]) -> u64 {
        let none = Expected::default();
        let mut lost = 0;
        for (lane, partitions) in sent.iter().enumerate() {
            for (partition, sent) in partitions.iter().enumerate() {
                let (lane, partition) = (lane as u32, partition as u32);
                let Expected { next, missing, forgotten } = self.streams.get(&(partition, lane)).unwrap_or(&none);
                let absent = missing.within(0..*sent) + sent.saturating_sub(*next);
                let excused = |ranges: &Ranges| missing.shared(ranges, *sent) + ranges.within(*next..*sent);
                lost += absent - self.unanswered.with(partition, lane, excused) + forgotten;
            }
        }
        lost
    }

    /// Of the records without an answer, how many are there.
    fn appeared(&self, sent: &[Vec<u64>]) -> u64 {
        let none = Expected::default();
        let streams = sent
            .iter()
            .enumerate()
            .flat_map(|(lane, partitions)| (0..partitions.len()).map(move |partition| (partition as u32, lane as u32)));
        let there = streams.map(|stream| {
            let Expected { next, missing, .. } = self.streams.get(&stream).unwrap_or(&none);
            self.unanswered.with(stream.0, stream.1, |ranges| ranges.within(0..*next) - missing.shared(ranges, *next))
        });
        there.sum()
    }

    /// The verdict in words: `Err` when anything is wrong.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verdict(&self, sent: &[Vec<u64>]) -> Result<String, String> {
        let lost = self.lost(sent);
        let unanswered = self.unanswered.count();
        let acknowledged = sent.iter().flatten().sum::<u64>().saturating_sub(unanswered);
        let Self { records, doubled, reordered, damaged, offset_gaps, .. } = self;
        let mut counts = format!(
            "{acknowledged} records acknowledged, {records} read: {lost} lost, {doubled} doubled, {reordered} out of order, \
             {damaged} damaged, {offset_gaps} offsets not contiguous"
        );
        if unanswered > 0 {
            let appeared = self.appeared(sent);
            counts.push_str(&format!("; {unanswered} without an answer, of which {appeared} are there"));
        }
        let cut_short = self.cut_short.len() as u64;
        if lost + doubled + reordered + damaged + offset_gaps + cut_short == 0 {
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
    fn a_record_without_an_answer_may_be_there_once_or_not_and_late_and_any_other_may_not() {
        let with = |sequences: &[u64], sent: u64| {
            let unanswered = Unanswered::default();
            unanswered.add(0, 0, 2..4);
            unanswered.add(0, 0, 8..10);
            let mut check = Check::new(&unanswered);
            for (offset, sequence) in sequences.iter().enumerate() {
                check.record(0, offset as i64, Some(Stamp { producer: 0, sequence: *sequence, at_ns: 1 }));
            }
            check.verdict(&[vec![sent]])
        };
        let there = |sequences: &[u64]| with(sequences, 10).unwrap();
        assert!(there(&[0, 1, 4, 5, 6, 7]).ends_with("; 4 without an answer, of which 0 are there"));
        assert!(there(&[0, 1, 2, 4, 5, 6, 7, 8, 9]).ends_with("of which 3 are there"));
        assert!(there(&[0, 1, 4, 5, 2, 3, 6, 7]).contains("6 records acknowledged, 8 read: 0 lost"));
        assert!(with(&[0, 1, 5, 6, 7], 10).unwrap_err().contains("1 lost"));
        assert!(with(&[0, 1, 2, 3, 4, 5, 6], 10).unwrap_err().contains("1 lost"));
        assert!(with(&[0, 1, 4, 5, 6, 7], 11).unwrap_err().contains("1 lost"));
        assert!(with(&[0, 1, 2, 3, 4, 5, 6, 7, 2], 10).unwrap_err().contains("1 doubled"));
        assert!(with(&[0, 1, 4, 6, 5, 7], 10).unwrap_err().contains("1 out of order"));
    }

    #[test]
    fn what_was_read_and_is_no_longer_there_is_found_whatever_comes_after() {
        let mut check = read(&[0, 1, 2]);
        assert!(!check.is_at(&[0, 5], &[3, 7]) && check.is_at(&[0, 5], &[3, 5]) && !check.is_at(&[0], &[4]));
        assert!(check.verdict(&[vec![3]]).is_ok());
        check.cut_short(0, 3);
        assert!(check.is_at(&[0], &[4]));
        assert!(check.verdict(&[vec![3]]).unwrap_err().contains("was read up to offset 3 and ends before it"));
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
