//! Whole lines, many at a time.

use std::io::{self, Read};

/// How much is read at once.
pub(super) const BLOCK: usize = 256 << 10;

/// Room for what may stand around a packet on its line: a byte order mark before it, a carriage return after it.
const AROUND: usize = 4;

/// Reads blocks of whole lines.
///
/// A block is what one call to `read` gives: all there is in a file or a full pipe, and one line if somebody types it. So
/// nobody waits for a block to fill, and blocks are large whenever there is more to read than can be worked on.
pub(super) struct Blocks<R> {
    reader: R,
    max_line: usize,
    /// The beginning of a line, or what came after one that was too long.
    carried: Vec<u8>,
    line: u64,
    ended: bool,
}

/// Some lines of the input. Kept and filled again, for its memory.
#[derive(Debug, Default)]
pub(super) struct Block {
    buffer: Vec<u8>,
    end: usize,
    /// The number of the first line, from 1.
    pub(super) first_line: u64,
    /// How long the line is that stands alone in this block because it was too long to be kept.
    pub(super) too_long: Option<u64>,
}

impl Block {
    /// The lines, each with its end; the very last may have none.
    pub(super) fn lines(&self) -> &[u8] {
        &self.buffer[..self.end]
    }

    /// How many bytes of the input it stands for.
    pub(super) fn bytes(&self) -> u64 {
        self.too_long.unwrap_or(self.end as u64)
    }

    fn begin(&mut self, first_line: u64, carried: &[u8]) {
        let room = BLOCK.max(carried.len());
        // One long line must not make every block as long for good.
        if self.buffer.len() < room || self.buffer.len() > room.saturating_mul(2) {
            self.buffer = vec![0; room];
        }
        self.buffer[..carried.len()].copy_from_slice(carried);
        self.end = 0;
        self.first_line = first_line;
        self.too_long = None;
    }
}

impl<R: Read> Blocks<R> {
    /// Lines with packets of so many bytes at most.
    pub(super) fn new(reader: R, max_bytes: usize) -> Self {
        Self {
            reader,
            max_line: max_bytes.saturating_add(AROUND),
            carried: Vec::new(),
            line: 1,
            ended: false,
        }
    }

    /// Reads the next block; `false` if there is none.
    pub(super) fn next(&mut self, block: &mut Block) -> io::Result<bool> {
        block.begin(self.line, &self.carried);
        let mut filled = self.carried.len();
        let mut searched = 0;
        self.carried.clear();
        loop {
            let new = &block.buffer[searched..filled];
            if let Some(last) = new.iter().rposition(|byte| *byte == b'\n') {
                block.end = searched + last + 1;
                self.carried
                    .extend_from_slice(&block.buffer[block.end..filled]);
                let lines = block.lines().iter().filter(|byte| **byte == b'\n');
                self.line += lines.count() as u64;
                return Ok(true);
            }
            if filled > self.max_line {
                block.too_long = Some(self.skip_line(&mut block.buffer, filled)?);
                self.line += 1;
                return Ok(true);
            }
            searched = filled;
            if filled == block.buffer.len() {
                let longest = self.max_line.saturating_add(1);
                let room = filled.saturating_mul(2).min(longest);
                block.buffer.resize(room, 0);
            }
            let read = self.read(&mut block.buffer[filled..])?;
            if read == 0 {
                block.end = filled;
                return Ok(filled > 0);
            }
            filled += read;
        }
    }

    /// Passes over the rest of a line of which so much is read already. Gives back how long it is.
    fn skip_line(&mut self, buffer: &mut [u8], read_already: usize) -> io::Result<u64> {
        let mut length = read_already as u64;
        loop {
            let read = self.read(buffer)?;
            let part = &buffer[..read];
            if let Some(end) = part.iter().position(|byte| *byte == b'\n') {
                self.carried.extend_from_slice(&part[end + 1..]);
                return Ok(length + end as u64);
            }
            if read == 0 {
                return Ok(length);
            }
            length += read as u64;
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A terminal could be asked again.
        while !self.ended {
            match self.reader.read(into) {
                Ok(read) => {
                    self.ended = read == 0;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives so many bytes at a time.
    struct Slow<'b>(&'b [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let at_most = into.len().min(self.1);
            self.0.read(&mut into[..at_most])
        }
    }

    #[derive(Debug, PartialEq, Clone)]
    enum Line {
        Kept(Vec<u8>),
        TooLong(u64),
    }

    fn read(input: &[u8], at_a_time: usize, max_bytes: usize) -> Vec<(u64, Line)> {
        let mut blocks = Blocks::new(Slow(input, at_a_time), max_bytes);
        let mut block = Block::default();
        let mut lines = Vec::new();
        while blocks.next(&mut block).unwrap() {
            let mut line = block.first_line;
            for text in block.lines().split_inclusive(|byte| *byte == b'\n') {
                let text = text.strip_suffix(b"\n").unwrap_or(text);
                lines.push((line, Line::Kept(text.to_owned())));
                line += 1;
            }
            if let Some(bytes) = block.too_long {
                lines.push((line, Line::TooLong(bytes)));
            }
        }
        lines
    }

    #[test]
    fn a_line_that_is_typed_does_not_wait_for_the_next() {
        let mut blocks = Blocks::new(Slow(b"one\ntwo\n", 4), 100);
        let mut block = Block::default();
        assert!(blocks.next(&mut block).unwrap());
        assert_eq!(block.lines(), b"one\n");
    }

    #[test]
    fn one_long_line_is_kept_up_to_the_limit_and_not_remembered() {
        let long = 3 * BLOCK;
        let input = [vec![b'x'; long], b"\na\n".to_vec()].concat();
        let mut blocks = Blocks::new(Slow(&input, BLOCK), long);
        let mut block = Block::default();
        assert!(blocks.next(&mut block).unwrap());
        assert_eq!(block.lines().len(), long + 1 + 2);
        assert!(block.buffer.len() <= long + AROUND + 1);
        assert!(!blocks.next(&mut block).unwrap());
        assert_eq!(block.buffer.len(), BLOCK);
    }

    proptest! {
        /// However the bytes come, each line is there once, with its number, whole or with its length.
        #[test]
        fn no_line_is_lost(
            lines in prop::collection::vec(prop::collection::vec(97u8..100, 0..20), 0..20),
            ended in any::<bool>(),
            at_a_time in 1usize..50,
            max_bytes in 0usize..16,
        ) {
            let mut input = lines.join(&b'\n');
            if ended && !lines.is_empty() {
                input.push(b'\n');
            }
            let mut expected: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_owned).collect();
            if expected.last().is_some_and(Vec::is_empty) {
                expected.pop();
            }
            let found = read(&input, at_a_time, max_bytes);
            prop_assert_eq!(found.len(), expected.len());
            for (index, ((number, line), expected)) in found.into_iter().zip(expected).enumerate() {
                prop_assert_eq!(number, index as u64 + 1);
                match line {
                    Line::Kept(line) => prop_assert_eq!(line, expected),
                    Line::TooLong(bytes) => {
                        prop_assert_eq!(bytes, expected.len() as u64);
                        prop_assert!(expected.len() > max_bytes);
                    }
                }
            }
        }
    }
}
