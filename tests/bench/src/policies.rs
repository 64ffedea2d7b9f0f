//! Reviews with policy files: `portcullis serve --standalone --policies` on one core, and the loader on
//! another.
//!
//! Rows: the maximum throughput; 1,000 reviews a second by the clock, so that a slow review delays no other
//! request; the same while a set of 500 policies replaces the 20, most of them for other kinds; and the same
//! beside continuous reviews by a hostile policy, measured at other reviews on both pairs of paths.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use portcullis::webhook::{ReviewClient, Route};
use portcullis_core::admission::Hook;

use crate::bodies;
use crate::cluster::account::usage;

const CONNECTIONS: usize = 16;
/// The number of policies that match pods.
const POD_POLICIES: usize = 20;
/// Reviews a second in the rows with a fixed rate.
const REVIEWS_PER_SECOND: u32 = 1000;

/// Rules as platform teams write them, each with a placeholder for a number. All of them admit the body of
/// [`bodies`].
const RULES: [(&str, &str); 10] = [
    (
        "images",
        "object.spec.containers.all(c, c.image.startsWith('registry.example.com/') || c.image.contains('@sha256:'))",
    ),
    ("tags", "object.spec.containers.all(c, c.image.matches(':[^/]+$') && !c.image.endsWith(':latest'))"),
    ("privileged", "object.spec.containers.all(c, !c.?securityContext.?privileged.orValue(false))"),
    (
        "memory",
        "object.spec.containers.all(c, has(c.resources.limits) && quantity(c.resources.limits['memory']).isLessThan(quantity('5{n}2Gi')))",
    ),
    (
        "labels",
        "['app.kubernetes.io/name', 'app.kubernetes.io/component'].all(key, key in object.metadata.labels)",
    ),
    ("volumes", "object.spec.?volumes.orValue([]).all(v, !has(v.hostPath))"),
    (
        "environment",
        "object.spec.containers.all(c, c.?env.orValue([]).all(e, e.name != 'NVIDIA_VISIBLE_DEVICES' && e.name != 'SECRET_{n}'))",
    ),
    ("share", "int(object.metadata.?annotations[?'gpu-memory'].orValue('0')) <= 8{n}000"),
    ("tolerations", "object.spec.?tolerations.orValue([]).all(t, t.?key.orValue('') != 'reserved-{n}')"),
    ("grace", "object.spec.?terminationGracePeriodSeconds.orValue(30) <= 36{n}"),
];

fn policy(number: usize) -> String {
    let (name, expression) = RULES[number % RULES.len()];
    let expression = expression.replace("{n}", &(number / RULES.len()).to_string());
    // The number of policies for pods is constant, so that only the reload varies.
    let (group, resource) = if number < POD_POLICIES { ("", "pods") } else { ("batch", "jobs") };
    let expression = if number < POD_POLICIES {
        expression
    } else {
        expression.replace("object.spec.", "object.spec.template.spec.")
    };
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}-{number}}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [\"{group}\"], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [{resource}]}}]
  matchConditions:
    - name: not-of-the-system
      expression: \"!request.userInfo.username.startsWith('system:node:')\"
  variables:
    - name: who
      expression: object.metadata.?labels[?'app.kubernetes.io/name'].orValue('unnamed')
  validations:
    - expression: >-
        {expression}
      messageExpression: \"'rule {name} of ' + variables.who\"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}-{number}}}
spec: {{policyName: {name}-{number}, validationActions: [Deny]}}
"
    )
}

/// The user whose reviews the hostile policy matches.
const HOSTILE: &str = "system:serviceaccount:hostile:hostile";

/// A policy of 100 rules, each of which exceeds its budget.
fn hostile() -> String {
    let rule = "    - expression: lists.range(10000).all(a, lists.range(10000).all(b, a + b >= 0))\n";
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: hostile}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}}]
  matchConditions:
    - name: its-own
      expression: \"request.userInfo.username == '{HOSTILE}'\"
  validations:
{}---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: hostile}}
spec: {{policyName: hostile, validationActions: [Deny]}}
",
        rule.repeat(100)
    )
}

/// Directories with policies behind a symbolic link, as the kubelet mounts a ConfigMap.
struct Mount {
    directory: PathBuf,
}

