//! IncrementalAlterConfigs (44): changes single properties of resources (KIP-339).
//!
//! Holds: what the wire's operations mean, and loggers. Never touches: which properties there are (the controller checks).

use std::rc::Rc;

use corelog_net::wire::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResource, IncrementalAlterConfigsResponse,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};

use super::alter_configs::{Answered, Plan, alterable};
use super::common::Refusal;
use super::{ApiFailure, RequestContext};
use crate::controller;
use crate::controller::request::{ChangedConfig, ConfigChange, ConfigOperation, IncrementalAlterConfigs};
use crate::shard::Shard;

/// The resource type of a broker's loggers (KIP-412).
const BROKER_LOGGER: i8 = 8;

/// Answers IncrementalAlterConfigs, when the changes are durable and known to every core.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let IncrementalAlterConfigsRequest { resources, validate_only } = request;
    let mut plan = Plan::default();
    for resource in &resources {
        plan.add(resource.resource_type, resource.resource_name, changed(context, resource));
    }
    let ask =
        |resources| controller::Request::IncrementalAlterConfigs(IncrementalAlterConfigs { resources, validate_only });
    let answered = plan.carry_out(shard, ask).await;
    let responses = answered.iter().map(Answered::encode).collect();
    IncrementalAlterConfigsResponse { responses, ..Default::default() }.encode(out);
    Ok(())
}

fn changed(context: &RequestContext, resource: &IncrementalAlterConfigsResource<'_>) -> Result<ChangedConfig, Refusal> {
    if resource.resource_type == BROKER_LOGGER {
        // By intent (docs/wire.md, deviations).
        let message = "Log levels cannot be changed while the broker runs";
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    let change = |config: &corelog_net::wire::messages::IncrementalAlterableConfig<'_>| {
        let operation = ConfigOperation::from_id(config.config_operation).ok_or_else(|| {
            let message = format!("Unknown operations type {}", config.config_operation);
            Refusal::new(ErrorCode::InvalidRequest, message)
        })?;
        Ok(ConfigChange { name: config.name.to_owned(), operation, value: config.value.map(str::to_owned) })
    };
    Ok(ChangedConfig {
        resource: alterable(context, resource.resource_type, resource.resource_name)?,
        changes: resource.configs.iter().map(change).collect::<Result<_, Refusal>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::context;
    use super::*;
    use corelog_net::wire::ApiKey;
    use corelog_net::wire::messages::IncrementalAlterableConfig;

    fn change_of(resource_type: i8, config_operation: i8) -> Result<ChangedConfig, Refusal> {
        let config = IncrementalAlterableConfig { name: "retention.ms", config_operation, value: Some("1") };
        let resource = IncrementalAlterConfigsResource { resource_type, resource_name: "a", configs: vec![config] };
        changed(&context(ApiKey::IncrementalAlterConfigs, 1), &resource)
    }

    #[test]
    fn an_operation_is_one_of_four() {
        let operation = |id| change_of(2, id).map(|changed| changed.changes.first().map(|change| change.operation));
        assert_eq!(operation(0), Ok(Some(ConfigOperation::Set)));
        assert_eq!(operation(3), Ok(Some(ConfigOperation::Subtract)));
        assert_eq!(operation(4), Err(Refusal::new(ErrorCode::InvalidRequest, "Unknown operations type 4")));
        assert!(operation(-1).is_err());
    }

    #[test]
    fn log_levels_are_set_at_start_alone() {
        assert_eq!(change_of(8, 0).map_err(|refusal| refusal.code), Err(ErrorCode::InvalidRequest));
    }
}
