//! A stand-in for the Service of the webhook: one address in front of all replicas whose `/readyz` answers
//! 200.
//!
//! It behaves as kubelet and kube-proxy do. It probes readiness periodically, and a new connection goes to
//! the next ready replica. An open connection stays with its replica. Without a ready replica a connection
//! gets no answer.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Period of the readiness probe. The probe of the manifests has two seconds, which is too slow for tests.
const PROBE_PERIOD: Duration = Duration::from_millis(200);
/// A replica that takes longer than this to answer its probe is not ready: `timeoutSeconds` in the manifests.
const READINESS_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Backend {
    webhook: SocketAddr,
    admin: SocketAddr,
    is_ready: bool,
}

type Backends = Arc<Mutex<BTreeMap<String, Backend>>>;

/// Dropping it stops the listener.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    replicas: Backends,
    tasks: [JoinHandle<()>; 2],
}

impl Balancer {
    /// Listens on `port` of the loopback address.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start(runtime: &Runtime, port: u16) -> Result<Self> {
        let listener = runtime.block_on(TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))?;
        let replicas = Backends::default();
        let tasks = [
            runtime.spawn(accept(listener, Arc::clone(&replicas))),
            runtime.spawn(probe(Arc::clone(&replicas))),
        ];
        Ok(Self { port, replicas, tasks })
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds a replica. It gets connections when it is ready.
    pub fn add(&self, name: &str, webhook: SocketAddr, admin: SocketAddr) {
        self.locked().insert(name.to_owned(), Backend { webhook, admin, is_ready: false });
    }

    /// Removes a replica. Its open connections stay.
    pub fn remove(&self, name: &str) {
        self.locked().remove(name);
    }

    /// The names of the ready replicas.
    pub fn ready(&self) -> Vec<String> {
        self.locked().iter().filter(|(_, replica)| replica.is_ready).map(|(name, _)| name.clone()).collect()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Backend>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn accept(listener: TcpListener, replicas: Backends) {
    let mut turn: usize = 0;
    while let Ok((mut incoming, _)) = listener.accept().await {
        let ready: Vec<SocketAddr> = replicas
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .filter(|replica| replica.is_ready)
            .map(|replica| replica.webhook)
            .collect();
        turn = turn.wrapping_add(1);
        let Some(target) = ready.get(turn % ready.len().max(1)).copied() else { continue };
        tokio::spawn(async move {
            if let Ok(mut outgoing) = TcpStream::connect(target).await {
                let _ = (incoming.set_nodelay(true), outgoing.set_nodelay(true));
                let _ = copy_bidirectional(&mut incoming, &mut outgoing).await;
            }
        });
    }
}

async fn probe(replicas: Backends) {
    loop {
        let all: Vec<(String, SocketAddr)> = replicas
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(name, replica)| (name.clone(), replica.admin))
            .collect();
        for (name, admin) in all {
            let replicas = Arc::clone(&replicas);
            // Each probe is a task of its own, so that a replica that hangs does not delay the others.
            tokio::spawn(async move {
                let is_ready = is_ready(admin).await;
                if let Some(replica) = replicas.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&name)
                    && replica.admin == admin
                {
                    replica.is_ready = is_ready;
                }
            });
        }
        sleep(PROBE_PERIOD).await;
    }
}

/// Whether `/readyz` of a replica answers 200 in time.
pub(crate) async fn is_ready(admin: SocketAddr) -> bool {
    let ask = async {
        let mut connection = TcpStream::connect(admin).await?;
        connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
        let mut start = [0; 12];
        connection.read_exact(&mut start).await?;
        std::io::Result::Ok(start.ends_with(b" 200"))
    };
    matches!(timeout(READINESS_TIMEOUT, ask).await, Ok(Ok(true)))
}