impl Mount {
    fn new() -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("portcullis-bench-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    /// Writes a set of policies that the program does not see yet.
    fn write(&self, count: usize, more: Option<String>) -> anyhow::Result<PathBuf> {
        let inside = self.directory.join(format!("..{count}-{}", more.is_some()));
        fs::create_dir_all(&inside)?;
        if let Some(more) = more {
            fs::write(inside.join("more.yaml"), more)?;
        }
        // Ten policies in each file.
        let mut text = String::new();
        for number in 0..count {
            text += &format!("---\n{}", policy(number));
            if number % 10 == 9 || number + 1 == count {
                fs::write(inside.join(format!("{:03}.yaml", number / 10)), &text)?;
                text.clear();
            }
        }
        Ok(inside)
    }

    fn show(&self, inside: &Path) -> anyhow::Result<()> {
        let files = self.directory.join("files");
        let next = self.directory.join("..next");
        std::os::unix::fs::symlink(inside, &next)?;
        fs::rename(next, files)?;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

struct PolicyProcess {
    child: Child,
    address: SocketAddr,
    ca_pem: String,
    log: PathBuf,
}

impl PolicyProcess {
    fn start(mount: &Mount) -> anyhow::Result<Self> {
        let binary = std::env::current_exe()?.with_file_name("portcullis");
        ensure!(binary.exists(), "{} is not built: cargo build --release", binary.display());
        let certificates = mount.directory.join("certs");
        let log = mount.directory.join("log");
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(binary).args([
            "serve",
            "--standalone",
            "--bind",
            "127.0.0.1:0",
            "--admin-bind",
            "127.0.0.1:0",
        ]);
        command.arg("--max-concurrent=1").arg("--certs-dir").arg(&certificates);
        command.arg("--policies").arg(mount.directory.join("files"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log)?);
        let mut child = command.spawn().context("taskset is needed")?;
        let output = BufReader::new(child.stdout.take().context("piped")?);
        let mut address = None;
        for line in output.lines() {
            let line = line?;
            if let Some(rest) = line.trim().strip_prefix("reviews   https://") {
                address = rest.split('/').next().and_then(|address| address.parse().ok());
            }
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        let Some(address) = address else {
            bail!("the server did not start:\n{}", fs::read_to_string(&log)?);
        };
        let ca_pem = fs::read_to_string(certificates.join("ca.crt"))?;
        Ok(Self { child, address, ca_pem, log })
    }

    fn clients(&self) -> anyhow::Result<Vec<Arc<ReviewClient>>> {
        (0..CONNECTIONS).map(|_| Ok(Arc::new(ReviewClient::new(self.address, &self.ca_pem)?))).collect()
    }

    /// The duration of the last reload from the log of the program.
    fn reload_ms(&self) -> anyhow::Result<Option<u64>> {
        let text = fs::read_to_string(&self.log)?;
        let line = text.lines().rev().find(|line| line.contains("policies reloaded"));
        Ok(line.and_then(|line| line.split("took_ms=").nth(1)?.split_whitespace().next()?.parse().ok()))
    }
}

impl Drop for PolicyProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures and prints the table.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    if arguments.first().map(String::as_str) == Some("--pinned") {
        return load();
    }
    let status = Command::new("taskset")
        .args(["-c", "1"])
        .arg(std::env::current_exe()?)
        .args(["policies", "--pinned"])
        .status()
        .context("taskset is needed")?;
    ensure!(status.success(), "the loader failed");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn load() -> anyhow::Result<()> {
    let mount = Mount::new()?;
    mount.show(&mount.write(POD_POLICIES, None)?)?;
    let server = PolicyProcess::start(&mount)?;
    println!("20 policies; server on core 0, loader on core 1; {CONNECTIONS} connections");
    println!(
        "{:<34} {:>6} {:>10} {:>11} {:>8} {:>8} {:>8}",
        "what", "bytes", "reviews/s", "per core/s", "p50 µs", "p99 µs", "max µs"
    );
    let route = Route::Policies(Hook::Validate);
    let bodies = [bodies::gpu_pod(false), bodies::gpu_pod(true)];
    let clients = server.clients()?;
    for body in &bodies {
        let answer = String::from_utf8(clients[0].send(route, body.clone()).await?)?;
        ensure!(answer.contains("\"allowed\":true"), "the review was not allowed: {answer}");
        closed(&clients, route, body, Duration::from_secs(1)).await?;
        let (before, begun) = (usage(server.child.id())?.cpu, Instant::now());
        let times = closed(&clients, route, body, Duration::from_secs(5)).await?;
        let cpu = usage(server.child.id())?.cpu - before;
        row("as many as go through", body.len(), times, begun.elapsed(), cpu)?;
    }
    let body = &bodies[1];
    let (before, begun) = (usage(server.child.id())?.cpu, Instant::now());
    let times = open(&clients, route, body, Duration::from_secs(5)).await?;
    let cpu = usage(server.child.id())?.cpu - before;
    row("1,000 a second", body.len(), times, begun.elapsed(), cpu)?;

    let resident = usage(server.child.id())?.resident_mb;
    let many = mount.write(500, None)?;
    let loading = open(&clients, route, body, Duration::from_secs(6));
    let changing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        mount.show(&many)
    };
    let (before, begun) = (usage(server.child.id())?.cpu, Instant::now());
    let (times, changed) = tokio::join!(loading, changing);
    changed?;
    let cpu = usage(server.child.id())?.cpu - before;
    row("1,000 a second, 500 take their place", body.len(), times?, begun.elapsed(), cpu)?;
    let took = server.reload_ms()?.context("the 500 policies were not loaded")?;
    let after = usage(server.child.id())?;
    println!(
        "reload of 500 policies: {took} ms; resident {resident:.1} MB before, {:.1} MB after, {:.1} MB at most",
        after.resident_mb, after.peak_mb
    );
    beside_hostile(&mount, &server, &clients, body).await
}

/// The latency of other reviews beside reviews that use the whole budget.
async fn beside_hostile(
    mount: &Mount,
    server: &PolicyProcess,
    clients: &[Arc<ReviewClient>],
    body: &[u8],
) -> anyhow::Result<()> {
    mount.show(&mount.write(POD_POLICIES, Some(hostile()))?)?;
    let route = Route::Policies(Hook::Validate);
    let own = String::from_utf8(body.to_vec())?
        .replace("system:serviceaccount:kube-system:job-controller", HOSTILE);
    let (intruder, own) = (Arc::new(ReviewClient::new(server.address, &server.ca_pem)?), own.into_bytes());
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = String::from_utf8(intruder.send(route, own.clone()).await?)?;
        if answer.contains("cost budget") {
            break;
        }
        ensure!(Instant::now() < until, "the hostile policy was not loaded: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let intruding = tokio::spawn(async move {
        let mut times = Vec::new();
        while !*stopped.borrow_and_update() {
            let sent = Instant::now();
            intruder.send(route, own.clone()).await?;
            times.push(sent.elapsed());
        }
        anyhow::Ok(times)
    });
    for (what, route) in [("policies", route), ("gangs", Route::Gangs(Hook::Mutate))] {
        let (before, begun) = (usage(server.child.id())?.cpu, Instant::now());
        let times = open(clients, route, body, Duration::from_secs(5)).await?;
        let cpu = usage(server.child.id())?.cpu - before;
        row(&format!("{what}, beside a hostile one"), body.len(), times, begun.elapsed(), cpu)?;
    }
    stop.send_replace(true);
    let times = intruding.await??;
    let longest = times.iter().max().copied().unwrap_or_default();
    println!(
        "hostile reviews answered meanwhile: {}, the longest in {} ms",
        times.len(),
        longest.as_millis()
    );
    Ok(())
}

fn row(what: &str, bytes: usize, mut times: Vec<Duration>, took: Duration, cpu: f64) -> anyhow::Result<()> {
    times.sort_unstable();
    ensure!(!times.is_empty(), "no review was answered");
    let at = |per_mille: usize| times[(times.len() * per_mille / 1000).min(times.len() - 1)].as_micros();
    let count = f64::from(u32::try_from(times.len())?);
    println!(
        "{what:<34} {bytes:>6} {:>10.0} {:>11.0} {:>8} {:>8} {:>8}",
        count / took.as_secs_f64(),
        count / cpu,
        at(500),
        at(990),
        at(1000)
    );
    Ok(())
}

/// Each connection sends the next review after the answer to the last.
async fn closed(
    clients: &[Arc<ReviewClient>],
    route: Route,
    body: &[u8],
    duration: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let end = Instant::now() + duration;
    let one = |client: &Arc<ReviewClient>| {
        let (client, body) = (Arc::clone(client), body.to_vec());
        tokio::spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let sent = Instant::now();
                client.send(route, body.clone()).await?;
                times.push(sent.elapsed());
            }
            anyhow::Ok(times)
        })
    };
    all(clients.iter().map(one).collect()).await
}

/// Reviews are due by the clock. The time that a review waits for a connection counts.
async fn open(
    clients: &[Arc<ReviewClient>],
    route: Route,
    body: &[u8],
    duration: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let begun = Instant::now();
    let connections = u32::try_from(clients.len())?;
    let one = |(index, client): (u32, &Arc<ReviewClient>)| {
        let (client, body) = (Arc::clone(client), body.to_vec());
        tokio::spawn(async move {
            let mut times = Vec::new();
            let each = Duration::from_secs(1) * connections / REVIEWS_PER_SECOND;
            let mut due = begun + Duration::from_secs(1) * index / REVIEWS_PER_SECOND;
            while due < begun + duration {
                tokio::time::sleep_until(due.into()).await;
                client.send(route, body.clone()).await?;
                times.push(due.elapsed());
                due += each;
            }
            anyhow::Ok(times)
        })
    };
    all((0..).zip(clients).map(one).collect()).await
}

async fn all(
    tasks: Vec<tokio::task::JoinHandle<anyhow::Result<Vec<Duration>>>>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    Ok(times)
}
