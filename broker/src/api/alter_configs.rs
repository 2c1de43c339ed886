//! AlterConfigs (33): replaces the configuration of resources as a whole. Clients prefer IncrementalAlterConfigs (KIP-339).
//!
//! Holds: the way from the wire to the controller and back, shared with the incremental kind. Never touches: which
//! properties there are (the controller checks them).

use std::rc::Rc;

use corelog_net::wire::messages::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};

use super::common::{CONTROLLER_GONE, Refusal};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::request::{AlterConfigs, ReplacedConfig};
use crate::controller::{self, ConfigResource, ResourceKind};
use crate::shard::Shard;

/// Answers AlterConfigs, when the changes are durable and known to every core.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: AlterConfigsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let mut plan = Plan::default();
    for resource in &request.resources {
        plan.add(replaced(context, resource));
    }
    let (resources, plan) = plan.split();
    let asked = AlterConfigs { resources, validate_only: request.validate_only };
    let refusals = plan.carry_out(shard, controller::Request::AlterConfigs(asked)).await;
    let responses = request
        .resources
        .iter()
        .zip(&refusals)
        .map(|(resource, refusal)| encode(resource.resource_type, resource.resource_name, refusal.as_ref()))
        .collect();
    AlterConfigsResponse { responses, ..Default::default() }.encode(out);
    Ok(())
}

fn replaced(context: &RequestContext, resource: &AlterConfigsResource<'_>) -> Result<ReplacedConfig, Refusal> {
    let configs = resource.configs.iter().map(|c| (c.name.to_owned(), c.value.map(str::to_owned)));
    Ok(ReplacedConfig {
        resource: alterable(context, resource.resource_type, resource.resource_name)?,
        configs: configs.collect(),
    })
}

/// A resource whose stored configuration the client may change.
pub(super) fn alterable(context: &RequestContext, kind: i8, name: &str) -> Result<ConfigResource, Refusal> {
    let kind = ResourceKind::from_id(kind)
        .ok_or_else(|| Refusal::new(ErrorCode::InvalidRequest, format!("Unknown resource type {kind}")))?;
    let (resource, code) = match kind {
        ResourceKind::Topic => (Resource::Topic(name), ErrorCode::TopicAuthorizationFailed),
        ResourceKind::Broker | ResourceKind::ClientMetrics | ResourceKind::Group => {
            (Resource::Cluster, ErrorCode::ClusterAuthorizationFailed)
        }
    };
    if authorize(context, Operation::AlterConfigs, resource) {
        Ok(ConfigResource { kind, name: name.into() })
    } else {
        Err(Refusal::new(code, code.message()))
    }
}

/// Which resources of a request go to the controller, and what the others are answered.
pub(super) struct Plan<T> {
    asked: Vec<T>,
    steps: Vec<Option<Refusal>>,
}

impl<T> Default for Plan<T> {
    fn default() -> Self {
        Self { asked: Vec::new(), steps: Vec::new() }
    }
}

impl<T> Plan<T> {
    /// The next resource: a change to ask for, or why it is refused here.
    pub(super) fn add(&mut self, step: Result<T, Refusal>) {
        let refusal = step.map(|change| self.asked.push(change)).err();
        self.steps.push(refusal);
    }

    /// The changes to ask for, and what waits for their results.
    pub(super) fn split(self) -> (Vec<T>, Steps) {
        (self.asked, Steps(self.steps))
    }
}

/// One step a resource of the request: `None` waits for the controller.
pub(super) struct Steps(Vec<Option<Refusal>>);

impl Steps {
    /// Asks the controller; returns for each resource of the request why it was refused, if it was.
    pub(super) async fn carry_out(self, shard: &Rc<Shard>, asked: controller::Request) -> Vec<Option<Refusal>> {
        let (mut results, gone) = match shard.controller(asked).await {
            Ok(controller::Response::AlterConfigs(results)) => (results.into_iter(), CONTROLLER_GONE),
            other => (Vec::new().into_iter(), other.err().unwrap_or(CONTROLLER_GONE)),
        };
        let step = |refused: Option<Refusal>| match refused {
            Some(refusal) => Some(refusal),
            None => match results.next() {
                Some((_, Ok(()))) => None,
                Some((_, Err(error))) => Some(Refusal::by_controller(error.class(), &error)),
                None => Some(Refusal { code: gone, message: None }),
            },
        };
        self.0.into_iter().map(step).collect()
    }
}

/// The answer for one resource.
pub(super) fn encode<'a>(
    resource_type: i8,
    resource_name: &'a str,
    refusal: Option<&'a Refusal>,
) -> AlterConfigsResourceResponse<'a> {
    AlterConfigsResourceResponse {
        error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code),
        error_message: refusal.and_then(|refusal| refusal.message.as_deref()),
        resource_type,
        resource_name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::context;
    use super::*;
    use corelog_net::wire::ApiKey;

    #[test]
    fn kinds_without_a_stored_configuration_are_refused() {
        let context = context(ApiKey::AlterConfigs, 2);
        assert_eq!(alterable(&context, 2, "a"), Ok(ConfigResource::topic("a")));
        assert_eq!(alterable(&context, 4, ""), Ok(ConfigResource::cluster_default()));
        let unknown = |kind: i8| Err(Refusal::new(ErrorCode::InvalidRequest, format!("Unknown resource type {kind}")));
        assert_eq!(alterable(&context, 8, "1"), unknown(8), "broker loggers are altered incrementally alone");
        assert_eq!(alterable(&context, 0, "1"), unknown(0));
    }
}
