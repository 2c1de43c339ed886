//! Answers what other shards (and this one) ask.
//!
//! Holds: the one match over [`Ask`], the fetches that run here for others, the images that wait to be applied. Never
//! touches: how the answer travels.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use corelog_reactor::{Notify, ShardId};
use rustc_hash::FxHashMap;

use super::mail::{Answer, Ask, AskId};
use super::{Shard, apply, controlling};
use crate::api::fetch;
use crate::controller::MetadataImage;
use crate::partition::{call, produce, read};

/// What this shard does for others that takes time.
#[derive(Default)]
pub struct Serving {
    /// Fetches that others can call off. Bounded as the asks that they answer.
    fetches: RefCell<FxHashMap<(ShardId, AskId), Rc<Notify>>>,
    /// Images to apply, oldest first. The controller sends the next one when the last one is in force: one at a time.
    images: RefCell<VecDeque<(ShardId, AskId, Arc<MetadataImage>)>>,
    arrived: Notify,
}

impl Serving {
    /// Fetches under way for other shards.
    pub fn fetches(&self) -> usize {
        self.fetches.borrow().len()
    }
}

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
            let on = Rc::clone(shard);
            answer_later(shard, from, id, async move { Answer::Call(call::execute_all(&on, calls).await) });
        }
        Ask::Controller(request) => controlling::enqueue(shard, from, id, *request),
        Ask::Fetch(ask) => {
            let (on, called_off) = (Rc::clone(shard), Rc::new(Notify::new()));
            shard.serving.fetches.borrow_mut().insert((from, id), Rc::clone(&called_off));
            answer_later(shard, from, id, async move {
                let done = fetch::run(&on, *ask, pin!(called_off.notified())).await;
                on.serving.fetches.borrow_mut().remove(&(from, id));
                Answer::Fetch(Box::new(done))
            });
        }
        Ask::Apply(image) => {
            shard.serving.images.borrow_mut().push_back((from, id, image));
            shard.serving.arrived.notify();
        }
    }
}

/// Shard `from` is not interested in the answer to its ask any more: a watch is forgotten, a fetch answers with what
/// there is. Other asks are short; for them there is nothing to do.
pub fn call_off(shard: &Shard, from: ShardId, id: AskId) {
    shard.watches.borrow_mut().cancel(from, id);
    if let Some(fetch) = shard.serving.fetches.borrow().get(&(from, id)) {
        fetch.notify();
    }
}

/// Answers from a task; with [`Answer::Busy`] if there is no room for another: an ask is never left without an answer.
pub fn answer_later(shard: &Rc<Shard>, from: ShardId, id: AskId, answer: impl Future<Output = Answer> + 'static) {
    let on = Rc::clone(shard);
    let task = async move {
        let answer = answer.await;
        on.deliver_answer(from, id, answer);
    };
    if !shard.spawn(task) {
        shard.serving.fetches.borrow_mut().remove(&(from, id));
        shard.deliver_answer(from, id, Answer::Busy);
    }
}

/// Applies images one by one until the shard ends: a task of its own from the start, so that no image is ever left out
/// because the task table is full.
pub async fn apply_images(shard: Rc<Shard>) {
    loop {
        let next = shard.serving.images.borrow_mut().pop_front();
        let Some((from, id, image)) = next else {
            shard.serving.arrived.notified().await;
            continue;
        };
        apply::apply(&shard, image).await;
        shard.deliver_answer(from, id, Answer::Apply);
    }
}
