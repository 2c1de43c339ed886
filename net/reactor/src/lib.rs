//! One core of the machine: ring, executor, timers, mailboxes, buffer pools, and the driver seam.
//!
//! Holds: everything that waits. Never touches: Kafka, files' contents, policies.
//!
//! A [`Reactor`] is one thread's executor. It runs on a [`Driver`]: the ring ([`ring::RingDriver`]) in production, the
//! simulated world ([`sim::SimWorld`]) in tests. The loop is the owner's and has this order:
//!
//! ```text
//! reactor.reap();              completions -> wakers; the turn's clock
//! ...receive mail...
//! reactor.run_tasks();         first in, first out, bounded
//! ...end of turn...
//! port.wake_peers(&reactor);   peers that sleep and were sent mail
//! reactor.park(&port);         submit; sleep unless there is work
//! ```
//!
//! Read in this order: [`driver`], `op.rs`, [`Reactor`], `executor.rs`, [`MailPort`], then `ring/` and `sim/`.

mod buddy;
pub mod buf;
pub mod driver;
mod executor;
mod file;
mod ids;
mod mail;
mod net;
mod notify;
mod op;
mod pin;
mod pipe;
mod pool;
mod reactor;
mod readiness;
pub mod ring;
mod shared_file;
pub mod sim;
mod stalls;
mod time;
mod timers;
mod wake;
mod warm;

pub use buf::{BufSlice, IOVECS_MAX, IoBufMut, IoBufs, IoVecs};
pub use driver::{Advice, DirEntry, Driver, Durability, OpenHow};
pub use executor::TasksFull;
pub use file::File;
pub use ids::{Handle, OpToken, ShardId, WakeTarget};
pub use mail::{Mail, MailFull, MailPort, NoMail, mail_mesh};
pub use net::{ListenHow, Listener, RawConn, Stream};
pub use notify::{Notified, Notify};
pub use pin::{CoreId, available_cores, pin_to_core};
pub use pipe::{Pipe, RawPipe};
pub use pool::{AlignedBuf, BUFFER_ALIGN, BufferPool, PoolExhausted};
pub use reactor::{Counters, Reactor, ReactorLimits};
pub use shared_file::{SharedFile, WeakSharedFile};
pub use stalls::StallSnapshot;
pub use time::{Monotonic, UnixMillis};
pub use timers::Sleep;
pub use wake::RemoteWaker;
