//! Listeners: what is bound, what is advertised, what is refused.

use crate::config::listeners::{ListenerTexts, Listeners, parse};

const DEFAULT_MAP: &str = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT";

fn texts<'a>(listeners: &'a str, advertised: Option<&'a str>) -> ListenerTexts<'a> {
    ListenerTexts {
        listeners,
        advertised,
        protocol_map: DEFAULT_MAP,
        protocol_map_is_set: false,
        controller_names: "CONTROLLER",
        host_name: "box.example",
    }
}

fn accepted(texts: ListenerTexts<'_>) -> Listeners {
    match parse(texts) {
        Ok(listeners) => listeners,
        Err(error) => panic!("{error}"),
    }
}

fn refused(texts: ListenerTexts<'_>) -> String {
    match parse(texts) {
        Ok(listeners) => panic!("accepted: {listeners:?}"),
        Err(error) => error.to_string(),
    }
}

/// Name, bound host and port, advertised host and port, whether advertised.
type Told<'a> = (&'a str, Option<&'a str>, u16, &'a str, u16, bool);

fn told(listeners: &Listeners) -> Vec<Told<'_>> {
    let each = listeners.open.iter().map(|l| {
        let bind = l.bind_host.as_deref();
        (l.name.as_str(), bind, l.bind_port, l.advertised_host.as_str(), l.advertised_port, l.is_advertised)
    });
    each.collect()
}

#[test]
fn a_listener_without_a_host_binds_every_interface_and_advertises_this_machine() {
    let listeners = accepted(texts("plaintext://:9092", None));
    assert_eq!(told(&listeners), [("PLAINTEXT", None, 9092, "box.example", 9092, true)]);
}

#[test]
fn several_listeners_are_advertised_by_their_names() {
    let map = "IN:PLAINTEXT,OUT:PLAINTEXT,HIDDEN:PLAINTEXT";
    let listeners = accepted(ListenerTexts {
        protocol_map: map,
        protocol_map_is_set: true,
        ..texts(
            "IN://0.0.0.0:9092, OUT://[::]:9093,HIDDEN://127.0.0.1:9094",
            Some("OUT://pub.example:80,IN://10.0.0.5:9092"),
        )
    });
    assert_eq!(
        told(&listeners),
        [
            ("IN", Some("0.0.0.0"), 9092, "10.0.0.5", 9092, true),
            ("OUT", Some("::"), 9093, "pub.example", 80, true),
            ("HIDDEN", Some("127.0.0.1"), 9094, "127.0.0.1", 9094, false),
        ]
    );
}

#[test]
fn a_controller_listener_is_known_and_not_opened() {
    let listeners = accepted(texts("PLAINTEXT://a:1,CONTROLLER://a:2", None));
    assert_eq!(listeners.controller, ["CONTROLLER"]);
    assert_eq!(listeners.open.len(), 1);
}

#[test]
fn ipv4_and_ipv6_may_share_a_port_and_nothing_else_may() {
    let map = "A:PLAINTEXT,B:PLAINTEXT";
    let both = |listeners| ListenerTexts { protocol_map: map, protocol_map_is_set: true, ..texts(listeners, None) };
    assert_eq!(accepted(both("A://127.0.0.1:9092,B://[::1]:9092")).open.len(), 2);
    assert_eq!(accepted(both("A://127.0.0.1:0,B://127.0.0.1:0")).open.len(), 2);
    assert!(refused(both("A://127.0.0.1:9092,B://127.0.0.2:9092")).contains("same port 9092"));
    assert!(refused(both("A://one:9092,B://two:9092")).contains("same port 9092"));
}

#[test]
fn what_is_wrong_is_said_with_the_fix() {
    let cases = [
        ("9092", None, "`9092` in listeners is not of the form NAME://host:port"),
        ("PLAINTEXT://host", None, "`PLAINTEXT://host` in listeners is not of the form NAME://host:port"),
        ("PLAINTEXT://::1:9092", None, "`PLAINTEXT://::1:9092` in listeners is not of the form NAME://host:port"),
        ("PLAIN TEXT://h:1", None, "`PLAIN TEXT://h:1` in listeners is not of the form NAME://host:port"),
        (
            "PLAINTEXT://h:99999",
            None,
            "`PLAINTEXT://h:99999` in listeners has the port `99999`, which is not a number from 0 to 65535",
        ),
        (
            "PLAINTEXT://h:1,plaintext://h:2",
            None,
            "listeners names listener `PLAINTEXT` twice; each listener must have a different name",
        ),
        (
            "IN://h:1",
            None,
            "listener `IN` has no security protocol in listener.security.protocol.map; add `IN:PLAINTEXT`",
        ),
        (
            "SSL://h:1",
            None,
            "listener `SSL` uses SSL; Corelog speaks only PLAINTEXT so far: bind it to a trusted network, or leave it out",
        ),
        (
            "PLAINTEXT://0.0.0.0:9092",
            None,
            "clients cannot connect to 0.0.0.0, which listener `PLAINTEXT` would advertise; set \
             advertised.listeners=PLAINTEXT://HOST:9092 with a host that they can reach",
        ),
        (
            "PLAINTEXT://h:1",
            Some("PLAINTEXT://h:1,OTHER://h:2"),
            "advertised.listeners names `OTHER`, which listeners does not; they must name the same listeners",
        ),
        ("CONTROLLER://h:1", None, "there is no listener for clients; every listener is in controller.listener.names"),
    ];
    for (listeners, advertised, reason) in cases {
        assert_eq!(refused(texts(listeners, advertised)), reason);
    }
    let map =
        |protocol_map| ListenerTexts { protocol_map, protocol_map_is_set: true, ..texts("PLAINTEXT://h:1", None) };
    assert_eq!(
        refused(map("PLAINTEXT")),
        "`PLAINTEXT` in listener.security.protocol.map is not of the form NAME:PROTOCOL"
    );
    assert_eq!(
        refused(map("PLAINTEXT:TLS")),
        "`TLS` in listener.security.protocol.map is no security protocol; they are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL"
    );
}

#[test]
fn clients_are_told_the_advertised_address_with_the_bound_port_where_none_is_given() {
    let address = |text, bound| accepted(texts(text, None)).open.first().map(|listener| listener.address_told(bound));
    assert_eq!(address("PLAINTEXT://:9092", 9092).as_deref(), Some("box.example:9092"));
    assert_eq!(address("PLAINTEXT://127.0.0.1:0", 4711).as_deref(), Some("127.0.0.1:4711"));
    assert_eq!(address("PLAINTEXT://[::1]:9092", 9092).as_deref(), Some("[::1]:9092"));
}
