//! A shard's storage and its commit log.
//!
//! Holds: the choice of a commit's way as it was told to be made, the end of what the last runs left, the clean end.
//! Never touches: the commit log's own workings (`commit_log`).

use super::config::CommitLogUse;
use super::env::StorageEnv;
use crate::commit_log::COMMIT_LOG_FOLDER;
use crate::commit_log::replay;
use crate::disk::checkpoint::LogKey;

impl StorageEnv {
    /// Whether a commit of so many bytes shall go through the commit log.
    pub(crate) fn prefers_commit_log(&self, bytes: usize) -> bool {
        match self.options().commit_log {
            CommitLogUse::Auto => self.commit_log().choice(|choice| choice.prefers(bytes)),
            CommitLogUse::Always => true,
            CommitLogUse::Never => false,
        }
    }

    /// What the last runs left of a log is in its segments now, or the log is gone.
    pub(crate) fn settle(&self, key: &LogKey) {
        let files = self.replay().settle(key);
        if files.is_empty() {
            return;
        }
        let (reactor, folder) = (self.reactor().clone(), self.data().join(COMMIT_LOG_FOLDER));
        let task = async move { replay::remove(&reactor, &folder, files).await };
        if self.reactor().spawn(task).is_err() {
            tracing::debug!("no task for removing commit logs: the next start does it");
        }
    }

    /// The clean end, after all logs are closed: the commit log's files go, so that the next start reads none.
    pub async fn finish(&self) {
        self.commit_log().finish().await;
    }
}
