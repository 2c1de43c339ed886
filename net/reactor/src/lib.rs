//! One core of the machine: ring, executor, timers, mailboxes, buffer pools, and the driver seam.
