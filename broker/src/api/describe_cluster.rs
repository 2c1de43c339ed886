//! DescribeCluster (60): the brokers of the cluster (KIP-700).
//!
//! Holds: the answer, as a function of the metadata image. Never touches: topics.

use std::rc::Rc;

use corelog_net::wire::messages::{DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse};
use corelog_net::wire::{Encoder, ErrorCode, Wire};

use super::common::{OPERATIONS_NOT_ASKED, Refusal, cluster_operations, controller_id};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::MetadataImage;
use crate::shard::Shard;

/// The endpoint of brokers (KIP-919); Kafka also has 2, of controllers.
const ENDPOINT_BROKER: i8 = 1;
const ENDPOINT_CONTROLLER: i8 = 2;

/// Answers DescribeCluster.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: DescribeClusterRequest,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    match check_endpoint(request.endpoint_type, context.version) {
        Ok(()) => answer(&shard.image(), context, &request).encode(out),
        Err(refusal) => DescribeClusterResponse {
            error_code: refusal.code,
            error_message: refusal.message.as_deref(),
            ..Default::default()
        }
        .encode(out),
    }
    Ok(())
}

/// KIP-919: a client says whom it believes to talk to. Version 0 cannot say anything but "brokers".
fn check_endpoint(endpoint_type: i8, version: i16) -> Result<(), Refusal> {
    let refuse = |code, message: String| {
        let code = if version == 0 { ErrorCode::InvalidRequest } else { code };
        Err(Refusal::new(code, message))
    };
    match endpoint_type {
        ENDPOINT_BROKER => Ok(()),
        ENDPOINT_CONTROLLER => refuse(
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER".into(),
        ),
        other => refuse(ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}")),
    }
}

fn answer<'a>(
    image: &'a MetadataImage,
    context: &RequestContext,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse<'a> {
    let brokers: Vec<DescribeClusterBroker<'a>> = image
        .brokers()
        .values()
        .filter_map(|broker| {
            let endpoint = broker.endpoint(&context.listener)?;
            Some(DescribeClusterBroker {
                broker_id: broker.id,
                host: &endpoint.host,
                port: i32::from(endpoint.port),
                rack: broker.rack.as_deref(),
                // KIP-1073: no broker is fenced before there is more than one.
                is_fenced: false,
            })
        })
        .collect();
    let controller = controller_id(image);
    let operations = if !request.include_cluster_authorized_operations {
        OPERATIONS_NOT_ASKED
    } else if authorize(context, Operation::Describe, Resource::Cluster) {
        cluster_operations(context)
    } else {
        0
    };
    DescribeClusterResponse {
        endpoint_type: ENDPOINT_BROKER,
        cluster_id: image.cluster_id(),
        // A controller that is not in the list would only confuse the client.
        controller_id: if brokers.iter().any(|broker| broker.broker_id == controller) { controller } else { -1 },
        brokers,
        cluster_authorized_operations: operations,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::{Cluster, context};
    use super::*;
    use corelog_net::wire::ApiKey;

    #[test]
    fn the_brokers_are_those_with_the_clients_listener() {
        let image = Cluster::of_one().broker(2, "INTERNAL").image();
        let context = context(ApiKey::DescribeCluster, 2);
        let response = answer(&image, &context, &DescribeClusterRequest::default());
        assert_eq!(response.brokers.iter().map(|b| (b.broker_id, b.host)).collect::<Vec<_>>(), [(1, "host-1")]);
        assert_eq!((response.controller_id, response.cluster_id), (1, "AAAAAAAAAAAAAAAAAAAAAQ"));
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
    }

    #[test]
    fn operations_come_when_asked_for() {
        let image = Cluster::of_one().image();
        let context = context(ApiKey::DescribeCluster, 1);
        let request = DescribeClusterRequest { include_cluster_authorized_operations: true, ..Default::default() };
        assert_eq!(answer(&image, &context, &request).cluster_authorized_operations, 8096);
    }

    #[test]
    fn another_endpoint_than_the_brokers_is_refused_with_the_error_of_the_version() {
        assert_eq!(check_endpoint(1, 1), Ok(()));
        let code = |endpoint, version| check_endpoint(endpoint, version).map_err(|refusal| refusal.code);
        assert_eq!(code(2, 1), Err(ErrorCode::MismatchedEndpointType));
        assert_eq!(code(3, 2), Err(ErrorCode::UnsupportedEndpointType));
        assert_eq!(code(0, 0), Err(ErrorCode::InvalidRequest));
    }
}
