//! The load generator. Its issue comes next: nothing is here yet.
fn main() {
    eprintln!("corelog-bench: the load generator is not written yet");
    std::process::exit(2);
}
