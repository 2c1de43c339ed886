//! The end of a log that shall not come back: its deletion, and folders that nobody knows.
//!
//! Holds: the order of the steps, so that a crash between any two leaves neither a log that seems lost nor one that comes back.
//! Never touches: who decided it.
//!
//! Deleting, each step on stable storage before the next:
//!
//! 1. (the controller's record that the topic is gone)
//! 2. the mark in the shard's checkpoint: from here on a start completes the deletion;
//! 3. the folder has another name;
//! 4. the files go, in the background. The mark goes too, unless an older checkpoint still has an entry.
//!
//! After a crash before 2 there is a whole log of a topic that nobody knows: it is set aside, never removed.

use super::Log;
use super::config::LogConfig;
use super::env::StorageEnv;
use super::error::ChangeError;
use super::names::LogName;
use super::state::Status;
use crate::disk::checkpoint::{CheckpointEntry, LogKey};
use crate::disk::files::{is_no_space, read_file};
use crate::disk::meta::{PARTITION_METADATA, PartitionMetadata};
use crate::disk::remove::{DELETE_SUFFIX, STRAY_SUFFIX, aside};
use crate::ids::{Offset, TopicId};
use std::io;
use std::path::PathBuf;

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ChangeError {
    move |error| ChangeError::Io { what, error }
}

impl Log {
    /// Marks the log as deleted in the shard's checkpoint, which is not on disk yet: so that one flush does for the logs of
    /// a whole topic.
    pub fn mark_deleted(&self) {
        if !self.0.state.borrow().checkpoint.is_deleted {
            self.update_checkpoint(|entry| entry.is_deleted = true);
        }
    }

    /// Deletes the log: the mark is on disk and its folder is renamed, durably, before this returns; the files are removed
    /// in the background.
    ///
    /// # Errors
    /// When the disk fails; the log is out of service all the same, and a later start completes the deletion.
    pub async fn delete(&self) -> Result<(), ChangeError> {
        let inner = &*self.0;
        inner.state.borrow_mut().status = Status::Closed;
        inner.changed.fire();
        self.mark_deleted();
        let _changing = self.stop_others().await;
        inner.state.borrow_mut().ticket = None;
        inner.env.cold().forget(inner.number, None);
        inner.env.rename_deleted(&inner.name).await?;
        let marks = std::mem::take(&mut inner.state.borrow_mut().marks);
        for mark in marks {
            inner.env.commit_log().release(mark.file);
        }
        Ok(())
    }
}

impl StorageEnv {
    /// Marks a log as deleted that could not be opened, or is not there. Not on disk yet.
    pub fn mark_deleted(&self, name: &LogName) {
        let key = name.key();
        let entry = self.checkpoint_of(&key);
        let mut entry = entry.unwrap_or_else(|| CheckpointEntry::starting_at(name.topic.clone(), Offset::ZERO));
        entry.version += 1;
        entry.is_deleted = true;
        self.set_checkpoint(key, entry);
    }

    /// Deletes a log that could not be opened: as [`Log::delete`].
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn delete_unopened(&self, name: &LogName) -> Result<(), ChangeError> {
        self.mark_deleted(name);
        self.rename_deleted(name).await
    }

    async fn rename_deleted(&self, name: &LogName) -> Result<(), ChangeError> {
        // Also on a full disk: it is how a full disk becomes less full.
        let flushed = self.spend(is_no_space, async || self.flush_checkpoint().await).await;
        flushed.map_err(failed("write the checkpoint"))?;
        let found = self.topic_of_folder(&name.to_string()).await.map_err(failed("look into the log's folder"))?;
        if found == Some(name.topic_id) {
            let to = aside(self.reactor(), self.data(), &name.to_string(), DELETE_SUFFIX);
            let from = self.data().join(name.to_string());
            let renamed = self.spend(is_no_space, async || self.reactor().rename(&from, &to).await).await;
            renamed.map_err(failed("rename the log's folder"))?;
            self.sync_data().await.map_err(failed("sync the data folder"))?;
            self.remove_leftovers(vec![to]);
        }
        self.drop_checkpoint(&name.key());
        self.settle(&name.key());
        Ok(())
    }

    /// Whose log a folder of the data folder holds; `None` if it holds none, or what says so can't be read.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn topic_of_folder(&self, folder: &str) -> io::Result<Option<TopicId>> {
        match read_file(self.reactor(), &self.data().join(folder).join(PARTITION_METADATA)).await {
            Ok(bytes) => Ok(PartitionMetadata::decode(&bytes).ok().map(|found| found.topic_id)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renames a folder whose topic nobody knows, durably: nothing in it is lost, and its name is free. It gets what the
    /// commit log has of it first. What was recorded as deleted is removed in the background; anything else stays until
    /// somebody removes it. Returns where it is now.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn set_stray_aside(&self, folder: &str, key: LogKey) -> io::Result<PathBuf> {
        let is_deleted = self.checkpoint_of(&key).is_some_and(|entry| entry.is_deleted);
        if !is_deleted {
            self.complete_stray(folder, key).await;
        }
        let to = aside(self.reactor(), self.data(), folder, if is_deleted { DELETE_SUFFIX } else { STRAY_SUFFIX });
        self.reactor().rename(&self.data().join(folder), &to).await?;
        self.sync_data().await?;
        if is_deleted {
            self.settle(&key);
            self.remove_leftovers(vec![to.clone()]);
        }
        Ok(to)
    }

    /// Opens a log only to have it recovered, so that the commit log need not keep its part. If that can't be, it keeps it,
    /// for as long as the folder is there.
    async fn complete_stray(&self, folder: &str, key: LogKey) {
        if self.replay().entries(&key).is_empty() {
            return;
        }
        let Some((topic, _)) = folder.rsplit_once('-') else { return };
        let name = LogName { topic: topic.to_owned(), partition: key.partition, topic_id: key.topic_id };
        let failed = match Log::open(self, name, LogConfig::default()).await {
            Ok(log) => match log.close().await {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(folder, %failed, "a folder of an unknown topic lacks what the commit log has of it, which is kept");
    }
}
