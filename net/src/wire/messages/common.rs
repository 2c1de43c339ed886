//! Structures that several APIs share.

use crate::wire::message::message;

message! {
    /// A partition's leader (KIP-951).
    #[derive(Copy)]
    pub struct LeaderIdAndEpoch {
        /// The broker, or -1 if unknown.
        leader_id [0+]: i32 = -1,
        /// Its epoch, or -1 if unknown.
        leader_epoch [0+]: i32 = -1,
    }
}

message! {
    /// Where a broker listens (KIP-951).
    #[derive(Copy)]
    pub struct NodeEndpoint<'a> {
        /// Its id.
        node_id [0+]: i32,
        /// Host name to connect to.
        host [0+]: &'a str,
        /// Port to connect to.
        port [0+]: i32,
        /// Its rack.
        rack [0+]: Option<&'a str>,
    }
}

message! {
    /// A topic and a partition in it, from which a listing goes on (KIP-966).
    #[derive(Copy)]
    pub struct Cursor<'a> {
        /// The topic.
        topic_name [0+]: &'a str,
        /// The partition's index in it.
        partition_index [0+]: i32,
    }
}
