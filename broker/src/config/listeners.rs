//! Where the broker listens, and what it tells clients to connect to.
//!
//! Holds: the parsers of `listeners`, `advertised.listeners` and `listener.security.protocol.map`, and Kafka's rules
//! that tie them together. Never touches: sockets, name resolution.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use super::value::split_list;

/// How a listener's connections are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Not at all.
    Plaintext,
    /// TLS.
    Ssl,
    /// SASL without TLS.
    SaslPlaintext,
    /// SASL over TLS.
    SaslSsl,
}

impl SecurityProtocol {
    /// The protocol of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Some(Self::Plaintext),
            "SSL" => Some(Self::Ssl),
            "SASL_PLAINTEXT" => Some(Self::SaslPlaintext),
            "SASL_SSL" => Some(Self::SaslSsl),
            _ => None,
        }
    }

    /// Its number in the protocol.
    #[must_use]
    pub const fn id(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Ssl => 1,
            Self::SaslPlaintext => 2,
            Self::SaslSsl => 3,
        }
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        })
    }
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, in capitals.
    pub name: String,
    /// How its connections are protected.
    pub protocol: SecurityProtocol,
    /// The host to bind; `None`: every interface.
    pub bind_host: Option<String>,
    /// The port to bind; 0: any free one.
    pub bind_port: u16,
    /// Whether clients are told of it. With `advertised.listeners` a listener can be left out.
    pub is_advertised: bool,
    /// The host that clients are told.
    pub advertised_host: String,
    /// The port that clients are told; 0: the one that was bound.
    pub advertised_port: u16,
}

impl Listener {
    /// The port that clients are told, when it was `bound_port` that was bound.
    #[must_use]
    pub const fn port_told(&self, bound_port: u16) -> u16 {
        if self.advertised_port == 0 { bound_port } else { self.advertised_port }
    }

    /// `host:port` as clients are told it, when it was `bound_port` that was bound.
    #[must_use]
    pub fn address_told(&self, bound_port: u16) -> String {
        let port = self.port_told(bound_port);
        // An IPv6 address needs its brackets beside a port.
        match self.advertised_host.contains(':') {
            true => format!("[{}]:{port}", self.advertised_host),
            false => format!("{}:{port}", self.advertised_host),
        }
    }
}

/// The texts that say where to listen.
#[derive(Clone, Copy, Debug)]
pub struct ListenerTexts<'a> {
    /// `listeners`
    pub listeners: &'a str,
    /// `advertised.listeners`
    pub advertised: Option<&'a str>,
    /// `listener.security.protocol.map`
    pub protocol_map: &'a str,
    /// Whether that map was set, rather than being the default.
    pub protocol_map_is_set: bool,
    /// `controller.listener.names`
    pub controller_names: &'a str,
    /// The name of this machine, where a listener names no host.
    pub host_name: &'a str,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listeners {
    /// The listeners that clients connect to, in the order of `listeners`.
    pub open: Vec<Listener>,
    /// Those of the controller's.
    pub controller: Vec<String>,
}

/// Which of the properties is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerProperty {
    /// `listeners`
    Listeners,
    /// `advertised.listeners`
    Advertised,
    /// `listener.security.protocol.map`
    ProtocolMap,
}

impl ListenerProperty {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Listeners => "listeners",
            Self::Advertised => "advertised.listeners",
            Self::ProtocolMap => "listener.security.protocol.map",
        }
    }
}

