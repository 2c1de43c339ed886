//! What the fuzz targets check of any bytes. Shared with the test that replays the committed corpus.
//!
//! Holds: properties of the frame prefix and of request decoding. Never touches: the fuzzer.

use bytes::BytesMut;
use corelog_net::wire::frame::{FRAME_BYTES_MAX_DEFAULT, Front, SIZE_BYTES, front};
use corelog_net::wire::{Api, RequestBody, RequestHeader};

/// A receive buffer: frames are cut from its front until one is missing or wrong, and never reach past its end.
pub fn frame(received: &[u8]) {
    let mut rest = received;
    loop {
        match front(rest, FRAME_BYTES_MAX_DEFAULT) {
            Err(_) => return,
            Ok(Front::Partial { missing }) => {
                assert!(missing > 0, "a partial frame lacks nothing");
                return;
            }
            Ok(Front::Whole(body)) => {
                assert_eq!(body.start, SIZE_BYTES);
                let frame = rest.get(body.clone()).expect("a whole frame lies in the buffer");
                let _ = RequestHeader::decode(frame);
                rest = rest.get(body.end..).expect("a whole frame ends in the buffer");
            }
        }
    }
}

/// A request frame without its size: what decodes, encodes again, and then decodes to an equal value.
pub fn request(frame: &[u8]) {
    let Ok((header, body)) = RequestHeader::decode(frame) else {
        return;
    };
    let Api::Known(key) = header.api else {
        return;
    };
    let version = header.api_version;
    let Ok(request) = RequestBody::decode(key, version, body) else {
        return;
    };
    let (id, client_id) = (header.correlation_id, header.client_id);
    let mut e = RequestHeader::begin(BytesMut::new(), key, version, id, client_id);
    request.encode(&mut e);
    let encoded = e.finish().expect("what was decoded can be encoded");
    let again = encoded.head.get(SIZE_BYTES..).expect("a frame has a size");
    let (header_again, body_again) = RequestHeader::decode(again).expect("our own header");
    assert_eq!(header_again, header);
    let request_again = RequestBody::decode(key, version, body_again).expect("our own body");
    assert_eq!(request_again, request, "{key} v{version}");
}
