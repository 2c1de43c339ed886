//! What a shard has done, in numbers.
//!
//! Holds: plain counters, one set a shard, written by its thread alone. Never touches: how they are shown (the shard's
//! status line, and later the metrics page).

use std::cell::Cell;

use corelog_net::conn::Sent;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Some more.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(count));
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of one shard.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        impl Counters {
            /// Name and number of each.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.get()),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Connections that began here.
    connections_opened,
    /// Connections turned away: too many, or the socket failed at once.
    connections_refused,
    /// Connections closed because of what they sent.
    connections_bad,
    /// Connections closed because they were silent for `connections.max.idle.ms`.
    connections_idle_closed,
    /// Connections closed because a request or an answer stood still for `corelog.connection.progress.timeout.ms`.
    connections_stalled,
    /// Producers forgotten after `producer.id.expiration.ms` of silence.
    producers_expired,
    /// Failed accepts.
    accepts_failed,
    /// Requests read.
    requests,
    /// Replies sent.
    replies,
    /// Bytes sent.
    bytes_sent,
    /// Of those, bytes that went from a file to the socket without a copy.
    bytes_spliced,
    /// Times a frame waited for buffer memory.
    memory_waits,
    /// Times a message to another shard found its mailbox full.
    mailbox_full,
    /// Produces refused because too many waited for one partition.
    backlog_full,
    /// Tasks that found the task table full.
    tasks_full,
}

impl Counters {
    /// A connection has sent something.
    pub fn sent(&self, sent: Sent) {
        self.replies.add(sent.replies);
        self.bytes_sent.add(sent.bytes);
        self.bytes_spliced.add(sent.file_bytes);
    }
}
