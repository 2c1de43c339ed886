//! The background work on the files: making them, taking full ones into use again, asking logs to need them no more.
//!
//! Holds: one task at a time, only while a file is wanted. Never touches: writes of commits.
//!
//! A file is wanted as soon as none is ready behind the one being written. It comes from, in this order: a full file
//! that nobody needs; a new one, while there are fewer than may be; the oldest full one whose logs can be written back.
//! Logs are asked for it one after the other, from when it is full, so that it is free in time; and at once when it is not.
//! The last also while there is no space or memory for the others. An idle shard makes none.

use super::files::FileId;
use super::format::encode_file_header;
use super::replay::{self, DoneWith};
use super::writer::{CommitLog, State};
use crate::disk::BLOCK_BYTES;
use crate::disk::files::{is_shortage, mkdir_if_missing, write_full};
use crate::disk::spare::{write_zeroes, zeroes};
use corelog_reactor::{AlignedBuf, Durability, File, Monotonic, OpenHow};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// How often the end of the work is looked for at a clean stop.
const FINISH_LOOK: Duration = Duration::from_millis(1);

/// How long logs that were asked for a file have, before they, or others, are asked again. They begin the work themselves
/// when they give it back: this is for those that could not.
const ASK_PAUSE: Duration = Duration::from_millis(20);

/// Logs asked at once for a file that is wanted now: as many as are written back in that pause, and some.
const ASKED_MAX: usize = 512;

/// Logs forgotten at once that held a file: all of ten thousand would hold the core for a millisecond.
const FORGOTTEN_MAX: usize = 512;

/// What is to be done next.
enum Next {
    Renew(FileId, Rc<File>),
    Make(u64),
    Ask,
    Nothing,
}

impl CommitLog {
    /// Starts the work, unless it is under way or there is nothing that can be done now.
    pub(super) fn tend(&self, state: &mut State) {
        if state.is_tended || !self.is_work_due(state) {
            return;
        }
        let log = self.clone();
        // Without a task the next commit tries again.
        state.is_tended = self.0.reactor.spawn(async move { log.work().await }).is_ok();
    }

    /// Whether a file is wanted, and something can be done for it. Asked by every commit while none is free.
    fn is_work_due(&self, state: &State) -> bool {
        if state.is_off || state.files.has_ready() {
            return false;
        }
        let now = self.0.reactor.now();
        let may_renew = state.files.has_renewable() && state.renew_at.is_none_or(|at| at <= now);
        let may_make = state.files.len() < self.0.parts.files_max && state.make_at.is_none_or(|at| at <= now);
        may_renew || may_make || self.may_ask(state, now)
    }

    /// Whether logs are to be asked at once to give a file back: half of the last one is used, and those that were asked in
    /// good time have not.
    fn may_ask(&self, state: &State, now: Monotonic) -> bool {
        state.files.rest() < self.0.parts.file_bytes / 2 && state.ask_at.is_none_or(|at| at <= now)
    }

    async fn work(&self) {
        loop {
            let next = {
                let mut state = self.0.state.borrow_mut();
                let next = self.next_work(&mut state);
                state.is_tended = !matches!(next, Next::Nothing);
                next
            };
            let is_renewal = matches!(next, Next::Renew(..));
            let result = match next {
                Next::Renew(id, file) => self.renew(id, &file).await,
                Next::Make(number) => self.make(number).await,
                Next::Ask => {
                    self.ask_for_a_file();
                    Ok(())
                }
                Next::Nothing => return,
            };
            if let Err(error) = result {
                let mut state = self.0.state.borrow_mut();
                if is_shortage(&error) {
                    tracing::debug!(%error, "no commit-log file now");
                    let later = Some(self.0.reactor.now() + self.0.parts.no_space_retry);
                    let at = if is_renewal { &mut state.renew_at } else { &mut state.make_at };
                    *at = later;
                } else {
                    self.switch_off(&mut state, "preparing a commit-log file", &error);
                }
            }
        }
    }

    fn next_work(&self, state: &mut State) -> Next {
        if state.is_off || state.files.has_ready() {
            return Next::Nothing;
        }
        let now = self.0.reactor.now();
        if state.renew_at.is_none_or(|at| at <= now)
            && let Some((id, file)) = state.files.begin_renewal()
        {
            return Next::Renew(id, file);
        }
        if state.make_at.is_none_or(|at| at <= now) && state.files.len() < self.0.parts.files_max {
            state.next_number += 1;
            return Next::Make(state.next_number - 1);
        }
        if self.may_ask(state, now) {
            state.ask_at = Some(now + ASK_PAUSE);
            return Next::Ask;
        }
        Next::Nothing
    }

    /// Has logs of the oldest full file written back that can be: so many that there is enough to do until it asks again.
    fn ask_for_a_file(&self) {
        let mut state = self.0.state.borrow_mut();
        for id in state.files.filled() {
            // Each release of the last one begins the work again.
            if state.files.ask_many(id, ASKED_MAX) > 0 {
                return;
            }
        }
    }

