//! The Service in front of the replicas: one address, and behind it whoever says on `/readyz` that it is ready.
//!
//! It does what kubelet and kube-proxy do, no better: readiness is looked at now and then, a new connection goes to the next
//! ready replica, an open one stays where it is, and with nobody ready there is no answer.

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

/// How often readiness is asked for. The manifests' probe asks every two seconds; a test should not have to wait so long.
const PROBE_PERIOD: Duration = Duration::from_millis(200);
/// An answer that takes longer is none.
const READINESS_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Replica {
    webhook: SocketAddr,
    admin: SocketAddr,
    is_ready: bool,
}

type Replicas = Arc<Mutex<BTreeMap<String, Replica>>>;

/// Stops when dropped.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    replicas: Replicas,
    tasks: [JoinHandle<()>; 2],
}

impl Balancer {
    /// Listens on `port` of the loopback address.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start(runtime: &Runtime, port: u16) -> Result<Self> {
        let listener = runtime.block_on(TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))?;
        let replicas = Replicas::default();
        let tasks = [
            runtime.spawn(accept(listener, Arc::clone(&replicas))),
            runtime.spawn(probe(Arc::clone(&replicas))),
        ];
        Ok(Self { port, replicas, tasks })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds a replica; it gets connections once it is ready.
    pub fn add(&self, name: &str, webhook: SocketAddr, admin: SocketAddr) {
        self.locked().insert(name.to_owned(), Replica { webhook, admin, is_ready: false });
    }

    /// Takes a replica out; its open connections stay.
    pub fn remove(&self, name: &str) {
        self.locked().remove(name);
    }

    /// The names of those that are ready.
    pub fn ready(&self) -> Vec<String> {
        self.locked().iter().filter(|(_, replica)| replica.is_ready).map(|(name, _)| name.clone()).collect()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Replica>> {
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

async fn accept(listener: TcpListener, replicas: Replicas) {
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

async fn probe(replicas: Replicas) {
    loop {
        let all: Vec<(String, SocketAddr)> = replicas
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(name, replica)| (name.clone(), replica.admin))
            .collect();
        for (name, admin) in all {
            let replicas = Arc::clone(&replicas);
            // Each on its own: one that hangs must not make the others look unready.
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

/// Whether `/readyz` there answers 200 in time.
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
