//! What people read, on standard output. Holds: nothing. Whoever closes it early (`| head`) has had enough: that is no failure,
//! and must not cost the files that are still to be written.

use std::fmt::Arguments;
use std::io::{Write, stdout};

/// Says it; see [`say!`](crate::say).
pub fn say(text: Arguments<'_>) {
    let mut out = stdout().lock();
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}

/// `print!`, to somebody who may be gone.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::report::out::say(format_args!($($text)*)) };
}
