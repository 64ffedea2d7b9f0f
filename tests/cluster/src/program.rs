//! Portcullis installed by its manifests, with its replicas as child processes instead of pods.
//!
//! The manifests are applied unchanged. Then two things are adapted, because a fake kubelet runs no
//! container. The Service becomes an alias of the loopback address, and the webhook configurations name a
//! local port instead of 443. Name, path, certificate and `caBundle` stay as in a real installation. The
//! processes have the RBAC rights of the manifests and no others, and the arguments of the Deployment.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::balancer::{Balancer, is_ready};
use crate::binaries::root;
use crate::cluster::Cluster;
use crate::guard::{Process, Recipe, tail};
use crate::identity::NAMESPACE;
use crate::ports;
use crate::wait::WAIT_TIMEOUT;

/// The configuration of an installation.
#[derive(Clone, Debug)]
pub struct ProgramOptions {
    /// The binary: `env!("CARGO_BIN_EXE_portcullis")` in a test.
    pub binary: PathBuf,
    /// The number of replicas.
    pub replicas: usize,
    /// Arguments `--name=value` that are added to those of the Deployment or replace them.
    pub flags: Vec<String>,
    /// Added to the environment. `{name}` in a value becomes the name of the replica, such as `portcullis-0`.
    pub environment: Vec<(String, String)>,
    /// Directories in `manifests/components` to install as well.
    pub components: Vec<String>,
    /// The kubeconfig of the program, if it differs from that of the cluster: for a proxy that injects
    /// faults.
    pub kubeconfig: Option<PathBuf>,
}

impl ProgramOptions {
    /// Two replicas of `binary`, and the PodGroup kinds, which a new cluster lacks.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            replicas: 2,
            flags: Vec::new(),
            environment: Vec::new(),
            components: vec!["pod-group-crds".to_owned()],
            kubeconfig: None,
        }
    }
}

struct Replica {
    recipe: Recipe,
    process: Option<Process>,
    webhook: SocketAddr,
    admin: SocketAddr,
}

/// Portcullis in a cluster. Dropping it ends the processes and keeps the installed objects.
pub struct Portcullis<'a> {
    cluster: &'a Cluster,
    options: ProgramOptions,
    balancer: Balancer,
    replicas: Mutex<Vec<Replica>>,
}

impl<'a> Portcullis<'a> {
    /// Installs it, starts the replicas, and waits until a pod of a gang would get its gate.
    ///
    /// # Errors
    /// The message of kubectl, or the end of the log of a replica that does not become ready.
    pub fn start(cluster: &'a Cluster, options: ProgramOptions) -> Result<Self> {
        install(cluster, &options.components)?;
        cluster.put_on_path("portcullis", &options.binary)?;
        let balancer = Balancer::start(cluster.api().runtime(), ports::free()?)?;
        redirect(cluster, balancer.port())?;
        let count = options.replicas;
        let portcullis = Self { cluster, options, balancer, replicas: Mutex::default() };
        for _ in 0..count {
            portcullis.add()?;
        }
        for replica in 0..count {
            portcullis.wait_ready(replica)?;
        }
        if count > 0 {
            wait_gating(cluster)?;
        }
        Ok(portcullis)
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Replica>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more replica and returns its number, counted from 0. Does not wait until it is ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn add(&self) -> Result<usize> {
        let mut replicas = self.locked();
        let number = replicas.len();
        let name = format!("portcullis-{number}");
        let (webhook, admin) = (loopback(ports::free()?), loopback(ports::free()?));
        let recipe = recipe(self.cluster, &self.options, &name, webhook, admin)?;
        let process = Some(recipe.start(self.cluster.guard())?);
        replicas.push(Replica { recipe, process, webhook, admin });
        self.balancer.add(&name, webhook, admin);
        Ok(number)
    }

    /// Waits until a replica is ready and the Service has it as an endpoint.
    ///
    /// # Errors
    /// The end of its log, when it ends or does not become ready in time.
    pub fn wait_ready(&self, number: usize) -> Result<()> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let name = format!("portcullis-{number}");
        while !self.balancer.ready().contains(&name) {
            let mut replicas = self.locked();
            let replica = replicas.get_mut(number).ok_or_else(|| anyhow!("there is no {name}"))?;
            let log = replica.recipe.log();
            let ended = replica.process.as_mut().map(Process::ended).transpose()?.flatten();
            drop(replicas);
            if ended.is_some() || Instant::now() > deadline {
                let how =
                    ended.map_or("is not ready in time".to_owned(), |status| format!("ended with {status}"));
                bail!("{name} {how}; {} ends with\n{}", log.display(), tail(&log, 40));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends a signal to a replica: `STOP`, `CONT`, or `TERM` for a shutdown. The replica stays in the
    /// Service until it is not ready.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let replicas = self.locked();
        let process = replicas.get(number).and_then(|replica| replica.process.as_ref());
        process.ok_or_else(|| anyhow!("portcullis-{number} does not run"))?.signal(signal)
    }

    /// Kills a replica at once.
    pub fn kill(&self, number: usize) {
        let process = self.locked().get_mut(number).and_then(|replica| replica.process.take());
        if let Some(mut process) = process {
            process.kill(self.cluster.guard());
        }
    }

    /// Restarts a replica that has ended, with the same name and ports.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn revive(&self, number: usize) -> Result<()> {
        self.kill(number);
        let mut replicas = self.locked();
        let replica = replicas.get_mut(number).ok_or_else(|| anyhow!("there is no portcullis-{number}"))?;
        replica.process = Some(replica.recipe.start(self.cluster.guard())?);
        self.balancer.add(&replica.recipe.name, replica.webhook, replica.admin);
        Ok(())
    }

    /// Ends a replica as a rolling update does: removes it from the Service, sends SIGTERM and waits for its
    /// end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn terminate(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::TERM)?;
        self.balancer.remove(&format!("portcullis-{number}"));
        let process = self.locked().get_mut(number).and_then(|replica| replica.process.take());
        let Some(mut process) = process else { return Ok(()) };
        process.wait(WAIT_TIMEOUT)?;
        process.forget(self.cluster.guard());
        Ok(())
    }

