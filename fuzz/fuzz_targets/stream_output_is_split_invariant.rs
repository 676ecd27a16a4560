//! For any text and any way of cutting it: what streams out is what the whole gives.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use portcullis_core::detectors::{self, Kind};
use portcullis_core::pack::{self, Pack};
use portcullis_core::{Context, Policy, StreamGuard};

/// Everything that judges a streamed answer, and a pattern that stops it.
static POLICY: LazyLock<Arc<Policy>> = LazyLock::new(|| {
    let families = |kind| detectors::names(kind).collect::<Vec<_>>().join(", ");
    let text = format!(
        "policy_pack: fuzz\nversion: '1'\nsync_rules:\n  \
         - {{id: secret-redaction, config: {{families: [{}]}}}}\n  \
         - {{id: pii-redaction, config: {{families: [{}], action: mask}}}}\n  \
         - id: injection-patterns\n    events: [llm_stream_chunk]\n    \
         config: {{families: [rfc]}}\n",
        families(Kind::Secrets),
        families(Kind::Pii),
    );
    let loaded = pack::load(&Pack {
        file: "fuzz.yaml",
        text: &text,
        ..Pack::default()
    });
    Arc::new(loaded.unwrap_or_else(|report| panic!("{report}")).policy)
});

fn stream(text: &str, cuts: &[u16]) -> (String, bool) {
    let mut guard = StreamGuard::new(Arc::clone(&POLICY), Context::new("r"));
    let mut out = String::new();
    let mut rest = text;
    for cut in cuts {
        let (chunk, later) = rest.split_at(rest.floor_char_boundary(usize::from(*cut)));
        rest = later;
        let released = guard.push(chunk);
        out.push_str(released.text);
        if released.halted {
            return (out, true);
        }
    }
    out.push_str(guard.push(rest).text);
    let tail = guard.finish();
    out.push_str(tail.text);
    (out, tail.halted)
}

fuzz_target!(|input: (&str, Vec<u16>)| {
    let (text, cuts) = input;
    assert_eq!(stream(text, &cuts), stream(text, &[]));
});
