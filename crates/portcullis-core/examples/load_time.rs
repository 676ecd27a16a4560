use portcullis_core::detectors::{self, FAMILIES};
use portcullis_core::pack::{self, Pack};
use std::time::Instant;
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let t = Instant::now();
    for (kind, name, text) in FAMILIES {
        let t = Instant::now();
        detectors::parse(*kind, name, text).unwrap();
        println!("{name} {:?}", t.elapsed());
    }
    println!("parse all {:?}", t.elapsed());
    let t = Instant::now();
    let loaded = pack::load(&Pack {
        file: "x",
        text: &text,
        ..Pack::default()
    })
    .unwrap_or_else(|r| panic!("{r}"));
    println!(
        "load {:?} patterns {}",
        t.elapsed(),
        loaded.policy.scanner().len()
    );
    println!("{}", loaded.warnings);
    let t = Instant::now();
    println!("{} {:?}", loaded.policy.max_hold(), t.elapsed());
}
