//! DeleteTopics (20).

use crate::wire::message::message;
use crate::wire::{ErrorCode, Uuid};

message! {
    /// Asks to delete topics.
    pub struct DeleteTopicsRequest<'a> {
        /// The topics, by name or by id (KIP-516).
        topics [6+]: Vec<DeleteTopicState<'a>>,
        /// The topics, by name.
        topic_names [0-5]: Vec<&'a str>,
        /// Milliseconds to wait for them.
        timeout_ms [0+]: i32,
    }
}

message! {
    /// A topic to delete.
    #[derive(Copy)]
    pub struct DeleteTopicState<'a> {
        /// Its name, or null if named by id.
        name [6+]: Option<&'a str>,
        /// Its id, or zero if named by name.
        topic_id [6+]: Uuid,
    }
}

message! {
    /// What became of the topics.
    pub struct DeleteTopicsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [1+]: i32,
        /// The topics.
        responses [0+]: Vec<DeletableTopicResult<'a>>,
    }
}

message! {
    /// A topic deleted, or not.
    #[derive(Copy)]
    pub struct DeletableTopicResult<'a> {
        /// Its name; null for an id that names no topic, or one the client may not see.
        name [0+] null [6+]: Option<&'a str> = Some(""),
        /// Its id.
        topic_id [6+]: Uuid,
        /// Whether it was deleted.
        error_code [0+]: ErrorCode,
        /// Why not, in words.
        error_message [5+]: Option<&'a str>,
    }
}