    /// A write takes up `share` of a file: has as many logs written back as it takes for the oldest full file to be free
    /// by the time it is wanted. So what follows to the segments is spread evenly, and is not there all at once when no
    /// file is left; and a log that gets a few records in each file gets those of all files in one write.
    pub(super) fn keep_up(&self, state: &mut State, share: u64) {
        let now = self.0.reactor.now();
        let parts = &self.0.parts;
        let can_make = state.make_at.is_none_or(|at| at <= now);
        let more = if can_make { parts.files_max.saturating_sub(state.files.len()) } else { 0 };
        let Some(due) = state.files.due(more, parts.file_bytes) else {
            state.asks_due = 0;
            return;
        };
        // Done one file early: a write-back takes time, and so does the file's new header.
        let left = due.left.saturating_sub(parts.file_bytes).max(1);
        state.asks_due += share * due.needed_by;
        while state.asks_due >= left {
            state.asks_due -= left;
            if !state.files.ask_next(due.id) {
                return;
            }
        }
    }

    async fn renew(&self, id: FileId, file: &File) -> io::Result<()> {
        while self.0.state.borrow_mut().files.forget_holders(id, FORGOTTEN_MAX) {
            self.0.reactor.yield_now().await;
        }
        // Nothing of this or a later sequence was ever written to it.
        let generation = self.0.state.borrow().next_sequence;
        if let Err(error) = self.write_header(file, generation).await {
            if is_shortage(&error) {
                // Nothing was written: a header lies in blocks that are there.
                self.0.state.borrow_mut().files.not_renewed(id);
            }
            return Err(error);
        }
        {
            let mut state = self.0.state.borrow_mut();
            state.files.renewed(id, generation);
            // Who was asked has given it back: the next time others may be asked at once.
            state.ask_at = None;
        }
        self.count(|c| c.recycles += 1);
        Ok(())
    }

    async fn write_header(&self, file: &File, generation: u64) -> io::Result<()> {
        let mut block = self.block()?;
        let header = encode_file_header(generation);
        block.fill(0);
        if let Some(front) = block.get_mut(..header.len()) {
            front.copy_from_slice(&header);
        }
        write_full(file, block, BLOCK_BYTES as usize, 0, Durability::Dsync).await.0
    }

    fn block(&self) -> io::Result<AlignedBuf> {
        let block = self.0.reactor.pool().take(BLOCK_BYTES as usize);
        block.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))
    }

    async fn make(&self, number: u64) -> io::Result<()> {
        let (reactor, folder) = (&self.0.reactor, &self.0.folder);
        self.0.parts.reserve.may_grow()?;
        self.0.parts.presence.check(&self.0.reactor).await?;
        mkdir_if_missing(reactor, folder).await?;
        if let Some(data) = folder.parent() {
            reactor.sync_dir(data).await?;
        }
        let path = folder.join(format!("{}-{number}", self.0.parts.shard));
        match self.write_new(&path).await {
            Ok((file, generation)) => {
                let bytes = self.0.parts.file_bytes;
                self.0.state.borrow_mut().files.add(path, number, Rc::new(file), generation, bytes);
                self.count(|c| c.files += 1);
                Ok(())
            }
            Err(error) => {
                // What is there of it would only take space; if this fails as well, the next start removes it.
                replay::put_away(reactor, folder, vec![DoneWith::of(path)]).await;
                Err(error)
            }
        }
    }

    async fn write_new(&self, path: &Path) -> io::Result<(File, u64)> {
        let how = OpenHow { direct: self.0.parts.direct, ..OpenHow::write().create().truncate() };
        let file = self.0.reactor.open(path, how).await?;
        file.keep_at_hand();
        let bytes = self.0.parts.file_bytes;
        write_zeroes(&file, zeroes(&self.0.reactor, bytes)?, 0, bytes).await?;
        file.fsync().await?;
        let generation = self.0.state.borrow().next_sequence;
        self.write_header(&file, generation).await?;
        self.0.reactor.sync_dir(&self.0.folder).await?;
        // Else it is one that the next start does not find.
        self.0.parts.presence.check(&self.0.reactor).await?;
        Ok((file, generation))
    }

    /// The clean end: removes every file that no log needs. Nothing is put in any more.
    pub(crate) async fn finish(&self) {
        self.0.state.borrow_mut().is_off = true;
        // What is being made or renewed goes as well.
        while self.0.state.borrow().is_tended {
            self.0.reactor.sleep(FINISH_LOOK).await;
        }
        let files = self.0.state.borrow_mut().files.take_free();
        let files = files.into_iter().map(DoneWith::of).collect();
        replay::put_away(&self.0.reactor, &self.0.folder, files).await;
    }
}
