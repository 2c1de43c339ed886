//! Binding the current thread to a core.
//!
//! Holds: the cores this process may use. Never touches: which shard goes where.

/// A core by the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CoreId(pub usize);

/// The cores this process may run on, in order.
pub fn available_cores() -> Vec<CoreId> {
    let mut cores: Vec<CoreId> =
        core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| CoreId(core.id)).collect();
    cores.sort_unstable();
    cores
}

/// Binds the current thread to `core`. False: the kernel refused (no such core, or not ours).
pub fn pin_to_core(core: CoreId) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: core.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_the_core_it_was_pinned_to() {
        let last = *available_cores().last().unwrap();
        let pinned = std::thread::spawn(move || {
            assert!(pin_to_core(last));
            // SAFETY: no arguments, no preconditions.
            unsafe { libc::sched_getcpu() }
        });
        assert_eq!(pinned.join().unwrap(), last.0 as i32);
    }
}
