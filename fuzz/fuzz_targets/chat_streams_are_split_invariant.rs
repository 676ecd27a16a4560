//! Whatever a chat model's server sends is read or refused, and the same however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_planner::{Delta, ModelError, StreamReader, TurnBuilder};

const LIMIT: usize = 4096;

fn read<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> (Vec<Delta>, Result<(), ModelError>) {
    let mut reader = StreamReader::new(LIMIT);
    let mut deltas = Vec::new();
    let mut each = |delta| deltas.push(delta);
    let mut read = Ok(());
    for piece in pieces {
        read = read.and_then(|()| reader.push(piece, &mut each));
    }
    read = read.and_then(|()| reader.finish(&mut each));
    (deltas, read)
}

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, cut) = input;
    let whole = read(std::iter::once(bytes));
    assert_eq!(read(bytes.chunks(usize::from(cut).max(1))), whole);
    let mut turn = TurnBuilder::new(LIMIT);
    let built = whole.0.iter().try_for_each(|delta| turn.push(delta));
    if let Ok(turn) = built.and_then(|()| turn.finish()) {
        assert!(turn.text.len() <= LIMIT);
    }
});
