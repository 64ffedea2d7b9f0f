//! Receiving a body within its bounds: of size, of time, and of all that is held at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::BytesMut;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;

/// Bytes are counted in blocks of this size, because a semaphore is counted in 32 bits.
const BLOCK: usize = 1024;

/// How long a client that sends too much is listened to after we know, so that it comes to read our answer.
const LINGER: Duration = Duration::from_secs(1);

/// The bounds of bodies.
pub(super) struct Bodies {
    max_bytes: usize,
    timeout: Duration,
    held: Arc<Semaphore>,
}

/// A whole body, counted as held until it is dropped, wherever it goes.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Bytes,
    _blocks: Option<OwnedSemaphorePermit>,
}

impl Held {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    pub(super) fn new(max_bytes: usize, max_held_bytes: usize, timeout: Duration) -> Self {
        Self {
            max_bytes,
            timeout,
            held: Arc::new(Semaphore::new((max_held_bytes / BLOCK).min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Receives a whole body.
    pub(super) async fn receive(
        &self,
        headers: &HeaderMap,
        mut body: Body,
        deadline: Instant,
    ) -> Result<Held, Refusal> {
        if body.size_hint().lower() > u64::try_from(self.max_bytes).unwrap_or(u64::MAX) {
            // Who expects `100 Continue` has not sent anything yet, and will not.
            if !headers.contains_key(header::EXPECT) {
                self.drain(&mut body).await;
            }
            return Err(Refusal::BodyTooLarge { limit: self.max_bytes });
        }
        let mut collected = Collected::default();
        let patience = Instant::now() + self.timeout;
        match timeout_at(patience.min(deadline), self.collect(&mut body, &mut collected)).await {
            Ok(Ok(())) => Ok(Held { bytes: collected.bytes(), _blocks: collected.blocks }),
            Ok(Err(refusal)) => {
                if matches!(refusal, Refusal::BodyTooLarge { .. }) {
                    drop(collected);
                    self.drain(&mut body).await;
                }
                Err(refusal)
            }
            Err(_) if deadline < patience => Err(Refusal::DeadlinePassed { doing: "its body was received" }),
            Err(_) => Err(Refusal::BodyTooSlow { received: collected.length, limit: self.timeout }),
        }
    }

    async fn collect(&self, body: &mut Body, into: &mut Collected) -> Result<(), Refusal> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refusal::BodyBroken { problem: error.to_string() })?;
            let Ok(data) = frame.into_data() else { continue };
            into.length += data.len();
            if into.length > self.max_bytes {
                return Err(Refusal::BodyTooLarge { limit: self.max_bytes });
            }
            let missing = into.length.div_ceil(BLOCK) - into.block_count();
            if missing > 0 {
                let missing = u32::try_from(missing).map_err(|_| Refusal::BodiesHeld)?;
                let more = Arc::clone(&self.held).try_acquire_many_owned(missing);
                let more = more.map_err(|_| Refusal::BodiesHeld)?;
                match &mut into.blocks {
                    Some(blocks) => blocks.merge(more),
                    none => *none = Some(more),
                }
            }
            into.push(data);
        }
        Ok(())
    }

    /// Throws away what still comes, up to one more body. An answer to somebody who is still sending is lost: the
    /// connection would be reset under it.
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
        let _ = timeout_at(Instant::now() + LINGER, discard).await;
    }

    /// Throws away a body of ordinary size that nobody will read.
    pub(super) async fn discard(&self, mut body: Body) {
        self.drain(&mut body).await;
    }
}

/// What has come of a body. Most come in one piece, which is kept as it is.
#[derive(Default)]
struct Collected {
    only: Option<Bytes>,
    many: BytesMut,
    length: usize,
    blocks: Option<OwnedSemaphorePermit>,
}

impl Collected {
    fn block_count(&self) -> usize {
        self.blocks.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    fn push(&mut self, data: Bytes) {
        if self.only.is_none() && self.many.is_empty() {
            self.only = Some(data);
            return;
        }
        if let Some(first) = self.only.take() {
            self.many.extend_from_slice(&first);
        }
        self.many.extend_from_slice(&data);
    }

    fn bytes(&mut self) -> Bytes {
        self.only.take().unwrap_or_else(|| std::mem::take(&mut self.many).freeze())
    }
}
