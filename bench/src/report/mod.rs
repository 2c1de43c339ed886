//! What people and programs get to see of a run.
//!
//! Holds: tables, files, pages, the progress line. Never touches: how figures came about.

pub mod disk;
pub mod files;
pub mod html;
pub mod out;
pub mod progress;
pub mod table;
