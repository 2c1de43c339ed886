//! What a request asks of single partitions, wherever those are.
//!
//! Holds: which items go to partitions, and which were refused before. Never touches: what is asked or answered.

use std::rc::Rc;

use corelog_net::wire::ErrorCode;

use crate::partition::call::{PartitionAnswer, PartitionCall, PartitionKey};
use crate::shard::Shard;

/// One call for each partition that the request names, in the request's order; or why there is none.
pub struct PartitionCalls<E> {
    calls: Vec<(PartitionKey, PartitionCall)>,
    items: Vec<Result<(), E>>,
}

impl<E> Default for PartitionCalls<E> {
    fn default() -> Self {
        Self { calls: Vec::new(), items: Vec::new() }
    }
}

impl<E: From<ErrorCode>> PartitionCalls<E> {
    /// The request's next partition: what to ask of it, or why it is refused here.
    pub fn add(&mut self, call: Result<(PartitionKey, PartitionCall), E>) {
        self.items.push(call.map(|call| self.calls.push(call)));
    }

    /// Asks the partitions' owners. One outcome for each partition of the request, in its order; `kind` takes what was
    /// asked for out of an answer.
    pub async fn carry_out<T>(
        self,
        shard: &Rc<Shard>,
        kind: impl Fn(PartitionAnswer) -> Option<T>,
    ) -> impl Iterator<Item = Result<T, E>> {
        let mut answers = shard.call(self.calls).await.into_iter();
        self.items.into_iter().map(move |item| {
            item?;
            match answers.next() {
                Some(PartitionAnswer::Failed(code)) => Err(code.into()),
                answer => answer.and_then(&kind).ok_or_else(|| ErrorCode::UnknownServerError.into()),
            }
        })
    }
}
