//! What `docs/evidence.md` shows is what the code does.

use portcullis_core::evidence::{Body, Chain, Redactor, Verifier};
use serde_json::{Map, Value};

const PAGE: &str = include_str!("../../../../docs/evidence.md");

#[test]
fn the_entries_on_the_page_are_a_chain() {
    let (_, rest) = PAGE.split_once("```json\n").unwrap();
    let (entries, _) = rest.split_once("```").unwrap();
    let mut verifier = Verifier::new(Chain::START.head());
    let mut chain = Chain::START;
    for line in entries.lines() {
        verifier.entry(line.as_bytes()).unwrap();
        let mut members: Map<String, Value> = serde_json::from_str(line).unwrap();
        members.retain(|name, _| !["seq", "prev", "digest"].contains(&name.as_str()));
        let mut out = Vec::new();
        let body = Body::new(&members, &Redactor::new().unwrap()).unwrap();
        chain.append(&body, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{line}\n"));
    }
    assert_eq!(verifier.head().seq, 2);
}
