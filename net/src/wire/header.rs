//! Request and response headers.
//!
//! Holds: what stands between a frame's size and its body, in all versions. Never touches: bodies.

use bytes::BytesMut;

use super::value::{Nullable, Wire};
use super::{ApiKey, DecodeError, DecodeErrorKind, Decoder, Encoder};

/// What a request header asks for, as far as this codec can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// A request that can be decoded.
    Known(ApiKey),
    /// A known API in a version without a layout here. ApiVersions is answered with [`super::ErrorCode::UnsupportedVersion`]
    /// in the shape of version 0 (KIP-511); anything else closes the connection.
    UnsupportedVersion(ApiKey),
    /// An API that isn't in the table.
    Unknown,
}

/// The header of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// The key as it came, known or not.
    pub api_key: i16,
    /// The version as it came, supported or not.
    pub api_version: i16,
    /// Chosen by the client; comes back in the response.
    pub correlation_id: i32,
    /// The client's name for itself. Unknown for an unknown API whose header has an unknown layout.
    pub client_id: Option<&'a str>,
    /// What is asked for.
    pub api: Api,
}

impl<'a> RequestHeader<'a> {
    /// Reads the header of a frame (without its size prefix) and returns the body behind it.
    ///
    /// An API or version that isn't known is no error here: key, version and correlation id are read all the same, so that
    /// the caller can say what was asked for; the body is empty then.
    ///
    /// # Errors
    /// A frame shorter than the header it starts, or a client id that isn't UTF-8.
    pub fn decode(frame: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut d = Decoder::new(frame, 0, false);
        d.enter("RequestHeader.api_key");
        let api_key = i16::decode(&mut d)?;
        d.enter("RequestHeader.api_version");
        let api_version = i16::decode(&mut d)?;
        d.enter("RequestHeader.correlation_id");
        let correlation_id = i32::decode(&mut d)?;
        let api = match ApiKey::try_from(api_key) {
            Ok(key) if key.supports(api_version) => Api::Known(key),
            Ok(key) => Api::UnsupportedVersion(key),
            Err(_) => Api::Unknown,
        };
        d.enter("RequestHeader.client_id");
        // The client id keeps its old layout in every header version (KIP-482), so that it can be read before anything
        // else is known.
        let client_id = <&str>::decode_nullable(&mut d);
        match api {
            Api::Known(key) => {
                let client_id = client_id?;
                if key.request_header_version(api_version) >= 2 {
                    d.enter("RequestHeader.tagged_fields");
                    skip_tagged_fields(&mut d)?;
                }
                Ok((Self { api_key, api_version, correlation_id, client_id, api }, d.rest()))
            }
            Api::UnsupportedVersion(_) | Api::Unknown => {
                let client_id = client_id.unwrap_or(None);
                Ok((Self { api_key, api_version, correlation_id, client_id, api }, &[]))
            }
        }
    }

    /// Starts a request frame of a client in `buf`: size prefix and header; the body is encoded next.
    pub fn begin(
        buf: BytesMut,
        key: ApiKey,
        api_version: i16,
        correlation_id: i32,
        client_id: Option<&str>,
    ) -> Encoder {
        let mut e = Encoder::new(buf, api_version, false);
        e.enter("RequestHeader");
        key.key().encode(&mut e);
        api_version.encode(&mut e);
        correlation_id.encode(&mut e);
        client_id.encode(&mut e);
        e.set_flexible(key.is_flexible(api_version));
        e.no_tagged_fields();
        e
    }
}

/// The header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The request's correlation id.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Starts a response frame in `buf`, which must be empty: size prefix and header; the body is encoded next.
    pub fn begin(buf: BytesMut, key: ApiKey, api_version: i16, correlation_id: i32) -> Encoder {
        let mut e = Encoder::new(buf, api_version, key.is_flexible(api_version));
        e.enter("ResponseHeader");
        correlation_id.encode(&mut e);
        if key.response_header_version(api_version) >= 1 {
            e.uvarint(0);
        }
        e
    }

    /// Reads the header of a response frame (without its size prefix) to a request of this API and version, and returns
    /// the body behind it.
    ///
    /// # Errors
    /// A frame shorter than the header.
    pub fn decode(frame: &[u8], key: ApiKey, api_version: i16) -> Result<(Self, &[u8]), DecodeError> {
        let mut d = Decoder::new(frame, api_version, false);
        d.enter("ResponseHeader.correlation_id");
        let correlation_id = i32::decode(&mut d)?;
        if key.response_header_version(api_version) >= 1 {
            skip_tagged_fields(&mut d)?;
        }
        Ok((Self { correlation_id }, d.rest()))
    }
}