/// Why the listeners were refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenerError {
    /// Not of the form `NAME://host:port`.
    #[error("`{text}` in {} is not of the form NAME://host:port", property.name())]
    Malformed {
        /// The property.
        property: ListenerProperty,
        /// The text.
        text: String,
    },
    /// The port is no number from 0 to 65535.
    #[error("`{text}` in {} has the port `{port}`, which is not a number from 0 to 65535", property.name())]
    Port {
        /// The property.
        property: ListenerProperty,
        /// The listener.
        text: String,
        /// What stands where the port should.
        port: String,
    },
    /// Two listeners of one name.
    #[error("{} names listener `{name}` twice; each listener must have a different name", property.name())]
    RepeatedName {
        /// The property.
        property: ListenerProperty,
        /// The name.
        name: String,
    },
    /// Two listeners on one port.
    #[error(
        "listeners `{first}` and `{second}` have the same port {port}; each listener must have a different port, unless one is IPv4 and the other IPv6"
    )]
    RepeatedPort {
        /// One listener.
        first: String,
        /// The other.
        second: String,
        /// The port.
        port: u16,
    },
    /// The map is not of the form `NAME:PROTOCOL,…`.
    #[error("`{text}` in listener.security.protocol.map is not of the form NAME:PROTOCOL")]
    MalformedMap {
        /// The text.
        text: String,
    },
    /// A protocol nobody knows.
    #[error(
        "`{protocol}` in listener.security.protocol.map is no security protocol; they are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL"
    )]
    UnknownProtocol {
        /// The protocol.
        protocol: String,
    },
    /// A listener that the map leaves out.
    #[error("listener `{name}` has no security protocol in listener.security.protocol.map; add `{name}:PLAINTEXT`")]
    Unmapped {
        /// The listener.
        name: String,
    },
    /// A protocol that Corelog does not speak yet.
    #[error(
        "listener `{name}` uses {protocol}; Corelog speaks only PLAINTEXT so far: bind it to a trusted network, or leave it out"
    )]
    Unsupported {
        /// The listener.
        name: String,
        /// Its protocol.
        protocol: SecurityProtocol,
    },
    /// An address that no client can connect to.
    #[error(
        "clients cannot connect to {host}, which listener `{name}` would advertise; set advertised.listeners={name}://HOST:{port} with a host that they can reach"
    )]
    NotRoutable {
        /// The listener.
        name: String,
        /// The address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Advertised, and not listened on.
    #[error("advertised.listeners names `{name}`, which listeners does not; they must name the same listeners")]
    AdvertisedOnly {
        /// The listener.
        name: String,
    },
    /// No listener for clients.
    #[error("there is no listener for clients; every listener is in controller.listener.names")]
    NoneForClients,
}

