//! How much of an A2A packet is read: `a2a`.

use portcullis_core::a2a::Limits;
use portcullis_core::pack::diagnostic::Diagnostics;
use portcullis_core::pack::yaml::{MapReader, Node};

const DEPTH: &str = "max_json_depth";

pub(super) fn a2a(node: &Node, d: &mut Diagnostics) -> Limits {
    let limits = Limits::default();
    let Some(mut map) = MapReader::open(node, "`a2a`", d) else {
        return limits;
    };
    let payload_bytes = map.count("max_payload_bytes", d);
    let depth = map.count(DEPTH, d);
    let array_length = map.count("max_array_length", d);
    let read = Limits::new(
        payload_bytes.unwrap_or(limits.max_payload_bytes()),
        depth.unwrap_or(limits.max_depth()),
        array_length.unwrap_or(limits.max_array_length()),
    );
    if let Err(error) = &read {
        // Depth alone has a bound.
        let place = map.key_place(DEPTH).unwrap_or_default();
        d.error(place, error.to_string());
    }
    map.finish(d);
    read.unwrap_or(limits)
}
