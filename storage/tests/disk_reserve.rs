//! Holds: the reserve of a data folder while several tasks fill it and give it up at the same time: it never counts as whole
//! without its file. Never touches: what it is spent for (see the broker's `faulty_disk`).

mod log_common;

use corelog_reactor::Reactor;
use corelog_storage::disk::reserve::{RESERVE_FILE, Reserve};
use log_common::ring;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Rounds of each: the moments differ from round to round.
const ROUNDS: u64 = 60;

/// Fills it in a task of its own. The mark is set when that is over.
fn fill_beside(reactor: &Reactor, reserve: &Reserve) -> Rc<Cell<bool>> {
    let done = Rc::new(Cell::new(false));
    let (own, reserve, over) = (reactor.clone(), reserve.clone(), Rc::clone(&done));
    let task = async move {
        // It may be refused: the reserve was given up meanwhile.
        let _ = reserve.fill(&own).await;
        over.set(true);
    };
    reactor.spawn(task).expect("a task");
    done
}

fn assert_whole_or_spent(folder: &Path, reserve: &Reserve, round: u64) {
    let is_there = folder.join(RESERVE_FILE).exists();
    assert!(is_there || reserve.is_spent(), "round {round}: it counts as whole, and its file is not there");
}

#[test]
fn two_that_fill_it_do_not_remove_each_others_file() {
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder");
        let (reactor, reserve) = (ring(), Reserve::new(folder.path(), 0));
        let done = fill_beside(&reactor, &reserve);
        reactor.block_on(async {
            reactor.sleep(Duration::from_micros(round * 20)).await;
            reserve.fill(&reactor).await.expect("there is space");
            while !done.get() {
                reactor.yield_now().await;
            }
        });
        assert_whole_or_spent(folder.path(), &reserve, round);
        assert!(!reserve.is_spent(), "round {round}: nobody gave it up");
        reactor.shutdown();
    }
}

#[test]
fn given_up_while_it_is_filled_it_is_spent_or_whole_but_never_missing() {
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder");
        let (reactor, reserve) = (ring(), Reserve::new(folder.path(), 0));
        let done = fill_beside(&reactor, &reserve);
        reactor.block_on(async {
            reactor.sleep(Duration::from_micros(round * 40)).await;
            let first = Cell::new(true);
            let work = async || match first.replace(false) {
                true => Err(io::Error::from(io::ErrorKind::StorageFull)),
                false => Ok(()),
            };
            let is_no_space = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
            reserve.spend(&reactor, is_no_space, work).await.expect("the second try works");
            while !done.get() {
                reactor.yield_now().await;
            }
        });
        assert_whole_or_spent(folder.path(), &reserve, round);
        reactor.shutdown();
    }
}
