//! Lines of a file, of which none takes more memory than an entry may.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use portcullis_core::evidence::MAX_ENTRY_BYTES;

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'l> {
    /// Without its newline.
    Whole(&'l [u8]),
    /// A line longer than any entry. It has been skipped.
    TooLong,
    /// The end, and what stands there after the last newline. More may come later.
    End(&'l [u8]),
}

#[derive(Debug)]
pub(super) struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Whether `line` has been handed out.
    used: bool,
    too_long: bool,
    /// Where the next line starts.
    offset: u64,
}

impl Lines {
    /// From this offset on.
    pub(super) fn new(mut file: File, offset: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self {
            reader: BufReader::with_capacity(1 << 18, file),
            line: Vec::new(),
            used: false,
            too_long: false,
            offset,
        })
    }

    /// Where the line starts that comes next, or that the file ends in.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn next(&mut self) -> io::Result<Line<'_>> {
        if std::mem::take(&mut self.used) {
            self.line.clear();
        }
        loop {
            let room = MAX_ENTRY_BYTES - self.line.len();
            let mut limited = (&mut self.reader).take(room as u64);
            limited.read_until(b'\n', &mut self.line)?;
            if self.line.last() == Some(&b'\n') {
                self.offset += self.line.len() as u64;
                if std::mem::take(&mut self.too_long) {
                    self.line.clear();
                    return Ok(Line::TooLong);
                }
                self.used = true;
                return Ok(Line::Whole(&self.line[..self.line.len() - 1]));
            }
            if self.line.len() < MAX_ENTRY_BYTES {
                return Ok(Line::End(&self.line));
            }
            self.too_long = true;
            self.offset += self.line.len() as u64;
            self.line.clear();
        }
    }
}

/// The line that ends, newline and all, at this offset.
pub(super) fn line_before(mut file: &File, offset: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut end = offset;
    while end > 0 && line.len() <= MAX_ENTRY_BYTES {
        let start = end.saturating_sub(1 << 13);
        let mut chunk = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut chunk)?;
        chunk.extend_from_slice(&line);
        line = chunk;
        let Some((b'\n', inside)) = line.split_last() else {
            return Ok(None);
        };
        if let Some(newline) = inside.iter().rposition(|byte| *byte == b'\n') {
            return Ok(Some(inside[newline + 1..].to_vec()));
        }
        end = start;
    }
    line.pop();
    Ok((offset > 0 && end == 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    #[test]
    fn lines_are_read_also_when_they_come_later() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one\n\ntwo\nthr").unwrap();
        let mut lines = Lines::new(file.reopen().unwrap(), 0).unwrap();
        assert_eq!(lines.next().unwrap(), Line::Whole(b"one"));
        assert_eq!(lines.next().unwrap(), Line::Whole(b""));
        assert_eq!(lines.next().unwrap(), Line::Whole(b"two"));
        assert_eq!(lines.next().unwrap(), Line::End(b"thr"));
        assert_eq!(lines.offset(), 9);
        file.write_all(b"ee\n").unwrap();
        assert_eq!(lines.next().unwrap(), Line::Whole(b"three"));
        assert_eq!(lines.next().unwrap(), Line::End(b""));
    }

    #[test]
    fn a_line_longer_than_an_entry_is_skipped_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for len in [MAX_ENTRY_BYTES - 1, MAX_ENTRY_BYTES, MAX_ENTRY_BYTES * 3, 1] {
            file.write_all(&vec![b'x'; len]).unwrap();
            file.write_all(b"\n").unwrap();
        }
        let mut lines = Lines::new(file.reopen().unwrap(), 0).unwrap();
        assert_eq!(
            lines.next().unwrap(),
            Line::Whole(&vec![b'x'; MAX_ENTRY_BYTES - 1])
        );
        assert_eq!(lines.next().unwrap(), Line::TooLong);
        assert_eq!(lines.next().unwrap(), Line::TooLong);
        assert_eq!(lines.next().unwrap(), Line::Whole(b"x"));
        assert_eq!(lines.offset(), fs::metadata(file.path()).unwrap().len());
    }

    #[test]
    fn the_line_before_an_offset_is_found_however_long_it_is() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let long = vec![b'x'; 20_000];
        file.write_all(b"a\n\n").unwrap();
        file.write_all(&long).unwrap();
        file.write_all(b"\nrest").unwrap();
        let file = file.reopen().unwrap();
        for (offset, expected) in [
            (0, None),
            (1, None),
            (2, Some(b"a".to_vec())),
            (3, Some(Vec::new())),
            (20_004, Some(long)),
            (20_008, None),
        ] {
            assert_eq!(line_before(&file, offset).unwrap(), expected, "{offset}");
        }
    }
}