impl ListenerError {
    /// What would be right, where the error itself doesn't say.
    #[must_use]
    pub const fn example(&self) -> &'static str {
        match self {
            Self::Malformed { property, .. } | Self::Port { property, .. } | Self::RepeatedName { property, .. } => {
                match property {
                    ListenerProperty::Listeners => {
                        "For example --listen 127.0.0.1:9092, or listeners=PLAINTEXT://127.0.0.1:9092."
                    }
                    ListenerProperty::Advertised => "For example advertised.listeners=PLAINTEXT://broker.example:9092.",
                    ListenerProperty::ProtocolMap => "For example listener.security.protocol.map=INSIDE:PLAINTEXT.",
                }
            }
            Self::MalformedMap { .. } => "For example listener.security.protocol.map=INSIDE:PLAINTEXT.",
            Self::NoneForClients => "Name one more in listeners: PLAINTEXT://127.0.0.1:9092.",
            Self::RepeatedPort { .. }
            | Self::UnknownProtocol { .. }
            | Self::Unmapped { .. }
            | Self::Unsupported { .. }
            | Self::NotRoutable { .. }
            | Self::AdvertisedOnly { .. } => "",
        }
    }

    /// The property to change.
    #[must_use]
    pub const fn property(&self) -> ListenerProperty {
        match self {
            Self::Malformed { property, .. } | Self::Port { property, .. } | Self::RepeatedName { property, .. } => {
                *property
            }
            Self::RepeatedPort { .. } | Self::Unsupported { .. } | Self::NoneForClients => ListenerProperty::Listeners,
            Self::MalformedMap { .. } | Self::UnknownProtocol { .. } | Self::Unmapped { .. } => {
                ListenerProperty::ProtocolMap
            }
            Self::NotRoutable { .. } | Self::AdvertisedOnly { .. } => ListenerProperty::Advertised,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    name: String,
    host: Option<String>,
    port: u16,
}

/// Reads all of it.
///
/// # Errors
/// [`ListenerError`], the first one found.
pub fn parse(texts: ListenerTexts<'_>) -> Result<Listeners, ListenerError> {
    let bound = addresses(texts.listeners, ListenerProperty::Listeners)?;
    check_ports(&bound)?;
    let advertised = texts.advertised.map(|text| addresses(text, ListenerProperty::Advertised)).transpose()?;
    let controller: Vec<String> = split_list(texts.controller_names).iter().map(|name| name.to_uppercase()).collect();
    let mut map = protocol_map(texts.protocol_map)?;
    let secured = bound
        .iter()
        .map(|a| &a.name)
        .chain(&controller)
        .any(|name| SecurityProtocol::from_name(name).is_some_and(|p| p != SecurityProtocol::Plaintext));
    if !texts.protocol_map_is_set && !secured {
        // KIP-801: with the default map, and nothing secured, a controller listener is plain.
        for name in &controller {
            map.insert(name.clone(), SecurityProtocol::Plaintext);
        }
    }
    if let Some(advertised) = &advertised {
        let known = |name: &String| bound.iter().any(|a| a.name == *name) || controller.contains(name);
        if let Some(stranger) = advertised.iter().find(|a| !known(&a.name)) {
            return Err(ListenerError::AdvertisedOnly { name: stranger.name.clone() });
        }
    }
    let mut listeners = Listeners::default();
    for address in bound {
        let Some(&protocol) = map.get(&address.name) else {
            return Err(ListenerError::Unmapped { name: address.name });
        };
        if controller.contains(&address.name) {
            listeners.controller.push(address.name);
            continue;
        }
        if protocol != SecurityProtocol::Plaintext {
            return Err(ListenerError::Unsupported { name: address.name, protocol });
        }
        let told = match &advertised {
            Some(advertised) => advertised.iter().find(|a| a.name == address.name),
            None => Some(&address),
        };
        let is_advertised = told.is_some();
        let told = told.unwrap_or(&address);
        let advertised_port = told.port;
        let advertised_host = told.host.as_deref().unwrap_or(texts.host_name).to_owned();
        if is_advertised && matches!(advertised_host.as_str(), "0.0.0.0" | "::") {
            return Err(ListenerError::NotRoutable {
                name: address.name,
                host: advertised_host,
                port: advertised_port,
            });
        }
        listeners.open.push(Listener {
            protocol,
            is_advertised,
            advertised_host,
            advertised_port,
            bind_host: address.host.clone(),
            bind_port: address.port,
            name: address.name,
        });
    }
    if listeners.open.is_empty() {
        return Err(ListenerError::NoneForClients);
    }
    Ok(listeners)
}

fn addresses(text: &str, property: ListenerProperty) -> Result<Vec<Address>, ListenerError> {
    let mut all: Vec<Address> = Vec::new();
    for item in split_list(text) {
        let address = address(&item, property)?;
        if all.iter().any(|a| a.name == address.name) {
            return Err(ListenerError::RepeatedName { property, name: address.name });
        }
        all.push(address);
    }
    Ok(all)
}

fn address(text: &str, property: ListenerProperty) -> Result<Address, ListenerError> {
    let malformed = || ListenerError::Malformed { property, text: text.to_owned() };
    let (name, rest) = text.split_once("://").ok_or_else(malformed)?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(malformed)?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(legal) {
        return Err(malformed());
    }
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host = match bracketed {
        Some(inside) => inside,
        None if !host.contains([':', '[', ']']) => host,
        // An IPv6 address without brackets.
        None => return Err(malformed()),
    };
    let port =
        port.parse().map_err(|_| ListenerError::Port { property, text: text.to_owned(), port: port.to_owned() })?;
    Ok(Address { name: name.to_uppercase(), host: (!host.is_empty()).then(|| host.to_owned()), port })
}

/// Two listeners may share a port only if one is on an IPv4 and the other on an IPv6 address (KIP-797).
fn check_ports(bound: &[Address]) -> Result<(), ListenerError> {
    let family = |a: &Address| {
        let address: Option<std::net::IpAddr> = a.host.as_deref()?.parse().ok();
        address.map(|ip| ip.is_ipv4())
    };
    for (at, first) in bound.iter().enumerate() {
        for second in bound.iter().skip(at + 1) {
            let apart = matches!(
                (family(first), family(second)),
                (Some(a), Some(b)) if a != b
            );
            if first.port == second.port && first.port != 0 && !apart {
                return Err(ListenerError::RepeatedPort {
                    first: first.name.clone(),
                    second: second.name.clone(),
                    port: first.port,
                });
            }
        }
    }
    Ok(())
}

fn protocol_map(text: &str) -> Result<BTreeMap<String, SecurityProtocol>, ListenerError> {
    let mut map = BTreeMap::new();
    for item in split_list(text) {
        let Some((name, protocol)) = item.rsplit_once(':') else {
            return Err(ListenerError::MalformedMap { text: item });
        };
        let Some(known) = SecurityProtocol::from_name(protocol.trim()) else {
            return Err(ListenerError::UnknownProtocol { protocol: protocol.trim().to_owned() });
        };
        map.insert(name.trim().to_uppercase(), known);
    }
    Ok(map)
}
