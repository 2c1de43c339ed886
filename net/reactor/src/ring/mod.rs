//! The io_uring driver.
