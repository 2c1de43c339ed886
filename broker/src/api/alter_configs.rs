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
    let AlterConfigsRequest { resources, validate_only } = request;
    let mut plan = Plan::default();
    for resource in &resources {
        plan.add(resource.resource_type, resource.resource_name, replaced(context, resource));
    }
    let ask = |resources| controller::Request::AlterConfigs(AlterConfigs { resources, validate_only });
    let answered = plan.carry_out(shard, ask).await;
    let responses = answered.iter().map(Answered::encode).collect();
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
pub(super) struct Plan<'a, T> {
    asked: Vec<T>,
    resources: Vec<Answered<'a>>,
}

impl<T> Default for Plan<'_, T> {
    fn default() -> Self {
        Self { asked: Vec::new(), resources: Vec::new() }
    }
}

impl<'a, T> Plan<'a, T> {
    /// The request's next resource: a change to ask for, or why it is refused here.
    pub(super) fn add(&mut self, kind: i8, name: &'a str, change: Result<T, Refusal>) {
        let refusal = change.map(|change| self.asked.push(change)).err();
        self.resources.push(Answered { kind, name, refusal });
    }

    /// Asks the controller; each resource of the request, in its order, with what became of it.
    pub(super) async fn carry_out(
        self,
        shard: &Rc<Shard>,
        ask: impl FnOnce(Vec<T>) -> controller::Request,
    ) -> Vec<Answered<'a>> {
        let (mut results, gone) = match shard.controller(ask(self.asked)).await {
            Ok(controller::Response::AlterConfigs(results)) => (results.into_iter(), CONTROLLER_GONE),
            other => (Vec::new().into_iter(), other.err().unwrap_or(CONTROLLER_GONE)),
        };
        let mut resources = self.resources;
        for resource in resources.iter_mut().filter(|resource| resource.refusal.is_none()) {
            resource.refusal = match results.next() {
                Some((_, Ok(()))) => None,
                Some((_, Err(error))) => Some(Refusal::by_controller(error.class(), &error)),
                None => Some(gone.into()),
            };
        }
        resources
    }
}

/// A resource of the request, and why it was refused, if it was.
pub(super) struct Answered<'a> {
    kind: i8,
    name: &'a str,
    refusal: Option<Refusal>,
}

impl Answered<'_> {
    pub(super) fn encode(&self) -> AlterConfigsResourceResponse<'_> {
        AlterConfigsResourceResponse {
            error_code: self.refusal.as_ref().map_or(ErrorCode::None, |refusal| refusal.code),
            error_message: self.refusal.as_ref().and_then(|refusal| refusal.message.as_deref()),
            resource_type: self.kind,
            resource_name: self.name,
        }
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
