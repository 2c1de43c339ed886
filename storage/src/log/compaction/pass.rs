//! The two passes of a round over the log's files.
//!
//! Holds: which segments are read, in which order, what is put into the map and what into the cleaned segments. Never
//! touches: the log's files and state (`swap` does).
//!
//! The index of aborted transactions has no checksum, and no record goes on its word. So a round that meets one batch of a
//! transaction begins anew, with a look at all markers first; and it ends before the first transaction whose marker lies
//! behind it, or before there are more of them than it keeps in memory.

use super::old_index::OldIndex;
use super::source::Source;
use super::swap::swap;
use super::target::{Target, discard};
use super::{Compacted, CompactionError, CompactionRules, Pace, facts};
use crate::batch::{BatchView, DecompressScratch, ScanState};
use crate::compact::{
    AbortedTransaction, BatchVerdict, Candidate, Control, Filter, HashSecret, KeyMap, KeyScan, LastWrites, Remains,
    RewriteError, Round, SegmentFacts, SurvivorRewrite, Transactions, groups, write_header,
};
use crate::ids::{Offset, ProducerId, Timestamp};
use crate::log::Log;
use crate::log::state::Status;
use std::collections::BTreeMap;

/// Why a pass ended early.
enum Stop {
    Error(CompactionError),
    /// It met a batch of a transaction, and knows nothing of transactions.
    MetTransactions,
}

impl From<CompactionError> for Stop {
    fn from(error: CompactionError) -> Self {
        Self::Error(error)
    }
}

/// What a round holds on to while it goes on.
struct Work<'a> {
    log: &'a Log,
    rules: &'a CompactionRules,
    pace: &'a Pace,
    /// Truncations of the log, at the start.
    cuts: u64,
    holes_below: Offset,
    /// Bytes worked on since others had their turn.
    unpaid: u64,
    /// The aborted transactions, if they were looked for.
    aborted: Option<Vec<AbortedTransaction>>,
}

pub(super) async fn round(
    log: &Log,
    candidate: &Candidate,
    rules: &CompactionRules,
    pace: &Pace,
    secret: HashSecret,
) -> Result<Compacted, CompactionError> {
    let (segments, cuts, holes_below) = {
        let state = log.0.state.borrow();
        let interval = u64::from(log.0.config.borrow().index_interval_bytes.max(1));
        (facts(&state, interval), state.cuts, state.checkpoint.compacted_to)
    };
    let mut work = Work { log, rules, pace, cuts, holes_below, unpaid: 0, aborted: None };
    work.check()?;
    let result = work.go(&segments, candidate, secret).await;
    match result {
        Err(CompactionError::Io { .. } | CompactionError::Damaged { .. } | CompactionError::Records { .. })
            if work.check().is_err() || !work.are_there(&segments) =>
        {
            // Whatever was read of them: they were cut off or deleted meanwhile.
            Err(CompactionError::Interrupted)
        }
        other => other,
    }
}

