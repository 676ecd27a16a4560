//! What the memory in a file does beyond what every memory does.

use crate::{conformance, memories};

#[test]
fn it_is_a_memory() {
    conformance::all(|directory| Box::new(memories::open(directory)));
}