fn skip_tagged_fields(d: &mut Decoder<'_>) -> Result<(), DecodeError> {
    let mut tagged = Decoder::new(d.rest(), d.version(), true);
    tagged.enter("header.tagged_fields");
    tagged.tagged_fields(|_, _| Ok(false))?;
    d.take(d.rest().len() - tagged.rest().len()).map(|_| ())
}

/// A decoder for the body of `key` in `api_version`.
///
/// # Errors
/// A version that has no layout.
pub(super) fn body_decoder(body: &[u8], key: ApiKey, api_version: i16) -> Result<Decoder<'_>, DecodeError> {
    let d = Decoder::new(body, api_version, key.is_flexible(api_version));
    if key.supports(api_version) {
        return Ok(d);
    }
    Err(d.error(DecodeErrorKind::UnsupportedVersion { version: api_version }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCE_9: &[u8] = &[0, 0, 0, 9, 0, 0, 0, 42, 0, 2, b'm', b'e', 1, 5, 1, 0xaa, 77, 78];

    #[test]
    fn a_flexible_header_skips_tagged_fields_and_leaves_the_body() {
        let (header, body) = RequestHeader::decode(PRODUCE_9).unwrap();
        assert_eq!(header.api, Api::Known(ApiKey::Produce));
        assert_eq!((header.api_version, header.correlation_id), (9, 42));
        assert_eq!(header.client_id, Some("me"));
        assert_eq!(body, &[77, 78]);
    }

    #[test]
    fn a_header_without_tagged_fields_ends_at_the_client_id() {
        let frame = [0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 77];
        let (header, body) = RequestHeader::decode(&frame).unwrap();
        assert_eq!(header.client_id, None);
        assert_eq!(body, &[77]);
    }

    #[test]
    fn an_unknown_api_or_version_is_reported_with_its_correlation_id() {
        let frame = [0x03, 0xe7, 0, 1, 0, 0, 0, 7];
        let (header, body) = RequestHeader::decode(&frame).unwrap();
        assert_eq!((header.api, header.api_key, header.correlation_id), (Api::Unknown, 999, 7));
        assert_eq!((header.client_id, body), (None, &[][..]));

        let frame = [0, 18, 0, 99, 0, 0, 0, 8, 0, 1, b'x', 1, 2, 3];
        let (header, body) = RequestHeader::decode(&frame).unwrap();
        assert_eq!(header.api, Api::UnsupportedVersion(ApiKey::ApiVersions));
        assert_eq!((header.api_version, header.client_id), (99, Some("x")));
        assert!(body.is_empty());

        // Advertised, but refused when used.
        let (header, _) = RequestHeader::decode(&[0, 0, 0, 2, 0, 0, 0, 8, 0xff, 0xff]).unwrap();
        assert_eq!(header.api, Api::UnsupportedVersion(ApiKey::Produce));
    }

    #[test]
    fn every_prefix_of_a_header_is_an_error_and_not_a_panic() {
        for len in 0..PRODUCE_9.len() - 2 {
            assert!(RequestHeader::decode(&PRODUCE_9[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn headers_read_back_what_was_written() {
        for &key in ApiKey::SUPPORTED {
            for version in key.versions().iter() {
                let e = RequestHeader::begin(BytesMut::new(), key, version, 5, Some("c"));
                let head = e.finish().unwrap().head;
                let (header, body) = RequestHeader::decode(&head[4..]).unwrap();
                assert_eq!((header.api, header.correlation_id), (Api::Known(key), 5));
                assert!(body.is_empty());

                let head = ResponseHeader::begin(BytesMut::new(), key, version, 6).finish().unwrap().head;
                let (header, body) = ResponseHeader::decode(&head[4..], key, version).unwrap();
                assert_eq!(header.correlation_id, 6);
                assert!(body.is_empty());
            }
        }
    }
}
