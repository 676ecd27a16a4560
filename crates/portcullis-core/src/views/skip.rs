//! How far a text has nothing of interest, many bytes at once.

/// Where the first such byte is.
#[inline]
pub(super) fn to_first(bytes: &[u8], is_such: impl Fn(u8) -> bool) -> Option<usize> {
    /// Without a way out in between, the compiler compares many bytes at once.
    const BLOCK: usize = 32;
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let has_none = |block: &&[u8; BLOCK]| !block.iter().fold(false, |any, b| any | is_such(*b));
    let passed = blocks.iter().take_while(has_none).count() * BLOCK;
    let first = bytes[passed..].iter().position(|b| is_such(*b))?;
    Some(passed + first)
}
