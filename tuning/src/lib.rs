//! Host checks and core/partition maps.
