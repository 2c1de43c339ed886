//! Answers what other shards (and this one) ask.
//!
//! Holds: the one match over [`Ask`]. Never touches: how the answer travels.

use std::rc::Rc;

use corelog_reactor::ShardId;

use super::mail::{Answer, Ask, AskId};
use super::{Shard, apply, controlling};
use crate::api::fetch;
use crate::partition::{call, produce, read};

/// Serves one ask from shard `from`. What can be answered at once is; the rest answers from a task.
pub fn serve(shard: &Rc<Shard>, from: ShardId, id: AskId, ask: Ask) {
    match ask {
        Ask::Produce(entries) => produce::serve_group(shard, from, id, entries),
        Ask::Read { reads, bytes_max } => read::serve_group(shard, from, id, reads, bytes_max),
        Ask::ReadDisk(reads) => read::serve_disk_group(shard, from, id, reads),
        Ask::Watch(entries) => {
            if entries.iter().any(|entry| read::has_moved(shard, entry)) {
                shard.deliver_answer(from, id, Answer::Watch);
            } else {
                let keys = entries.into_iter().map(|entry| entry.key).collect();
                shard.watches.borrow_mut().open(from, id, keys);
            }
        }
        Ask::Call(calls) => {
            let shard = Rc::clone(shard);
            shard.clone().spawn(async move {
                let answers = call::execute_all(&shard, calls).await;
                shard.deliver_answer(from, id, Answer::Call(answers));
            });
        }
        Ask::Controller(request) => controlling::enqueue(shard, from, id, *request),
        Ask::Fetch(ask) => {
            let shard = Rc::clone(shard);
            shard.clone().spawn(async move {
                let done = fetch::run(&shard, *ask).await;
                shard.deliver_answer(from, id, Answer::Fetch(Box::new(done)));
            });
        }
        Ask::Apply(image) => {
            let shard = Rc::clone(shard);
            shard.clone().spawn(async move {
                apply::apply(&shard, image).await;
                shard.deliver_answer(from, id, Answer::Apply);
            });
        }
    }
}
