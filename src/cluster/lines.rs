//! Lines off the wire: a watch answers with one JSON document a line, for minutes.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;

use super::client::Lost;

/// A longer line than any object has: etcd takes 1.5 MiB, and JSON is not four times that.
const LONGEST: usize = 8 * 1024 * 1024;

/// The lines of an answer that is still coming.
pub struct Lines {
    body: Body,
    buffer: BytesMut,
    /// How far the buffer was searched for the end of a line.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line without its end, or `None` when the server has ended the answer.
    ///
    /// # Errors
    /// When the connection breaks, nothing comes for as long as `patience`, or a line is longer than any
    /// object.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Bytes>, Lost> {
        loop {
            if let Some(line) = self.buffered()? {
                return Ok(Some(line));
            }
            let frame = tokio::time::timeout(patience, self.body.frame());
            let frame = frame.await.map_err(|_| Lost(format!("nothing came for {patience:?}")))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(Lost(format!("the connection broke: {error}"))),
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
            None if self.buffer.len() > LONGEST => {
                Err(Lost(format!("a line is longer than {LONGEST} bytes")))
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
    async fn lines_come_whole_however_they_are_cut() {
        let mut lines = Lines::new(Body::from(b"{\"a\":1}\n\n{\"b\":2}\n{\"cut".to_vec()));
        let mut read = Vec::new();
        while let Some(line) =
            lines.next(Duration::from_secs(1)).await.expect("a body in memory cannot break")
        {
            read.push(String::from_utf8(line.to_vec()).expect("UTF-8"));
        }
        assert_eq!(read, ["{\"a\":1}", "", "{\"b\":2}"], "an unfinished line at the end is no line");
    }
}
