//! One request at a time on one connection: what comes before and after a run.
//!
//! Holds: sending a request, waiting for its answer, the connection's negotiated versions. Never touches: pipelining; the
//! load engines have their own way with a socket.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_net::wire::messages::{ApiVersionsRequest, ApiVersionsResponse};
use corelog_net::wire::{ApiKey, Request, Response, ResponseHeader};
use corelog_reactor::{Reactor, Stream};

use super::reader::FrameReader;
use crate::error::BenchError;
use crate::interrupt::{self, Broken};

/// The name this client goes by.
pub const CLIENT_ID: &str = "corelog-bench";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection may take to come about.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// The versions that both sides speak.
pub type Versions = HashMap<ApiKey, i16>;

/// A connection with one open request at most.
pub struct Rpc {
    reactor: Reactor,
    stream: Stream,
    address: String,
    reader: FrameReader,
    next_correlation: i32,
    versions: Versions,
}

impl Rpc {
    /// Connects and asks what the broker speaks.
    ///
    /// # Errors
    /// Nobody there, or no Kafka broker.
    pub async fn connect(reactor: &Reactor, address: &str) -> Result<Self, BenchError> {
        let stream = connect(reactor, address).await?;
        let mut rpc = Self {
            reactor: reactor.clone(),
            stream,
            address: address.to_owned(),
            reader: FrameReader::default(),
            next_correlation: 0,
            versions: Versions::from([(ApiKey::ApiVersions, 3)]),
        };
        let version = env!("CARGO_PKG_VERSION");
        let request = ApiVersionsRequest { client_software_name: CLIENT_ID, client_software_version: version };
        let no_kafka = |error| match error {
            BenchError::Interrupted => error,
            error => BenchError::NoKafka { address: address.to_owned(), error: Box::new(error) },
        };
        let answer = rpc.call(&request).await.map_err(no_kafka)?;
        let spoken: ApiVersionsResponse<'_> = answer.body().map_err(no_kafka)?;
        for api in &spoken.api_keys {
            let Ok(key) = ApiKey::try_from(api.api_key) else { continue };
            let highest = key.versions().max.min(api.max_version);
            if highest >= key.versions().min.max(api.min_version) && key != ApiKey::ApiVersions {
                rpc.versions.insert(key, highest);
            }
        }
        Ok(rpc)
    }

    /// The version that both sides speak.
    ///
    /// # Errors
    /// There is none.
    pub fn version(&self, key: ApiKey) -> Result<i16, BenchError> {
        self.versions.get(&key).copied().ok_or(BenchError::Version { api: key.name() })
    }

    /// All of them.
    pub const fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Asks and waits. A connection whose call broke off is of no use any more: the answer may still come.
    ///
    /// # Errors
    /// The connection failed, the answer did not come, or Ctrl-C was pressed.
    pub async fn call<'a, R: Request<'a>>(&mut self, request: &R) -> Result<Answer, BenchError> {
        let version = self.version(R::KEY)?;
        self.next_correlation += 1;
        let frame = request
            .encode_frame(BytesMut::new(), version, self.next_correlation, Some(CLIENT_ID))
            .map_err(|error| BenchError::Request { api: R::KEY.name(), error })?;
        let reactor = self.reactor.clone();
        let exchange = self.exchange(frame.head.freeze());
        match interrupt::within(&reactor, PATIENCE, exchange).await {
            Ok(frame) => Ok(Answer { frame: frame?, key: R::KEY, version }),
            Err(Broken::Interrupted) => Err(BenchError::Interrupted),
            Err(Broken::TooLong) => Err(BenchError::Silent { api: R::KEY.name(), seconds: PATIENCE.as_secs() }),
        }
    }

    async fn exchange(&mut self, mut frame: Bytes) -> Result<Bytes, BenchError> {
        let lost = |address: &str, what: String| BenchError::Lost { address: address.into(), what };
        while !frame.is_empty() {
            let (sent, back) = self.stream.send(frame).await;
            let sent = sent.map_err(|error| lost(&self.address, format!("failed ({error})")))?;
            frame = back.slice(sent..);
        }
        let received = self.reader.next(&self.stream, &self.reactor).await;
        match received {
            Ok(frame) => Ok(Bytes::copy_from_slice(frame)),
            Err(what) => Err(lost(&self.address, what)),
        }
    }
}

/// An answer, still in its frame.
pub struct Answer {
    frame: Bytes,
    key: ApiKey,
    version: i16,
}

impl Answer {
    /// Reads it.
    ///
    /// # Errors
    /// The bytes are no such answer.
    pub fn body<'a, R: Response<'a>>(&'a self) -> Result<R, BenchError> {
        let api = self.key.name();
        let (_, body) = ResponseHeader::decode(&self.frame, self.key, self.version)
            .map_err(|error| BenchError::Answer { api, error })?;
        R::decode_body(body, self.version).map_err(|error| BenchError::Answer { api, error })
    }
}

/// Connects to `address` (`host:port`), trying each of its addresses.
///
/// # Errors
/// None of them answers.
pub async fn connect(reactor: &Reactor, address: &str) -> Result<Stream, BenchError> {
    let unreachable = |error| BenchError::Unreachable { address: address.to_owned(), error };
    let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(unreachable)?.collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket in found {
        match interrupt::within(reactor, CONNECT_PATIENCE, reactor.connect(socket)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(Broken::TooLong) => last = io::ErrorKind::TimedOut.into(),
            Err(Broken::Interrupted) => return Err(BenchError::Interrupted),
        }
    }
    Err(unreachable(last))
}
