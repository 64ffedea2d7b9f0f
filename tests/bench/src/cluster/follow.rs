//! A watch that resumes where it was when the API server ends it, as happens to slow readers.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use portcullis::cluster::{Client, Lines};
use serde::Deserialize;

const STALL_TIMEOUT: Duration = Duration::from_secs(3600);

/// All changes of one list in order, each once.
pub(super) struct Follow {
    api: Client,
    /// The path of the list with its query.
    path: String,
    version: String,
    lines: Option<Lines>,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: FollowedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FollowedMetadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct FollowedEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    object: Versioned,
}

impl Follow {
    /// Starts to watch the changes from now on.
    pub(super) async fn from_now(api: &Client, path: &str) -> anyhow::Result<Self> {
        let reply = api.get(path).await?;
        ensure!(reply.ok(), "{path} cannot be listed: {}", reply.message());
        let list: Versioned = serde_json::from_slice(&reply.body)?;
        let mut follow = Self {
            api: api.clone(),
            path: path.to_owned(),
            version: list.metadata.resource_version,
            lines: None,
        };
        follow.open().await?;
        Ok(follow)
    }

    async fn open(&mut self) -> anyhow::Result<()> {
        let and = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{and}watch=1&timeoutSeconds=3600&resourceVersion={}", self.path, self.version);
        let lines = self.api.lines(&path).await?;
        self.lines = Some(lines.map_err(|reply| anyhow::anyhow!("no watch of {path}: {}", reply.message()))?);
        Ok(())
    }

    /// The next event. The future is cancel-safe.
    pub(super) async fn next(&mut self) -> anyhow::Result<Bytes> {
        loop {
            if self.lines.is_none() {
                self.open().await?;
            }
            let lines = self.lines.as_mut().context("opened above")?;
            match lines.next(STALL_TIMEOUT).await {
                Ok(Some(line)) => {
                    let event: FollowedEvent<'_> =
                        serde_json::from_slice(&line).context("a line of a watch")?;
                    ensure!(event.kind != "ERROR", "{}: {}", self.path, String::from_utf8_lossy(&line));
                    self.version = event.object.metadata.resource_version;
                    return Ok(line);
                }
                Ok(None) | Err(_) => self.lines = None,
            }
        }
    }
}