impl Work<'_> {
    async fn go(
        &mut self,
        segments: &[SegmentFacts],
        candidate: &Candidate,
        secret: HashSecret,
    ) -> Result<Compacted, CompactionError> {
        let before =
            |end: Offset| segments.iter().take_while(|segment| segment.base < end).copied().collect::<Vec<_>>();
        match self.run(&before(candidate.end), candidate.first_dirty, candidate.end, secret).await {
            Ok(done) => Ok(done),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::MetTransactions) => {
                let end = self.look_for_transactions(&before(candidate.end), candidate).await?;
                match self.run(&before(end), candidate.first_dirty, end, secret).await {
                    Ok(done) => Ok(done),
                    Err(Stop::Error(error)) => Err(error),
                    Err(Stop::MetTransactions) => Err(CompactionError::Interrupted),
                }
            }
        }
    }

    /// No segment was deleted since. (An exchange of this round's own has put one in the place of some.)
    fn are_there(&self, segments: &[SegmentFacts]) -> bool {
        let state = self.log.0.state.borrow();
        let first = state.segments().next().map(|segment| segment.base);
        segments.first().map(|segment| segment.base) == first
    }

    /// The log is still what the round began with.
    fn check(&self) -> Result<(), CompactionError> {
        let state = self.log.0.state.borrow();
        if state.status == Status::Open && !state.changing && state.cuts == self.cuts {
            Ok(())
        } else {
            Err(CompactionError::Interrupted)
        }
    }

    /// Takes note of so much work; others get their turn when it comes to a slice.
    async fn pay(&mut self, bytes: usize) -> Result<(), CompactionError> {
        self.unpaid += bytes as u64;
        if self.unpaid < self.rules.slice_bytes as u64 {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.unpaid);
        let env = &self.log.0.env;
        self.pace.spend(env.reactor(), env.foreground(), bytes).await;
        self.check()
    }

    async fn run(
        &mut self,
        segments: &[SegmentFacts],
        first_dirty: Offset,
        end: Offset,
        secret: HashSecret,
    ) -> Result<Compacted, Stop> {
        let records = u64::try_from(end - first_dirty).unwrap_or(0);
        let mut map = KeyMap::new(self.rules.map_bytes_max, self.rules.load_factor, records, secret);
        self.keys(segments, first_dirty, end, &mut map).await?;
        let covered = map.latest().next().min(end);
        let mut done = Compacted { clean_to: first_dirty.max(covered), ..Compacted::default() };
        let to_clean = segments.partition_point(|segment| segment.base < covered);
        let to_clean = segments.get(..to_clean).unwrap_or_default();
        let all_end = segments.get(to_clean.len()).map_or(end, |next| next.base);
        let mut transactions = Transactions::new(self.aborted.iter().flatten().copied());
        let now = Timestamp(self.log.0.env.reactor().unix_ms().0);
        for group in groups(to_clean, all_end, self.rules.limits) {
            let group_end = to_clean.get(group.end).map_or(all_end, |next| next.base);
            let group = to_clean.get(group).unwrap_or_default();
            let producers = LastWrites::of(&self.log.0.state.borrow().producers);
            let round = Round {
                map: &map,
                producers: &producers,
                end: group_end,
                now,
                delete_retention_ms: self.rules.delete_retention_ms,
                decompressed_bytes_max: self.rules.decompressed_bytes_max,
            };
            let (replaced, bytes) = self.clean(group, group_end, &round, &mut transactions).await?;
            done.segments.0 += group.len();
            done.segments.1 += replaced;
            done.bytes.0 += group.iter().map(|segment| segment.bytes).sum::<u64>();
            done.bytes.1 += bytes;
        }
        self.check()?;
        self.log.update_checkpoint(|entry| entry.clean_to = Some(done.clean_to));
        Ok(done)
    }

    /// Pass 1: the keys from `first_dirty` on.
    async fn keys(
        &mut self,
        segments: &[SegmentFacts],
        first_dirty: Offset,
        end: Offset,
        map: &mut KeyMap,
    ) -> Result<(), Stop> {
        let first = segments.partition_point(|segment| segment.base <= first_dirty).saturating_sub(1);
        let dirty = segments.get(first..).unwrap_or_default();
        let start = dirty.first().map_or(first_dirty, |segment| segment.base);
        let aborted = self.aborted.iter().flatten().filter(|t| t.last_offset >= start).copied();
        let mut transactions = Transactions::new(aborted);
        let mut scratch = DecompressScratch::new();
        for (at, segment) in dirty.iter().enumerate() {
            let source = Source::open(self.log, segment.base, segment.bytes).await?;
            let mut batches = source.batches(self.log, self.holes_below);
            while let Some(batch) = batches.next().await? {
                self.pay(batch.bytes.len()).await?;
                let last_offset = batch.header.last_offset().unwrap_or(batch.header.base_offset);
                let control = self.control(&batch, &mut scratch)?;
                let is_aborted = match control {
                    Some(control) => {
                        transactions.on_control(&batch.header, control);
                        true
                    }
                    None => transactions.on_data(&batch.header),
                };
                if last_offset < first_dirty {
                    continue;
                }
                if is_aborted {
                    map.reach(last_offset);
                    continue;
                }
                let unreadable = |error| records(&batch, RewriteError::Scan(error));
                let mut scan = KeyScan::new(&batch, first_dirty, self.rules.decompressed_bytes_max, &mut scratch)
                    .map_err(unreadable)?;
                loop {
                    match scan.step(map, self.rules.slice_bytes).map_err(unreadable)? {
                        ScanState::Pending => self.pay(self.rules.slice_bytes).await?,
                        ScanState::Stopped => return Ok(()),
                        ScanState::Done => break,
                    }
                }
            }
            let next = dirty.get(at + 1).map_or(end, |next| next.base);
            map.reach(Offset(next.0.saturating_sub(1)));
        }
        Ok(())
    }

    /// Pass 2 over one group: its cleaned segment, put into their place. How many segments there are instead, and their
    /// bytes.
    async fn clean(
        &mut self,
        group: &[SegmentFacts],
        group_end: Offset,
        round: &Round<'_>,
        transactions: &mut Transactions,
    ) -> Result<(usize, u64), Stop> {
        let Some(base) = group.first().map(|segment| segment.base) else {
            return Ok((0, 0));
        };
        let mut target = Target::create(self.log, base).await?;
        let is_changed = match self.fill(&mut target, group, round, transactions).await {
            Ok(is_changed) => is_changed,
            Err(stop) => {
                drop(target);
                discard(self.log, base).await;
                return Err(stop);
            }
        };
        if !is_changed && group.len() == 1 {
            drop(target);
            discard(self.log, base).await;
            return Ok((1, group.iter().map(|segment| segment.bytes).sum()));
        }
        let swapped = match target.finish().await {
            Ok(cleaned) => {
                let bytes = cleaned.bytes;
                swap(self.log, group, group_end, cleaned, self.cuts).await.map(|()| bytes)
            }
            Err(error) => Err(error),
        };
        match swapped {
            Ok(bytes) => Ok((1, bytes)),
            Err(error @ CompactionError::Fenced(_)) => Err(error.into()),
            Err(error) => {
                discard(self.log, base).await;
                Err(error.into())
            }
        }
    }

    /// Whether the target differs from the segments.
    async fn fill(
        &mut self,
        target: &mut Target<'_>,
        group: &[SegmentFacts],
        round: &Round<'_>,
        transactions: &mut Transactions,
    ) -> Result<bool, Stop> {
        let mut is_changed = false;
        let mut scratch = DecompressScratch::new();
        for segment in group {
            let source = Source::open(self.log, segment.base, segment.bytes).await?;
            let mut old_index = OldIndex::open(self.log, segment.base).await?;
            let mut batches = source.batches(self.log, self.holes_below);
            while let Some(batch) = batches.next().await? {
                self.pay(batch.bytes.len()).await?;
                let control = self.control(&batch, &mut scratch)?;
                let verdict = BatchVerdict::on(&batch.header, control, transactions, round);
                if control == Some(Control::Abort) && !verdict.is_spent_marker() {
                    let found = transactions.take_kept().pop();
                    target.aborted.extend(old_index.entry(batch.header.base_offset, found).await?);
                }
                let remains = self.judge(&batch, verdict, round, &mut scratch).await?;
                is_changed |= remains != Remains::All;
                self.put(&batch, remains, target, &mut scratch).await?;
                target.note();
                let written = target.flush().await?;
                self.pay(usize::try_from(written).unwrap_or(usize::MAX)).await?;
            }
        }
        Ok(is_changed)
    }

    async fn judge(
        &mut self,
        batch: &BatchView<'_>,
        verdict: BatchVerdict,
        round: &Round<'_>,
        scratch: &mut DecompressScratch,
    ) -> Result<Remains, CompactionError> {
        let unreadable = |error| records(batch, RewriteError::Scan(error));
        let mut filter = Filter::new(batch, verdict, self.rules.decompressed_bytes_max, scratch).map_err(unreadable)?;
        loop {
            if let Some(remains) = filter.step(round, self.rules.slice_bytes).map_err(unreadable)? {
                return Ok(remains);
            }
            self.pay(self.rules.slice_bytes).await?;
        }
    }

    async fn put(
        &mut self,
        batch: &BatchView<'_>,
        remains: Remains,
        target: &mut Target<'_>,
        scratch: &mut DecompressScratch,
    ) -> Result<(), CompactionError> {
        let unwritable = |error| records(batch, error);
        match remains {
            Remains::Nothing => {}
            Remains::All => target.out.extend_from_slice(batch.bytes),
            Remains::Header(header) => {
                write_header(header, &mut target.out).map_err(|error| unwritable(RewriteError::Build(error)))?;
            }
            Remains::Some(survivors) => {
                let bytes_max = self.rules.decompressed_bytes_max;
                let mut rewrite =
                    SurvivorRewrite::new(batch, &survivors, bytes_max, scratch, &mut target.out).map_err(unwritable)?;
                while !rewrite.step(self.rules.slice_bytes, &mut target.out).map_err(unwritable)? {
                    self.pay(self.rules.slice_bytes).await?;
                }
            }
        }
        Ok(())
    }

    /// What a control batch says; `None` for data.
    fn control(&self, batch: &BatchView<'_>, scratch: &mut DecompressScratch) -> Result<Option<Control>, Stop> {
        let attributes = batch.header.attributes;
        if self.aborted.is_none() && (attributes.is_transactional() || attributes.is_control()) {
            return Err(Stop::MetTransactions);
        }
        if !attributes.is_control() {
            return Ok(None);
        }
        let control = Control::read(batch, scratch);
        Ok(Some(control.map_err(|error| records(batch, RewriteError::Scan(error)))?))
    }

    /// Finds the aborted transactions of these segments. The new end of the round: before it, every transaction is
    /// decided.
    async fn look_for_transactions(
        &mut self,
        segments: &[SegmentFacts],
        candidate: &Candidate,
    ) -> Result<Offset, CompactionError> {
        let max = self.rules.transactions_max;
        // The segment in which there were too many.
        let mut too_many = None;
        let mut aborted = Vec::new();
        // Since where, and whether there is any record of it.
        let mut open: BTreeMap<ProducerId, (Offset, bool)> = BTreeMap::new();
        let mut scratch = DecompressScratch::new();
        'segments: for segment in segments {
            let source = Source::open(self.log, segment.base, segment.bytes).await?;
            let mut batches = source.batches(self.log, self.holes_below);
            while let Some(batch) = batches.next().await? {
                self.pay(batch.bytes.len()).await?;
                if aborted.len() + open.len() > max {
                    too_many = Some(segment.base);
                    break 'segments;
                }
                let header = batch.header;
                if header.attributes.is_control() {
                    let control = Control::read(&batch, &mut scratch)
                        .map_err(|error| records(&batch, RewriteError::Scan(error)))?;
                    let began = match control {
                        Control::Abort | Control::Commit => open.remove(&header.producer_id),
                        Control::Empty | Control::Other => None,
                    };
                    // Of many a producer the last batch is a header that an earlier round has left of an aborted
                    // transaction: there is nothing of it to take out.
                    if let (Control::Abort, Some((first_offset, true))) = (control, began) {
                        let (producer_id, last_offset) = (header.producer_id, header.base_offset);
                        aborted.push(AbortedTransaction { producer_id, first_offset, last_offset });
                    }
                } else if header.attributes.is_transactional() {
                    let (_, has_records) = open.entry(header.producer_id).or_insert((header.base_offset, false));
                    *has_records |= header.record_count > 0;
                }
            }
        }
        self.aborted = Some(aborted);
        let undecided = open.values().map(|(first, _)| *first).min();
        let last = undecided.and_then(|first| segments.iter().rev().find(|segment| segment.base <= first));
        let ends = [Some(candidate.end), too_many, last.map(|segment| segment.base)];
        let end = ends.into_iter().flatten().min().unwrap_or(candidate.end);
        match too_many {
            // No later round would come further.
            Some(segment) if end <= candidate.first_dirty => Err(CompactionError::TooManyTransactions { segment, max }),
            Some(_) | None => Ok(end),
        }
    }
}

fn records(batch: &BatchView<'_>, error: RewriteError) -> CompactionError {
    CompactionError::Records { base_offset: batch.header.base_offset, error }
}
