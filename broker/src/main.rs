//! The `corelog` command.
fn main() {}
