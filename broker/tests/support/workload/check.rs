//! Holds: the judgement over one partition's records, read from the beginning, against what was promised. Pure.
//! Never touches: the network.

use std::fmt;

use super::{Promises, Source};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Finding {
    /// Acknowledged and not there.
    Lost { partition: usize, index: u64, offset: Option<i64> },
    /// Acknowledged at one offset, found at another.
    Moved { partition: usize, index: u64, acked: i64, found: i64 },
    /// There twice although the producer was idempotent.
    Duplicate { partition: usize, index: u64, offset: i64 },
    /// Not the successor of the record before although the producer was idempotent.
    Disordered { partition: usize, offset: i64, expected_index: u64, found_index: u64 },
    /// Bytes that nobody sent, or not in this place.
    Changed { partition: usize, offset: i64, len: usize },
    /// An offset is missing between two records.
    Gap { partition: usize, expected: i64, found: i64 },
    /// A consumer had seen another record at this offset (`found_index` `None`: now there is none).
    Unseen { partition: usize, offset: i64, shown_index: u64, found_index: Option<u64> },
    /// The partition could not be read to its end.
    Unreadable { partition: Option<usize>, why: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Reads one partition's records in order and notes what is wrong with them.
pub struct PartitionCheck<'a> {
    partition: usize,
    partitions: u64,
    source: &'a dyn Source,
    promises: &'a Promises,
    idempotent: bool,
    next_offset: i64,
    next_index: u64,
    /// By index: found so far.
    found: Vec<bool>,
    findings: Vec<Finding>,
    records: u64,
}

/// Findings kept for one partition; one broken promise often breaks all after it.
const FINDINGS_MAX: usize = 20;

impl<'a> PartitionCheck<'a> {
    /// A check of a partition that starts at offset 0 and was written in order of the index by one producer.
    pub fn new(
        partition: usize,
        partitions: usize,
        source: &'a dyn Source,
        promises: &'a Promises,
        idempotent: bool,
    ) -> Self {
        PartitionCheck {
            partition,
            partitions: partitions as u64,
            source,
            promises,
            idempotent,
            next_offset: 0,
            next_index: 0,
            found: Vec::new(),
            findings: Vec::new(),
            records: 0,
        }
    }

    /// The next record.
    pub fn record(&mut self, offset: i64, payload: &[u8]) {
        let partition = self.partition;
        self.records += 1;
        if offset != self.next_offset {
            self.find(Finding::Gap { partition, expected: self.next_offset, found: offset });
        }
        self.next_offset = offset + 1;
        let number = self
            .source
            .number_of(payload)
            .filter(|number| number % self.partitions == partition as u64 && self.source.payload(*number) == payload);
        let Some(number) = number else {
            return self.find(Finding::Changed { partition, offset, len: payload.len() });
        };
        let index = number / self.partitions;
        if let Some(shown_index) = self.promises.shown(offset)
            && shown_index != index
        {
            self.find(Finding::Unseen { partition, offset, shown_index, found_index: Some(index) });
        }
        let seen_before = self.found.get(index as usize).copied().unwrap_or(false);
        if self.idempotent {
            if seen_before {
                self.find(Finding::Duplicate { partition, index, offset });
            } else if index != self.next_index {
                self.find(Finding::Disordered {
                    partition,
                    offset,
                    expected_index: self.next_index,
                    found_index: index,
                });
            }
            self.next_index = index + 1;
        }
        // Without idempotence a payload may be there twice; one of its places must be the acknowledged one.
        match self.promises.acked(index) {
            Some(Some(acked)) if acked != offset => {
                if self.idempotent {
                    self.find(Finding::Moved { partition, index, acked, found: offset });
                }
                return;
            }
            _ => {}
        }
        if self.found.len() <= index as usize {
            self.found.resize(index as usize + 1, false);
        }
        self.found[index as usize] = true;
    }

    /// The partition's end has been reached. Returns the number of records and what was wrong.
    pub fn finish(mut self) -> (u64, Vec<Finding>) {
        let partition = self.partition;
        for (index, offset) in self.promises.acked_all() {
            if !self.found.get(index as usize).copied().unwrap_or(false) {
                self.find(Finding::Lost { partition, index, offset });
            }
        }
        for offset in self.next_offset..self.promises.shown_end() {
            if let Some(shown_index) = self.promises.shown(offset) {
                self.find(Finding::Unseen { partition, offset, shown_index, found_index: None });
            }
        }
        (self.records, self.findings)
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}
