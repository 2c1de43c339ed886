//! InitProducerId (22): an id and epoch for an idempotent or transactional producer.

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for a producer id.
    #[derive(Copy)]
    pub struct InitProducerIdRequest<'a> {
        /// The transaction's id, if the producer is transactional.
        transactional_id [0+]: Option<&'a str> = Some(""),
        /// Milliseconds after which an idle transaction is aborted.
        transaction_timeout_ms [0+]: i32,
        /// The id the producer has, or -1 (KIP-360).
        producer_id [3+]: i64 = -1,
        /// The epoch the producer has, or -1.
        producer_epoch [3+]: i16 = -1,
    }
}

message! {
    /// A producer id.
    #[derive(Copy)]
    pub struct InitProducerIdResponse {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// Whether there is an id.
        error_code [0+]: ErrorCode,
        /// The id, or -1.
        producer_id [0+]: i64 = -1,
        /// Its epoch.
        producer_epoch [0+]: i16,
    }
}
