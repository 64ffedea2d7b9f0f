//! The webhook over TLS: a server process on one core, a loader on another.
//!
//! The loader waits for each answer before it sends the next review on that connection, as the API server
//! does. Its times include its own work and that of the kernel. The CPU column shows the cost of the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use portcullis::certs::{Authority, CertificateNames, LiveCertificate};
use portcullis::telemetry::{LogFormat, Metrics, start_logging};
use portcullis::webhook::{
    ReviewClient, ReviewHandler, WebhookConfig, WebhookDependencies, review_handler, run as run_webhook,
};
use portcullis_core::admission::{
    AdmissionSettings, AdmissionVerdict, Hook, ReviewError, ReviewOutcome, ReviewSummary,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use crate::bodies;
use crate::cluster::account::usage;

/// The hidden subcommand of the server process.
pub(crate) const SERVER: &str = "webhook-server";

const WARM_UP: Duration = Duration::from_secs(1);

/// Measures and prints the table.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut reviewer, mut seconds) = ("core".to_owned(), 5);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = rest.next().with_context(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--reviewer" => reviewer.clone_from(value),
            "--seconds" => seconds = value.parse()?,
            "--pinned" => return load(value),
            _ => bail!("unknown option {argument}"),
        }
    }
    // The loader restarts itself on its own core, with the same output.
    let job = format!("{reviewer},{seconds}");
    let status = on_core(1, &["webhook", "--pinned", &job])?.status()?;
    ensure!(status.success(), "the loader failed");
    Ok(())
}

