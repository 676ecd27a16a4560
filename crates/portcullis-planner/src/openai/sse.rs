//! Server-sent events, from bytes that are cut anywhere.

use crate::chat::ModelError;

/// Reads the `data` of server-sent events. However the bytes are cut, the same events come out.
#[derive(Debug)]
pub(super) struct SseReader {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a carriage return, so a line feed now ends no line.
    after_return: bool,
    started: bool,
    limit: usize,
}

impl SseReader {
    /// For events of at most so many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            data: None,
            after_return: false,
            started: false,
            limit,
        }
    }

    /// Takes in bytes and hands out the events that are complete.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_return)
                && let Some(after) = rest.strip_prefix(b"\n")
            {
                rest = after;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.room_for(line.len())?;
            self.line.extend_from_slice(line);
            let Some((ending, after)) = after.split_first() else {
                break;
            };
            rest = after;
            self.after_return = *ending == b'\r';
            self.end_line(&mut each)?;
        }
        Ok(())
    }

    /// Hands out an event that no empty line has ended: servers that break off behind their last event are many.
    pub(super) fn finish(
        &mut self,
        mut each: impl FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        if !self.line.is_empty() {
            self.end_line(&mut each)?;
        }
        match self.data.take() {
            Some(data) => each(&data),
            None => Ok(()),
        }
    }

    fn room_for(&self, more: usize) -> Result<(), ModelError> {
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held + more > self.limit {
            return Err(ModelError::TooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn end_line(
        &mut self,
        each: &mut impl FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let bytes = std::mem::take(&mut self.line);
        let mut line = &*bytes;
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return match self.data.take() {
                Some(data) => each(&data),
                None => Ok(()),
            };
        }
        // Comments, and fields other than `data`, say nothing to us.
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ => return Ok(()),
        };
        let value = String::from_utf8_lossy(value);
        // What is not UTF-8 grows when it is replaced.
        self.room_for(value.len() + 1)?;
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&value);
            }
            None => self.data = Some(value.into_owned()),
        }
        // Keeps the room of the line for the next.
        self.line = bytes;
        self.line.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Result<Vec<String>, ModelError> {
        let mut reader = SseReader::new(1000);
        let mut found = Vec::new();
        let mut each = |data: &str| {
            found.push(data.to_owned());
            Ok(())
        };
        for piece in pieces {
            reader.push(piece, &mut each)?;
        }
        reader.finish(&mut each)?;
        Ok(found)
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let cases: [(&str, &[&str]); 8] = [
            ("data: a\n\ndata: b\n\n", &["a", "b"]),
            ("data: a\r\n\r\ndata:b\r\r", &["a", "b"]),
            ("\u{feff}data:  a\n\n", &[" a"]),
            (": ping\n\nevent: x\nid: 1\ndata: a\ndata: b\n\n", &["a\nb"]),
            ("data\n\n", &[""]),
            ("database: a\n\n\n\n", &[]),
            ("data: [DONE]", &["[DONE]"]),
            ("\n\ndata: a\n\n\u{feff}data: b\n\n", &["a"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(events(&[text.as_bytes()]).unwrap(), wanted, "{text:?}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_too_large_at_some_point() {
        let error = ModelError::TooLarge { limit: 1000 };
        assert_eq!(events(&[&[b'x'; 1001]]), Err(error.clone()));
        let lines = b"data: 0123456789\n".repeat(100);
        assert_eq!(events(&[&lines]), Err(error));
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_cut_the_events_are_the_same(
            text in "(data|: |data: |é|\u{feff}|\r|\n|\r\n|\n\n|x){0,40}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[bytes]));
        }
    }
}
