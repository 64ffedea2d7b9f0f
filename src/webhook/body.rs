//! Reads request bodies within three limits: bytes per body, time per body, and bytes of all bodies in
//! memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::BytesMut;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;

/// Unit of the memory semaphore, because a semaphore counts in 32 bits.
const BLOCK_BYTES: usize = 1024;

/// How long the server drains a body that it refuses. A client reads the answer only after it has sent its
/// body.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads bodies and enforces their limits.
pub(super) struct BodyReader {
    max_bytes: usize,
    timeout: Duration,
    memory: Arc<Semaphore>,
}

/// A complete body. Its bytes count against the memory limit until it is dropped.
#[derive(Debug)]
pub(super) struct BufferedBody {
    bytes: Bytes,
    _blocks: Option<OwnedSemaphorePermit>,
}

impl BufferedBody {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyReader {
    pub(super) fn new(max_bytes: usize, max_held_bytes: usize, timeout: Duration) -> Self {
        Self {
            max_bytes,
            timeout,
            memory: Arc::new(Semaphore::new((max_held_bytes / BLOCK_BYTES).min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Reads a complete body.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Body,
        deadline: Instant,
    ) -> Result<BufferedBody, Refusal> {
        if body.size_hint().lower() > u64::try_from(self.max_bytes).unwrap_or(u64::MAX) {
            // A client that expects `100 Continue` has not sent the body and will not send it.
            if !headers.contains_key(header::EXPECT) {
                self.drain(&mut body).await;
            }
            return Err(Refusal::BodyTooLarge { limit: self.max_bytes });
        }
        let mut collected = PartialBody::default();
        let read_until = Instant::now() + self.timeout;
        match timeout_at(read_until.min(deadline), self.collect(&mut body, &mut collected)).await {
            Ok(Ok(())) => Ok(BufferedBody { bytes: collected.take_bytes(), _blocks: collected.blocks }),
            Ok(Err(refusal)) => {
                if matches!(refusal, Refusal::BodyTooLarge { .. }) {
                    drop(collected);
                    self.drain(&mut body).await;
                }
                Err(refusal)
            }
            Err(_) if deadline < read_until => {
                Err(Refusal::DeadlinePassed { during: "its body was received" })
            }
            Err(_) => Err(Refusal::BodyTooSlow { received: collected.length, limit: self.timeout }),
        }
    }

    async fn collect(&self, body: &mut Body, into: &mut PartialBody) -> Result<(), Refusal> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refusal::BodyBroken { problem: error.to_string() })?;
            let Ok(data) = frame.into_data() else { continue };
            into.length += data.len();
            if into.length > self.max_bytes {
                return Err(Refusal::BodyTooLarge { limit: self.max_bytes });
            }
            let missing = into.length.div_ceil(BLOCK_BYTES) - into.block_count();
            if missing > 0 {
                let missing = u32::try_from(missing).map_err(|_| Refusal::BodyMemoryExhausted)?;
                let more = Arc::clone(&self.memory).try_acquire_many_owned(missing);
                let more = more.map_err(|_| Refusal::BodyMemoryExhausted)?;
                match &mut into.blocks {
                    Some(blocks) => blocks.merge(more),
                    none => *none = Some(more),
                }
            }
            into.push(data);
        }
        Ok(())
    }

    /// Reads and discards the rest of a body, at most `max_bytes`. If the server closed the connection while
    /// the client still sends, the kernel would reset it and the client would lose the answer.
    async fn drain(&self, body: &mut Body) {
        let mut left = self.max_bytes;
        let discard = async {
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                if length > left {
                    return;
                }
                left -= length;
            }
        };
        let _ = timeout_at(Instant::now() + DRAIN_TIMEOUT, discard).await;
    }

    /// Discards a body that is not needed.
    pub(super) async fn discard(&self, mut body: Body) {
        self.drain(&mut body).await;
    }
}

/// The received part of a body. Most bodies arrive as one frame, which is not copied.
#[derive(Default)]
struct PartialBody {
    single: Option<Bytes>,
    joined: BytesMut,
    length: usize,
    blocks: Option<OwnedSemaphorePermit>,
}

impl PartialBody {
    fn block_count(&self) -> usize {
        self.blocks.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    fn push(&mut self, data: Bytes) {
        if self.single.is_none() && self.joined.is_empty() {
            self.single = Some(data);
            return;
        }
        if let Some(first) = self.single.take() {
            self.joined.extend_from_slice(&first);
        }
        self.joined.extend_from_slice(&data);
    }

    fn take_bytes(&mut self) -> Bytes {
        self.single.take().unwrap_or_else(|| std::mem::take(&mut self.joined).freeze())
    }
}
