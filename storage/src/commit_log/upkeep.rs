//! The background work on the files: making them, taking full ones into use again, asking logs to need them no more.
//!
//! Holds: one task at a time, only while a file is wanted. Never touches: writes of commits.
//!
//! A file is wanted as soon as none is ready behind the one being written. It comes from, in this order: a full file
//! that nobody needs; a new one, while there are fewer than may be; the oldest full one whose logs can be written back.
//! The last also while there is no space or memory for the others. An idle shard makes none.

use super::files::{FileId, Holder};
use super::format::encode_file_header;
use super::replay::{self, DoneWith};
use super::writer::{CommitLog, State};
use crate::disk::BLOCK_BYTES;
use crate::disk::files::{is_shortage, mkdir_if_missing, write_full};
use crate::disk::spare::{write_zeroes, zeroes};
use corelog_reactor::{AlignedBuf, Durability, File, OpenHow};
use std::io;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How often the end of the work is looked for at a clean stop.
const FINISH_LOOK: Duration = Duration::from_millis(1);

/// How long logs that were asked for a file have, before they, or others, are asked again. They begin the work themselves
/// when they give it back: this is for those that could not.
const ASK_PAUSE: Duration = Duration::from_millis(20);

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
        may_renew || may_make || state.ask_at.is_none_or(|at| at <= now)
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
        if state.ask_at.is_none_or(|at| at <= now) {
            state.ask_at = Some(now + ASK_PAUSE);
            return Next::Ask;
        }
        Next::Nothing
    }

    /// Has the logs of the oldest full file written back that can be.
    fn ask_for_a_file(&self) {
        let filled = self.0.state.borrow().files.holders_of_filled();
        let ask = |holders: &Vec<Weak<dyn Holder>>| {
            let asked = holders.iter().filter_map(Weak::upgrade).filter(|holder| holder.ask_write_back()).count();
            asked > 0
        };
        // Each release of the last one begins the work again.
        let _ = filled.iter().find(|holders| ask(holders));
    }

    async fn renew(&self, id: FileId, file: &File) -> io::Result<()> {
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
