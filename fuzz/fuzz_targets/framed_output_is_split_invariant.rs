//! However the bytes of a framed answer are cut, the same comes out of them, and it ends the same way.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use portcullis_core::{
    Context, FramedGuard, Framing, FramingError, Policy, StreamGuard, TextPath, pack,
};

static POLICY: LazyLock<Arc<Policy>> =
    LazyLock::new(|| Arc::new(pack::load_default().unwrap().policy));

fn framing(which: u8) -> Framing {
    match which % 6 {
        0 => Framing::Text,
        1 => Framing::Sse(TextPath::openai_chat()),
        2 => Framing::Sse(TextPath::openai_responses()),
        3 => Framing::Sse(TextPath::anthropic()),
        4 => Framing::JsonLines(TextPath::ollama()),
        _ => Framing::JsonLines(TextPath::new().text("/t", &["/i"]).end("/e", &["/i"])),
    }
}

fn run<'c>(
    which: u8,
    chunks: impl Iterator<Item = &'c [u8]>,
) -> (Vec<u8>, Result<bool, FramingError>) {
    let mut guard = FramedGuard::new(framing(which), || {
        StreamGuard::new(Arc::clone(&POLICY), Context::new("r"))
    });
    let mut out = Vec::new();
    for chunk in chunks.map(Some).chain([None]) {
        let released = match chunk {
            Some(bytes) => guard.push(bytes),
            None => guard.finish(),
        };
        match released {
            Ok(released) => out.extend_from_slice(released.bytes),
            Err(error) => return (out, Err(error)),
        }
    }
    let halted = guard.finish().unwrap().halted;
    (out, Ok(halted))
}

fuzz_target!(|input: (u8, Vec<u8>, &[u8])| {
    let (which, sizes, bytes) = input;
    let mut sizes = sizes.into_iter().chain(std::iter::repeat(1));
    let mut rest = bytes;
    let chunks = std::iter::from_fn(|| {
        let size = usize::from(sizes.next()?).clamp(1, rest.len().max(1));
        let (chunk, later) = rest.split_at_checked(size)?;
        rest = later;
        Some(chunk)
    });
    let (cut, whole) = (run(which, chunks), run(which, std::iter::once(bytes)));
    // Text before bytes that are none may have been passed on, judged, or held.
    let is_text = matches!(framing(which), Framing::Text);
    if !(is_text && (cut.1.is_err() || whole.1.is_err())) {
        assert_eq!(cut, whole);
    }
});
