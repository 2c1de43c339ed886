//! Load: who sends what when, and what is counted.
//!
//! Holds: schedules, the producing and consuming engines, the window that is measured. Never touches: files, reports.
//!
//! **Open loop.** A schedule says when each batch (or record) is due, whatever the broker does. What can't be sent at its
//! time waits, and its latency counts from when it was due: a broker that stalls for a second is charged with every record
//! that was due in that second, not with the one that happened to be in flight. Tools that stamp at the actual sending
//! leave those out (coordinated omission); that figure is shown beside it as *service time*.
//!
//! ```text
//!   schedule ──due──► lane (one connection): [due | due | in flight ...] ──send──► broker
//!                        ▲                                                           │
//!                        └──────────────── answer: now - due, now - sent ◄───────────┘
//! ```

pub mod check;
pub mod consume;
pub mod control;
pub mod ending;
pub mod heads;
mod lane;
pub mod produce;
pub mod ranges;
pub mod recorder;
pub mod ride;
pub mod run;
pub mod schedule;
pub mod send_list;
pub mod set_up;
