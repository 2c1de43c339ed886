//! The four bytes in front of every request and response.
//!
//! Holds: reading that size, and telling what speaks when it isn't Kafka. Never touches: sockets, buffers, what is inside.

use std::ops::Range;

/// Bytes of the size prefix.
pub const SIZE_BYTES: usize = 4;

/// Kafka's default of `socket.request.max.bytes`.
pub const FRAME_BYTES_MAX_DEFAULT: usize = 100 << 20;

/// Why a stream of bytes is not one of Kafka's frames. The connection cannot go on: nothing tells where the next one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A size below zero.
    #[error("frame size {size} is negative")]
    Negative {
        /// The size read.
        size: i32,
    },
    /// A size above what this listener accepts.
    #[error("frame of {size} bytes is larger than the maximum of {max} (socket.request.max.bytes)")]
    TooLarge {
        /// The size read.
        size: usize,
        /// The most that is accepted.
        max: usize,
    },
    /// The first bytes of a TLS handshake.
    #[error("TLS handshake on a plaintext listener: the client's security.protocol doesn't match this listener's")]
    Tls,
    /// The first bytes of an HTTP request.
    #[error("HTTP request ({verb}) on a Kafka listener")]
    Http {
        /// The verb, as far as four bytes tell.
        verb: &'static str,
    },
}

/// Body size that a prefix announces, at most `frame_bytes_max`.
///
/// Other protocols are recognised only where the size is refused anyway: both a TLS handshake (above 352 MiB) and a verb
/// (above 1 GiB) read as sizes far above any sensible maximum.
///
/// # Errors
/// A size that is negative or too large, with the reason if one can be told.
#[inline]
pub fn body_bytes(prefix: [u8; SIZE_BYTES], frame_bytes_max: usize) -> Result<usize, FrameError> {
    let size = i32::from_be_bytes(prefix);
    match usize::try_from(size) {
        Ok(size) if size <= frame_bytes_max => Ok(size),
        Ok(size) => Err(explain(prefix).unwrap_or(FrameError::TooLarge { size, max: frame_bytes_max })),
        Err(_) => Err(FrameError::Negative { size }),
    }
}

#[cold]
fn explain(prefix: [u8; SIZE_BYTES]) -> Option<FrameError> {
    // RFC 8446, 5.1: content type handshake, legacy version 3.x.
    if let [0x16, 0x03, 0..=4, _] = prefix {
        return Some(FrameError::Tls);
    }
    let verb = match &prefix {
        b"GET " => "GET",
        b"POST" => "POST",
        b"PUT " => "PUT",
        b"HEAD" => "HEAD",
        b"DELE" => "DELETE",
        b"OPTI" => "OPTIONS",
        b"PATC" => "PATCH",
        b"CONN" => "CONNECT",
        b"TRAC" => "TRACE",
        // The preface of HTTP/2: "PRI * HTTP/2.0".
        b"PRI " => "PRI",
        _ => return None,
    };
    Some(FrameError::Http { verb })
}

/// What the front of a receive buffer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Front {
    /// A whole frame: its body is at this range, the next frame starts at its end.
    Whole(Range<usize>),
    /// Not yet: this many bytes more complete the prefix, or the frame once the prefix is there.
    Partial {
        /// Bytes that are missing.
        missing: usize,
    },
}

/// Looks for a whole frame at the front of `received`.
///
/// # Errors
/// As [`body_bytes`], as soon as the prefix is there.
pub fn front(received: &[u8], frame_bytes_max: usize) -> Result<Front, FrameError> {
    let Some(prefix) = received.first_chunk::<SIZE_BYTES>() else {
        return Ok(Front::Partial { missing: SIZE_BYTES - received.len() });
    };
    let end = SIZE_BYTES + body_bytes(*prefix, frame_bytes_max)?;
    Ok(match end.checked_sub(received.len()) {
        None | Some(0) => Front::Whole(SIZE_BYTES..end),
        Some(missing) => Front::Partial { missing },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = FRAME_BYTES_MAX_DEFAULT;

    #[test]
    fn a_size_is_accepted_up_to_the_maximum_and_refused_above_and_below() {
        assert_eq!(body_bytes([0; 4], MAX), Ok(0));
        assert_eq!(body_bytes((MAX as i32).to_be_bytes(), MAX), Ok(MAX));
        let size = MAX + 1;
        assert_eq!(body_bytes((size as i32).to_be_bytes(), MAX), Err(FrameError::TooLarge { size, max: MAX }));
        assert_eq!(body_bytes([0xff; 4], MAX), Err(FrameError::Negative { size: -1 }));
        assert_eq!(body_bytes([0x80, 0, 0, 0], MAX), Err(FrameError::Negative { size: i32::MIN }));
    }

    #[test]
    fn a_tls_client_and_a_browser_are_told_apart_from_a_large_frame() {
        assert_eq!(body_bytes([0x16, 3, 1, 2], MAX), Err(FrameError::Tls));
        assert_eq!(body_bytes(*b"GET ", MAX), Err(FrameError::Http { verb: "GET" }));
        assert_eq!(body_bytes(*b"PRI ", MAX), Err(FrameError::Http { verb: "PRI" }));
        let bytes = i32::from_be_bytes([0x16, 3, 1, 2]) as usize;
        assert_eq!(body_bytes([0x16, 3, 1, 2], bytes), Ok(bytes), "a maximum that allows it wins");
    }

    #[test]
    fn the_front_of_a_buffer_is_partial_until_the_last_byte_is_there() {
        let frame = [0, 0, 0, 2, 7, 8, 0, 0];
        for len in 0..6 {
            let missing = if len < 4 { 4 - len } else { 6 - len };
            assert_eq!(front(&frame[..len], MAX), Ok(Front::Partial { missing }), "{len} bytes");
        }
        assert_eq!(front(&frame[..6], MAX), Ok(Front::Whole(4..6)));
        assert_eq!(front(&frame, MAX), Ok(Front::Whole(4..6)));
        assert_eq!(front(&[0, 0, 0, 0], MAX), Ok(Front::Whole(4..4)));
    }
}
