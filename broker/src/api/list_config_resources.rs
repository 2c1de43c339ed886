//! ListConfigResources (74): what has, or can have, a configuration (KIP-1142).
//!
//! Holds: the answer, as a function of the metadata image. Never touches: the configurations themselves.

use std::rc::Rc;

use corelog_net::wire::messages::{ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse};
use corelog_net::wire::{Encoder, ErrorCode, Wire};

use super::common::topics_by_name;
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::{MetadataImage, ResourceKind};
use crate::shard::Shard;

const TOPIC: i8 = ResourceKind::Topic.id();
const BROKER: i8 = ResourceKind::Broker.id();
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = ResourceKind::ClientMetrics.id();
const GROUP: i8 = ResourceKind::Group.id();

/// Answers ListConfigResources.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: ListConfigResourcesRequest,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let listed = if authorize(context, Operation::DescribeConfigs, Resource::Cluster) {
        list(&shard.image(), context, &request.resource_types)
    } else {
        Err(ErrorCode::ClusterAuthorizationFailed)
    };
    let (error_code, resources) = match listed {
        Ok(resources) => (ErrorCode::None, resources),
        Err(code) => (code, Vec::new()),
    };
    let config_resources = resources
        .iter()
        .map(|(resource_type, name)| ConfigResource { resource_name: name, resource_type: *resource_type })
        .collect();
    ListConfigResourcesResponse { error_code, config_resources, ..Default::default() }.encode(out);
    Ok(())
}

/// The resources of these kinds; of every kind if none is named.
fn list(image: &MetadataImage, context: &RequestContext, wanted: &[i8]) -> Result<Vec<(i8, String)>, ErrorCode> {
    // Version 0 is ListClientMetricsResources (KIP-714), which knew no other kind.
    let known: &[i8] = match context.version {
        0 => &[CLIENT_METRICS],
        _ => &[GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC],
    };
    if wanted.iter().any(|kind| !known.contains(kind)) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let kinds = known.iter().filter(|kind| wanted.is_empty() || wanted.contains(kind));
    Ok(kinds.flat_map(|&kind| names(image, context, kind).into_iter().map(move |name| (kind, name))).collect())
}

fn names(image: &MetadataImage, context: &RequestContext, kind: i8) -> Vec<String> {
    match kind {
        TOPIC => topics_by_name(image).into_iter().map(|topic| topic.name.to_string()).collect(),
        BROKER | BROKER_LOGGER => {
            let brokers = image.brokers().values();
            brokers.filter(|b| b.endpoint(&context.listener).is_some()).map(|b| b.id.to_string()).collect()
        }
        // Groups and client metrics subscriptions exist here as far as something has been set for them.
        _ => {
            let set = image.configs().filter(|(resource, _)| resource.kind.id() == kind);
            let mut names: Vec<String> = set.map(|(resource, _)| resource.name.to_string()).collect();
            names.sort_unstable();
            names
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::{Cluster, context};
    use super::*;
    use corelog_net::wire::ApiKey;

    #[test]
    fn version_1_lists_every_kind_when_none_is_named() {
        let image = Cluster::of_one().topic("b", &[&[1]]).topic("a", &[&[1]]).image();
        let context = context(ApiKey::ListConfigResources, 1);
        let listed = list(&image, &context, &[]);
        let expected = [(8, "1"), (4, "1"), (2, "a"), (2, "b")].map(|(kind, name)| (kind, name.to_owned()));
        assert_eq!(listed, Ok(expected.to_vec()));
    }

    #[test]
    fn version_0_lists_client_metrics_alone() {
        let image = Cluster::of_one().topic("a", &[&[1]]).image();
        let context = context(ApiKey::ListConfigResources, 0);
        assert_eq!(list(&image, &context, &[]), Ok(vec![]));
    }

    #[test]
    fn a_kind_that_does_not_exist_is_an_unsupported_version() {
        let image = Cluster::of_one().image();
        let context = context(ApiKey::ListConfigResources, 1);
        assert_eq!(list(&image, &context, &[TOPIC, 3]), Err(ErrorCode::UnsupportedVersion));
    }
}
