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
        let task = async move { replay::put_away(&reactor, &folder, files).await };
        if self.reactor().spawn(task).is_err() {
            tracing::debug!("no task for removing commit logs: the next start does it");
        }
    }

    /// Entries of logs that nobody knows count no more. To be called once, with who knows all logs there are, when those
    /// are open or known to be offline.
    pub fn settle_unknown(&self, is_known: impl Fn(&LogKey) -> bool) {
        for key in self.replay().logs().iter().filter(|key| !is_known(key)) {
            tracing::info!(topic_id = %key.topic_id, partition = %key.partition, "the commit log's entries of a log that is gone are dropped");
            self.settle(key);
        }
    }

    /// Logs that have entries left from earlier runs that are not in their segments.
    #[must_use]
    pub fn unsettled(&self) -> Vec<LogKey> {
        self.replay().logs()
    }

    /// The clean end, after all logs are closed: the commit log's files go, so that the next start reads none.
    pub async fn finish(&self) {
        self.commit_log().finish().await;
    }
}
