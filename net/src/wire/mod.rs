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
//!
//! A broker reads a frame (without its size) and answers:
//!
//! ```
//! use bytes::BytesMut;
//! use corelog_net::wire::messages::{MetadataRequest, MetadataResponse};
//! use corelog_net::wire::{Api, ApiKey, Request, RequestBody, RequestHeader, Response};
//!
//! # let sent = MetadataRequest::default().encode_frame(BytesMut::new(), 12, 7, Some("me")).unwrap().head;
//! # let frame = &sent[4..];
//! let (header, body) = RequestHeader::decode(frame)?;
//! let Api::Known(key) = header.api else { unreachable!("close the connection, or answer ApiVersions") };
//! match RequestBody::decode(key, header.api_version, body)? {
//!     RequestBody::Metadata(request) => {
//!         assert!(request.allow_auto_topic_creation);
//!         let response = MetadataResponse { controller_id: 1, ..MetadataResponse::default() };
//!         let encoded = response.encode_frame(BytesMut::new(), header.api_version, header.correlation_id)?;
//!         assert_eq!(encoded.frame_bytes(), encoded.head.len());
//!     }
//!     _ => unreachable!(),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Record batches can stay outside the frame, and the response needn't be built first:
//!
//! ```
//! use bytes::BytesMut;
//! use corelog_net::wire::messages::{FetchPartitionData, FetchResponseWriter};
//! use corelog_net::wire::{ApiKey, ErrorCode, Piece, Records, ResponseHeader, Uuid};
//!
//! let mut e = ResponseHeader::begin(BytesMut::new(), ApiKey::Fetch, 13, 7);
//! let mut w = FetchResponseWriter::begin(&mut e, 0, ErrorCode::None, 0, 1);
//! w.topic("ignored from version 13 on", Uuid([1; 16]), 1);
//! w.partition(&FetchPartitionData {
//!     high_watermark: 10,
//!     records: Records::External { len: 4096 },
//!     ..FetchPartitionData::default()
//! });
//! w.end(&[]);
//! let encoded = e.finish()?;
//! for piece in encoded.pieces() {
//!     match piece {
//!         Piece::Head(range) => assert!(!encoded.head[range].is_empty()),
//!         Piece::Payload { hole, len } => assert_eq!((hole, len), (0, 4096)),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
