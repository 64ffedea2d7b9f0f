//! Splits the body of a watch response into lines. Each line is one JSON document; a watch runs for minutes.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;

use super::client::Lost;

/// Upper bound of a line. etcd stores objects of up to 1.5 MiB, and their JSON is less than four times
/// longer.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// The lines of a response body that is still being received.
pub struct Lines {
    body: Body,
    buffer: BytesMut,
    /// Number of bytes at the start of `buffer` without a line end.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// Returns the next line without its line end, or `None` after the end of the response.
    ///
    /// # Errors
    /// If the connection breaks, no data arrives within `timeout`, or a line is longer than any object.
    pub async fn next(&mut self, timeout: Duration) -> Result<Option<Bytes>, Lost> {
        loop {
            if let Some(line) = self.buffered()? {
                return Ok(Some(line));
            }
            let frame = tokio::time::timeout(timeout, self.body.frame());
            let frame = frame.await.map_err(|_| Lost(format!("no data within {timeout:?}")))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(Lost(format!("the connection failed: {error}"))),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Bytes>, Lost> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        match found {
            Some(at) => {
                let line = self.buffer.split_to(self.searched + at);
                self.buffer.advance(1);
                self.searched = 0;
                Ok(Some(line.freeze()))
            }
            None if self.buffer.len() > MAX_LINE_BYTES => {
                Err(Lost(format!("a line of the response is longer than {MAX_LINE_BYTES} bytes")))
            }
            None => {
                self.searched = self.buffer.len();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_complete_and_an_unfinished_last_line_is_dropped() {
        let mut lines = Lines::new(Body::from(b"{\"a\":1}\n\n{\"b\":2}\n{\"cut".to_vec()));
        let mut read = Vec::new();
        while let Some(line) =
            lines.next(Duration::from_secs(1)).await.expect("reading a body in memory does not fail")
        {
            read.push(String::from_utf8(line.to_vec()).expect("UTF-8"));
        }
        assert_eq!(read, ["{\"a\":1}", "", "{\"b\":2}"], "an unfinished line at the end is dropped");
    }
}