/// A command that runs this program on one core, if `taskset` works here. It is tried, because the pinned
/// loader sees only one core when it starts the server.
fn on_core(core: u32, arguments: &[&str]) -> anyhow::Result<Command> {
    let this = std::env::current_exe()?;
    let core = core.to_string();
    let tried = Command::new("taskset")
        .args(["-c", &core, "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let mut command = if tried.is_ok_and(|status| status.success()) {
        let mut pinned = Command::new("taskset");
        pinned.args(["-c", &core]).arg(&this);
        pinned
    } else {
        Command::new(&this)
    };
    command.args(arguments);
    Ok(command)
}

/// The CPU affinity of a process, from the kernel.
fn cores_of(process: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let cores =
        text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("no list of cores")?;
    Ok(cores.trim().to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn load(job: &str) -> anyhow::Result<()> {
    let (reviewer, seconds) = job.split_once(',').context("reviewer,seconds")?;
    let duration = Duration::from_secs(seconds.parse()?);
    println!("reviewer: {reviewer}; {seconds} s each after {} s of warm-up", WARM_UP.as_secs());
    let server = InProcessServer::start(reviewer)?;
    println!(
        "server on core {}, loader on core {}",
        cores_of(&server.child.id().to_string())?,
        cores_of("self")?
    );
    drop(server);
    println!(
        "{:<9} {:>6} {:>5} {:>10} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9}",
        "hook",
        "bytes",
        "conns",
        "reviews/s",
        "p50 µs",
        "p99 µs",
        "CPU s",
        "per core/s",
        "idle MB",
        "peak MB"
    );
    for hook in [Hook::Mutate, Hook::Validate] {
        for managed_fields in [false, true] {
            for connections in [1, 16] {
                let new = bodies::gpu_pod(managed_fields);
                let body = if hook == Hook::Validate { bodies::patched(&new)? } else { new };
                measure(reviewer, hook, &body, connections, duration).await?;
            }
        }
    }
    Ok(())
}

/// Measures one row with a new server, so that its memory is that of this row.
async fn measure(
    reviewer: &str,
    hook: Hook,
    body: &[u8],
    connections: usize,
    duration: Duration,
) -> anyhow::Result<()> {
    let server = InProcessServer::start(reviewer)?;
    let before = usage(server.child.id())?;
    let clients: Vec<_> = (0..connections)
        .map(|_| ReviewClient::new(server.address, &server.ca_pem).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let answer = clients[0].review(hook, body.to_vec()).await?;
    ensure!(
        String::from_utf8_lossy(&answer).contains("\"allowed\":true"),
        "the review was not allowed: {}",
        String::from_utf8_lossy(&answer)
    );
    closed_loop(&clients, hook, body, WARM_UP).await?;
    let cpu_before = usage(server.child.id())?.cpu;
    let begun = Instant::now();
    let mut times = closed_loop(&clients, hook, body, duration).await?;
    let took = begun.elapsed();
    let after = usage(server.child.id())?;
    let cpu = after.cpu - cpu_before;
    times.sort_unstable();
    ensure!(!times.is_empty(), "no review was answered");
    let at = |per_mille: usize| times[(times.len() * per_mille / 1000).min(times.len() - 1)].as_micros();
    let count = f64::from(u32::try_from(times.len())?);
    println!(
        "{:<9} {:>6} {:>5} {:>10.0} {:>9} {:>9} {:>9.2} {:>11.0} {:>9.1} {:>9.1}",
        hook.as_str(),
        body.len(),
        connections,
        count / took.as_secs_f64(),
        at(500),
        at(990),
        cpu,
        count / cpu,
        before.resident_mb,
        after.peak_mb
    );
    std::io::stdout().flush()?;
    Ok(())
}

async fn closed_loop(
    clients: &[Arc<ReviewClient>],
    hook: Hook,
    body: &[u8],
    duration: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let end = Instant::now() + duration;
    let mut tasks = Vec::new();
    for client in clients {
        let (client, body) = (Arc::clone(client), body.to_vec());
        tasks.push(tokio::spawn(async move {
            let body = Arc::<[u8]>::from(body);
            let mut times = Vec::new();
            while Instant::now() < end {
                let sent = Instant::now();
                client.review(hook, body.to_vec()).await?;
                times.push(sent.elapsed());
            }
            anyhow::Ok(times)
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    Ok(times)
}

/// The server process as the loader sees it.
struct InProcessServer {
    child: Child,
    address: SocketAddr,
    ca_pem: String,
    /// Kept open, so that the server can write.
    _output: BufReader<ChildStdout>,
}

impl InProcessServer {
    fn start(reviewer: &str) -> anyhow::Result<Self> {
        let mut command = on_core(0, &[SERVER, reviewer])?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("piped")?);
        let (address, ca_pem) = presented(&mut output)?;
        Ok(Self { child, address, ca_pem, _output: output })
    }
}

impl Drop for InProcessServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server process. Prints its address and its authority, and serves until standard input ends.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let review: ReviewHandler = match arguments.first().map(String::as_str) {
        Some("core") => review_handler(AdmissionSettings::default()),
        Some("stub") => Arc::new(stub),
        other => bail!("--reviewer is core or stub, not {other:?}"),
    };
    // Logs a line for every patched review, as in production. The loader discards standard error.
    start_logging(LogFormat::Logfmt)?;
    present(review).await
}

/// Serves reviews. Prints the address and the authority, and ends with standard input.
pub(crate) async fn present(review: ReviewHandler) -> anyhow::Result<()> {
    let now = SystemTime::now();
    let authority = Authority::new(now)?;
    let certificate =
        LiveCertificate::new(authority.issue(&CertificateNames::loopback(), now)?.server_certificate()?);
    let (listener, admin) =
        (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    // One write, because the loader reads only to the end of the certificate.
    print!("{}\n{}", listener.local_addr()?, authority.pem());
    std::io::stdout().flush()?;
    let service = WebhookDependencies {
        review,
        policies: None,
        certificate: Arc::new(certificate),
        metrics: Arc::new(Metrics::new()),
        clock: Arc::new(SystemTime::now),
        readiness_checks: Vec::new(),
    };
    let config = WebhookConfig { shutdown_delay: Duration::ZERO, ..WebhookConfig::default() };
    run_webhook(listener, admin, config, service, until_input_ends()).await;
    Ok(())
}

/// Reads the output of [`present`] in another process.
pub(crate) fn presented(output: &mut impl BufRead) -> anyhow::Result<(SocketAddr, String)> {
    let mut address = String::new();
    output.read_line(&mut address)?;
    let mut ca_pem = String::new();
    while !ca_pem.contains("-----END") {
        ensure!(output.read_line(&mut ca_pem)? > 0, "the server did not start");
    }
    Ok((address.trim().parse().context("the server did not start")?, ca_pem))
}

/// Completes when standard input ends, which is the end of the parent process.
fn until_input_ends() -> impl Future<Output = ()> {
    let (ended, wait) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    async {
        let _ = wait.await;
    }
}

/// A minimal reviewer: reads the envelope and answers with a patch. It shows the cost of the webhook itself.
pub(crate) fn stub(hook: Hook, body: &[u8]) -> Result<ReviewOutcome, ReviewError> {
    #[derive(Deserialize)]
    struct Review<'a> {
        #[serde(borrow)]
        request: Request<'a>,
    }
    #[derive(Deserialize)]
    struct Request<'a> {
        uid: &'a str,
        operation: &'a str,
        namespace: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let review: Review<'_> =
        serde_json::from_slice(body).map_err(|error| ReviewError::Malformed(error.to_string()))?;
    let Request { uid, operation, namespace, object } = review.request;
    let patch = match hook {
        // Base64 of a patch that adds the gate.
        Hook::Mutate => {
            r#","patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvc2NoZWR1bGluZ0dhdGVzIiwidmFsdWUiOlt7Im5hbWUiOiJwb3J0Y3VsbGlzLmRldi9nYW5nIn1dfV0=""#
        }
        Hook::Validate => "",
    };
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true{patch}}}}}"#
    );
    let verdict =
        if object.get().is_empty() { AdmissionVerdict::Untouched } else { AdmissionVerdict::Patched };
    Ok(ReviewOutcome {
        body: body.into_bytes(),
        summary: ReviewSummary {
            uid: uid.to_owned(),
            operation: operation.to_owned(),
            namespace: namespace.to_owned(),
            name: "app-with-models-model-1-*".to_owned(),
            verdict,
            causes: Vec::new(),
            warnings: 0,
            patch_operations: usize::from(hook == Hook::Mutate),
            policies: None,
        },
    })
}