    /// The number of replicas that were ever started.
    pub fn replicas(&self) -> usize {
        self.locked().len()
    }

    /// The process id of a replica that runs.
    pub fn process(&self, number: usize) -> Option<u32> {
        self.locked().get(number)?.process.as_ref().map(Process::id)
    }

    /// The number of the leader by the Lease; `None` when the Lease has no holder or a holder that is not a
    /// replica of this installation.
    pub fn leader(&self) -> Option<usize> {
        let lease = self.cluster.api().find(LEASE).ok()??;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        // The identity is the name of the replica and a suffix that changes with each start.
        (0..self.replicas()).rev().find(|number| {
            holder
                .strip_prefix(&format!("portcullis-{number}"))
                .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        })
    }

    /// The log file of a replica.
    pub fn log(&self, number: usize) -> PathBuf {
        self.cluster.directory().join(format!("portcullis-{number}.log"))
    }

    /// The address at which a replica serves probes and metrics.
    pub fn admin(&self, number: usize) -> Option<SocketAddr> {
        self.locked().get(number).map(|replica| replica.admin)
    }

    /// The stand-in for the Service.
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }
}

impl Drop for Portcullis<'_> {
    fn drop(&mut self) {
        for number in 0..self.replicas() {
            if std::thread::panicking() {
                let log = self.log(number);
                eprintln!("{} ends with\n{}\n", log.display(), tail(&log, 15));
            }
            self.kill(number);
        }
    }
}

/// The path of the Lease by which the replicas elect a leader.
pub const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/portcullis-system/leases/portcullis";

/// The paths of both kinds of webhook configurations, and the names of Portcullis's own. The second name is
/// that of the component `policies`.
const REGISTRATIONS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
];
const NAMES: [&str; 2] = ["portcullis", "policies.portcullis.dev"];

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// `kubectl apply -k manifests/` with some components, strictly validated by the server.
///
/// # Errors
/// The message of kubectl.
pub fn install(cluster: &Cluster, components: &[String]) -> Result<()> {
    let manifests = root().join("manifests");
    let directory = if components.is_empty() {
        manifests
    } else {
        // kustomize needs relative paths.
        let overlay = cluster.directory().join("install");
        fs::create_dir_all(&overlay)?;
        let below = overlay.strip_prefix(root()).context("the cluster's directory lies in the repository")?;
        let up = "../".repeat(below.components().count());
        let parts: Vec<String> =
            components.iter().map(|name| format!("{up}manifests/components/{name}")).collect();
        let text = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [format!("{up}manifests")], "components": parts,
        });
        fs::write(overlay.join("kustomization.yaml"), text.to_string())?;
        overlay
    };
    let directory = directory.display().to_string();
    // The API server may not know a kind yet when the first object of it follows its definition. A second
    // apply succeeds.
    let mut output = cluster.kubectl(&["apply", "--validate=strict", "-k", &directory]);
    if output.code != 0 && output.stderr.contains("no matches for kind") {
        output = cluster.kubectl(&["apply", "--validate=strict", "-k", &directory]);
    }
    if output.code != 0 {
        bail!("kubectl apply -k {directory}: {}", output.stderr);
    }
    let output = cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
    if output.code != 0 {
        bail!("the CRDs are not established: {}{}", output.stdout, output.stderr);
    }
    Ok(())
}

