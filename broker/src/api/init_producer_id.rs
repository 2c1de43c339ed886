//! InitProducerId (22): an id for an idempotent producer (KIP-98).
//!
//! Holds: the rules of the request. Never touches: how ids are handed out (the shard has a durable block of them).

use std::rc::Rc;

use corelog_net::wire::messages::{InitProducerIdRequest, InitProducerIdResponse};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::ids::{ProducerEpoch, ProducerId};

use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::shard::Shard;

/// Answers InitProducerId.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: InitProducerIdRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    // Whatever id and epoch the producer had, it gets a new id: without a transactional id there is nothing to go on with.
    let given = match check(context, &request) {
        Ok(()) => shard.next_producer_id().await,
        Err(code) => Err(code),
    };
    match given {
        Ok(id) => InitProducerIdResponse { producer_id: id.0, producer_epoch: 0, ..Default::default() },
        Err(code) => InitProducerIdResponse {
            error_code: code,
            producer_id: ProducerId::NONE.0,
            producer_epoch: ProducerEpoch::NONE.0,
            ..Default::default()
        },
    }
    .encode(out);
    Ok(())
}

fn check(context: &RequestContext, request: &InitProducerIdRequest<'_>) -> Result<(), ErrorCode> {
    if let Some(id) = request.transactional_id
        && !authorize(context, Operation::Write, Resource::TransactionalId(id))
    {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    if request.transactional_id.is_none() && !authorize(context, Operation::IdempotentWrite, Resource::Cluster) {
        return Err(ErrorCode::ClusterAuthorizationFailed);
    }
    // KIP-360: id and epoch come together or not at all. Below version 3 there are none.
    let has_id = request.producer_id != ProducerId::NONE.0;
    let has_epoch = request.producer_epoch != ProducerEpoch::NONE.0;
    if has_id != has_epoch {
        return Err(ErrorCode::InvalidRequest);
    }
    match request.transactional_id {
        None => Ok(()),
        Some("") => Err(ErrorCode::InvalidRequest),
        // By intent until transactions are offered (docs/wire.md, deviations): for good, so that the client does not retry.
        Some(_) => Err(ErrorCode::UnsupportedVersion),
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::context;
    use super::*;
    use corelog_net::wire::ApiKey;

    fn checked(request: &InitProducerIdRequest<'_>) -> Result<(), ErrorCode> {
        check(&context(ApiKey::InitProducerId, 5), request)
    }

    #[test]
    fn an_idempotent_producer_gets_an_id_whatever_it_had() {
        let new = InitProducerIdRequest { transactional_id: None, ..Default::default() };
        assert_eq!(checked(&new), Ok(()));
        assert_eq!(checked(&InitProducerIdRequest { producer_id: 7, producer_epoch: 0, ..new }), Ok(()));
    }

    #[test]
    fn an_id_without_an_epoch_is_refused_and_an_epoch_without_an_id() {
        for (producer_id, producer_epoch) in [(7, -1), (-1, 7)] {
            let request =
                InitProducerIdRequest { transactional_id: None, producer_id, producer_epoch, ..Default::default() };
            assert_eq!(checked(&request), Err(ErrorCode::InvalidRequest));
        }
    }

    #[test]
    fn transactions_are_not_offered() {
        let with = |id| InitProducerIdRequest { transactional_id: Some(id), ..Default::default() };
        assert_eq!(checked(&with("")), Err(ErrorCode::InvalidRequest));
        assert_eq!(checked(&with("t")), Err(ErrorCode::UnsupportedVersion));
    }
}
