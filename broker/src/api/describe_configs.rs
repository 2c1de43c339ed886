//! DescribeConfigs (32): the configuration of topics, brokers and loggers.
//!
//! Holds: who may be asked about what, and the shape of the answer. Never touches: where values come from (`config`).

use std::rc::Rc;

use corelog_net::wire::messages::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use tracing::level_filters::LevelFilter;

use super::common::Refusal;
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::config::BrokerConfig;
use crate::config::describe::{DescribedConfig, Synonym, describe_broker, describe_cluster_default, describe_topic};
use crate::controller::{ConfigResource, MetadataImage, ResourceKind};
use crate::names;
use crate::shard::Shard;

/// The resource type of a broker's loggers (KIP-412), which have no stored configuration.
const BROKER_LOGGER: i8 = 8;
/// Resources that are described before others of the shard get their turn. A broker's properties are about 0.2 ms of work.
const RESOURCES_AT_ONCE: usize = 8;
/// The longest answer: Kafka's limit of a request by default. Sixteen thousand topics, or a thousand brokers, fit.
const REPLY_BYTES_MAX: usize = 100 << 20;
/// The source of a log level: `DYNAMIC_BROKER_LOGGER_CONFIG`.
const LOGGER_SOURCE: i8 = 6;

/// Answers DescribeConfigs.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: DescribeConfigsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let image = shard.image();
    let config = shard.config();
    // One kind that nobody knows spoils the whole request, with the code's own message.
    let spoilt = request.resources.iter().any(|resource| !is_known(resource.resource_type));
    let invalid = Refusal::new(ErrorCode::InvalidRequest, ErrorCode::InvalidRequest.message());
    // The answer to a short request may be long: a resource may be named again and again. So it is written resource by
    // resource, with a turn for others now and then, and has an end.
    DescribeConfigsResponse::default().throttle_time_ms.encode(out);
    out.long_len(Some(request.resources.len()));
    for (position, resource) in request.resources.iter().enumerate() {
        match Described::of(resource, context, &image, &config) {
            _ if spoilt => refuse(resource, &invalid).encode(out),
            Ok(described) => described.encode(resource, &request).encode(out),
            Err(refusal) => refuse(resource, &refusal).encode(out),
        }
        if out.head_bytes() > REPLY_BYTES_MAX {
            return Err(ApiFailure::ReplyTooLarge { bytes_max: REPLY_BYTES_MAX });
        }
        if position % RESOURCES_AT_ONCE == RESOURCES_AT_ONCE - 1 {
            shard.reactor().yield_now().await;
        }
    }
    out.no_tagged_fields();
    Ok(())
}

fn is_known(kind: i8) -> bool {
    kind == BROKER_LOGGER || ResourceKind::from_id(kind).is_some()
}

fn refuse<'a>(resource: &DescribeConfigsResource<'a>, refusal: &'a Refusal) -> DescribeConfigsResult<'a> {
    DescribeConfigsResult {
        error_code: refusal.code,
        error_message: refusal.message.as_deref(),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
        configs: Vec::new(),
    }
}

/// What there is to tell about one resource.
#[derive(Debug)]
enum Described {
    Configs(Vec<DescribedConfig>),
    /// The level of the one logger.
    Logger(&'static str),
}

impl Described {
    fn of(
        resource: &DescribeConfigsResource<'_>,
        context: &RequestContext,
        image: &MetadataImage,
        config: &BrokerConfig,
    ) -> Result<Self, Refusal> {
        let name = resource.resource_name;
        let Some(kind) = ResourceKind::from_id(resource.resource_type) else {
            may_describe(context, Resource::Cluster, ErrorCode::ClusterAuthorizationFailed)?;
            let ours = config.node_id;
            return match broker_id(name)? {
                None => Err(invalid("Broker id must not be empty")),
                Some(id) if id != ours => {
                    Err(invalid(format!("Unexpected broker id, expected {ours} but received {name}")))
                }
                Some(_) => Ok(Self::Logger(log_level())),
            };
        };
        match kind {
            ResourceKind::Topic => {
                may_describe(context, Resource::Topic(name), ErrorCode::TopicAuthorizationFailed)?;
                names::validate_topic_name(name)
                    .map_err(|error| Refusal::new(ErrorCode::InvalidTopicException, error.to_string()))?;
                if image.topic_by_name(name).is_none() {
                    // Kafka leaves the message out here: empty is what its clients read as "none".
                    return Err(Refusal::new(ErrorCode::UnknownTopicOrPartition, ""));
                }
                let overrides = image.config(&ConfigResource::topic(name));
                Ok(Self::Configs(describe_topic(config, name, &overrides)))
            }
            ResourceKind::Broker => {
                may_describe(context, Resource::Cluster, ErrorCode::ClusterAuthorizationFailed)?;
                let ours = config.node_id;
                match broker_id(name)? {
                    None => Ok(Self::Configs(describe_cluster_default(config))),
                    Some(id) if id != ours => Err(invalid(format!(
                        "Unexpected broker id, expected {ours} or empty string, but received {name}"
                    ))),
                    Some(_) => Ok(Self::Configs(describe_broker(config))),
                }
            }
            ResourceKind::ClientMetrics | ResourceKind::Group => {
                may_describe(context, Resource::Cluster, ErrorCode::ClusterAuthorizationFailed)?;
                Err(match (kind, name) {
                    (ResourceKind::ClientMetrics, "") => invalid("Client metrics subscription name must not be empty"),
                    (_, "") => invalid("Group name must not be empty"),
                    // They come with client metrics and with groups.
                    _ => invalid(format!("Unsupported resource type: {}", kind.name())),
                })
            }
        }
    }