/// Redirects the calls of the API server for the webhook to a port of this machine.
///
/// # Errors
/// When the registrations or the Service are not there.
pub fn redirect(cluster: &Cluster, port: u16) -> Result<()> {
    let service = json!({"spec": {"type": "ExternalName", "externalName": "127.0.0.1", "clusterIP": null, "clusterIPs": null}});
    let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
    let api = cluster.api();
    api.merge(&format!("{services}/portcullis"), &service)?;
    for (kind, name) in REGISTRATIONS.iter().flat_map(|kind| NAMES.map(|name| (kind, name))) {
        let path = &format!("{kind}/{name}");
        let configuration = match api.find(path)? {
            Some(configuration) => configuration,
            None if name == NAMES[0] => bail!("{path} is not registered"),
            None => continue,
        };
        let count = configuration["webhooks"].as_array().map_or(0, Vec::len);
        let patch: Vec<Value> = (0..count)
            .map(|n| json!({"op": "add", "path": format!("/webhooks/{n}/clientConfig/service/port"), "value": port}))
            .collect();
        api.patch(path, &Value::Array(patch))?;
    }
    Ok(())
}

/// Waits until a dry-run pod that names a group gets the gate.
///
/// # Errors
/// The last answer, after the timeout.
pub fn wait_gating(cluster: &Cluster) -> Result<()> {
    let pod = json!({
        "metadata": {"name": "probe", "labels": {"kai.scheduler/podgroup": "probe"}, "annotations": {"pod-group-name": "probe"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/nothing"}]},
    });
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let answer = cluster.api().send(
            Method::POST,
            "/api/v1/namespaces/default/pods?dryRun=All",
            "application/json",
            Some(&pod),
        )?;
        let gates = answer.body["spec"]["schedulingGates"].as_array();
        if gates.is_some_and(|gates| {
            gates.iter().any(|gate| gate["name"] == portcullis_core::objects::names::GATE)
        }) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "the webhook does not gate a pod after {WAIT_TIMEOUT:?}: {} {:#}",
                answer.code,
                answer.body
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The recipe of one replica.
///
/// # Errors
/// When the Deployment is not there.
pub fn recipe(
    cluster: &Cluster,
    options: &ProgramOptions,
    name: &str,
    webhook: SocketAddr,
    admin: SocketAddr,
) -> Result<Recipe> {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/portcullis");
    let deployment = cluster.api().get(&path)?;
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        .as_array()
        .ok_or_else(|| anyhow!("the Deployment names no arguments"))?;
    let binary = fs::canonicalize(&options.binary).with_context(|| options.binary.display().to_string())?;
    let mut ours = vec![format!("--bind={webhook}"), format!("--admin-bind={admin}")];
    ours.extend(options.flags.iter().cloned());
    let name_of = |flag: &str| flag.split('=').next().unwrap_or(flag).to_owned();
    let replaced: Vec<String> = ours.iter().map(|flag| name_of(flag)).collect();
    let mut command = vec![binary.into_os_string()];
    let kept = arguments.iter().filter_map(Value::as_str).filter(|flag| !replaced.contains(&name_of(flag)));
    command.extend(kept.map(OsString::from));
    command.extend(ours.into_iter().map(OsString::from));
    let kubeconfig: &Path = options.kubeconfig.as_deref().unwrap_or(cluster.program());
    let mut environment = vec![
        ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
        ("POD_NAME".to_owned(), name.to_owned()),
        ("POD_NAMESPACE".to_owned(), NAMESPACE.to_owned()),
    ];
    environment
        .extend(options.environment.iter().map(|(key, value)| (key.clone(), value.replace("{name}", name))));
    Ok(Recipe { name: name.to_owned(), command, environment, directory: cluster.directory().to_path_buf() })
}

/// Waits until a replica outside of an installation is ready.
///
/// # Errors
/// The end of its log, when it ends or is not ready in time.
pub fn wait_answering(cluster: &Cluster, admin: SocketAddr, process: &mut Process) -> Result<()> {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !cluster.api().runtime().block_on(is_ready(admin)) {
        let ended = process.ended()?;
        if ended.is_some() || Instant::now() > deadline {
            let how =
                ended.map_or("is not ready in time".to_owned(), |status| format!("ended with {status}"));
            bail!("portcullis {how}; its log ends with\n{}", tail(process.log(), 40));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
