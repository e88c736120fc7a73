//! Reads Mooncake-format traces: one JSON object a line, with the request's block hashes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::workload::{Request, WorkloadError};

/// Longest line of a trace, in bytes; a request of 100,000 blocks has about a million.
const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// One line of a trace. Fields beyond these are ignored.
#[derive(Deserialize)]
#[expect(dead_code, reason = "the lengths are read so that a line without them is refused")]
struct Line {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
}

/// The requests of a trace file, read one line at a time.
pub(crate) struct TraceReader {
    path: PathBuf,
    reader: BufReader<File>,
    line_number: u64,
    line: Vec<u8>,
    failed: bool,
}

impl TraceReader {
    /// Opens the trace at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, WorkloadError> {
        let file = File::open(path)
            .map_err(|source| WorkloadError::Read { path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            reader: BufReader::with_capacity(256 * 1024, file),
            line_number: 0,
            line: Vec::new(),
            failed: false,
        })
    }

    fn read_line(&mut self) -> Result<bool, WorkloadError> {
        self.line.clear();
        self.line_number += 1;
        let mut limited = Read::take(&mut self.reader, LINE_BYTES_MAX);
        let bytes = limited
            .read_until(b'\n', &mut self.line)
            .map_err(|source| WorkloadError::Read { path: self.path.clone(), source })?;
        if bytes as u64 == LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
            return Err(WorkloadError::LineTooLong {
                path: self.path.clone(),
                line_number: self.line_number,
                bytes_max: LINE_BYTES_MAX,
            });
        }
        Ok(bytes > 0)
    }

    fn next_request(&mut self) -> Result<Option<Request>, WorkloadError> {
        while self.read_line()? {
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line: Line =
                serde_json::from_slice(&self.line).map_err(|source| WorkloadError::Line {
                    path: self.path.clone(),
                    line_number: self.line_number,
                    source,
                })?;
            return Ok(Some(Request { blocks: line.hash_ids }));
        }
        Ok(None)
    }
}

impl Iterator for TraceReader {
    type Item = Result<Request, WorkloadError>;

    /// Returns the next request; an error is the last item.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_request().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

#[cfg(test)]
mod tests;