    fn encode<'a>(
        &'a self,
        resource: &DescribeConfigsResource<'a>,
        request: &DescribeConfigsRequest<'_>,
    ) -> DescribeConfigsResult<'a> {
        let is_wanted = |name: &str| match resource.configuration_keys.as_deref() {
            None | Some([]) => true,
            Some(keys) => keys.contains(&name),
        };
        let configs = match self {
            Self::Configs(all) => all
                .iter()
                .filter(|config| is_wanted(&config.name))
                .map(|config| encode_config(config, request.include_synonyms, request.include_documentation))
                .collect(),
            Self::Logger(level) if is_wanted("root") => vec![DescribeConfigsResourceResult {
                name: "root",
                value: Some(level),
                config_source: LOGGER_SOURCE,
                documentation: None,
                ..Default::default()
            }],
            Self::Logger(_) => Vec::new(),
        };
        DescribeConfigsResult {
            error_code: ErrorCode::None,
            // Here Kafka leaves the message at its default, which is empty and not null.
            error_message: Some(""),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs,
        }
    }
}

fn may_describe(context: &RequestContext, resource: Resource<'_>, code: ErrorCode) -> Result<(), Refusal> {
    if authorize(context, Operation::DescribeConfigs, resource) {
        Ok(())
    } else {
        Err(Refusal::new(code, code.message()))
    }
}

/// The broker that a resource's name names; `None` if it is empty, which means all brokers.
fn broker_id(name: &str) -> Result<Option<i32>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    let not_a_number = |_| invalid(format!("Broker id must be an integer, but it is: {name}"));
    name.parse().map(Some).map_err(not_a_number)
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::InvalidRequest, message)
}

/// The level up to which this process logs, by Kafka's names.
fn log_level() -> &'static str {
    match LevelFilter::current() {
        LevelFilter::OFF => "FATAL",
        LevelFilter::ERROR => "ERROR",
        LevelFilter::WARN => "WARN",
        LevelFilter::INFO => "INFO",
        LevelFilter::DEBUG => "DEBUG",
        LevelFilter::TRACE => "TRACE",
    }
}

fn encode_config(config: &DescribedConfig, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult<'_> {
    DescribeConfigsResourceResult {
        name: &config.name,
        value: config.value.as_deref(),
        read_only: config.read_only,
        config_source: config.source.id(),
        is_sensitive: config.sensitive,
        synonyms: if synonyms { config.synonyms.iter().map(encode_synonym).collect() } else { Vec::new() },
        // KIP-569: type and documentation; 0 is a type nobody knows.
        config_type: config.kind.map_or(0, |kind| kind.id()),
        documentation: if documentation { config.documentation } else { None },
    }
}

fn encode_synonym(synonym: &Synonym) -> DescribeConfigsSynonym<'_> {
    DescribeConfigsSynonym { name: &synonym.name, value: synonym.value.as_deref(), source: synonym.source.id() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_named_by_its_id_and_all_brokers_by_the_empty_name() {
        assert_eq!(broker_id("1"), Ok(Some(1)));
        assert_eq!(broker_id(""), Ok(None));
        assert_eq!(broker_id("one"), Err(invalid("Broker id must be an integer, but it is: one")));
    }

    #[test]
    fn keys_that_are_null_or_empty_mean_every_property() {
        let request = DescribeConfigsRequest::default();
        let described = Described::Logger("INFO");
        let names = |configuration_keys| {
            let resource = DescribeConfigsResource { resource_type: 8, resource_name: "1", configuration_keys };
            described.encode(&resource, &request).configs.len()
        };
        assert_eq!(names(None), 1);
        assert_eq!(names(Some(vec![])), 1);
        assert_eq!(names(Some(vec!["root"])), 1);
        assert_eq!(names(Some(vec!["other"])), 0);
    }
}
