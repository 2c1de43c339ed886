//! The Kafka wire protocol: requests and responses as Kafka 4.2 lays them out, frame and headers included.
//!
//! Holds: the declarative codec, one file per API under [`messages`], the error codes, the API table, the frame prefix.
//! Never touches: sockets, clocks, the contents of record batches, what a request means.
//!
//! Three rules decide the shape of everything here:
//!
//! * **A length from the wire never sizes memory.** Every claimed count is first held against the bytes that are really
//!   there, then charged to the request's heap budget ([`Decoder`]); only then does anything get allocated.
//! * **Decoding borrows.** Strings, byte fields and record batches point into the frame. Produce and Fetch requests decode
//!   without any allocation ([`LazyArray`]).
//! * **A message is written down once**, as fields with Kafka's own version notation (see [`message`]); struct, default,
//!   decoder, encoder and a [`Schema`] that the tests walk all come from that one declaration.

mod api_key;
mod decoder;
mod encoder;
mod error_code;
pub mod frame;
mod header;
mod lazy;
pub mod message;
pub mod messages;
mod records;
mod schema;
mod uuid;
mod value;

pub use api_key::{ApiKey, VersionRange};
pub use decoder::{DecodeError, DecodeErrorKind, Decoder, HEAP_BYTES_MAX_DEFAULT, range_within};
pub use encoder::{EncodeError, EncodeErrorKind, Encoded, Encoder, Hole, Piece};
pub use error_code::ErrorCode;
pub use header::{Api, RequestHeader, ResponseHeader};
pub use lazy::{LazyArray, LazyIter};
pub use messages::{Request, RequestBody, Response, ResponseBody};
pub use records::Records;
pub use schema::{FieldSchema, FieldType, Schema};
pub use uuid::{ParseUuidError, Uuid};
pub use value::{Nullable, Wire};
