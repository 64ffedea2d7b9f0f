//! Runs etcd, API server, scheduler, controllers and fake kubelets as child processes.
//!
//! Each part can be stopped, paused and restarted while the others run, on the same port and with the same
//! data. This module owns the processes and their directory. It does not read the objects in the cluster.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;

use crate::api::Api;
use crate::binaries::{Binaries, Version, root, scratch};
use crate::guard::{Guard, Process, Recipe, tail};
use crate::identity::Identity;
use crate::ports;

/// Upper bound of the start of a part, for a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// A part of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-scheduler.
    Scheduler,
    /// kube-controller-manager: Jobs, ReplicaSets, garbage collection, ...
    ControllerManager,
    /// kwok: makes every node Ready and runs every bound pod.
    Kubelets,
}

impl Part {
    /// All parts in the order in which they start.
    pub const ALL: [Self; 5] =
        [Self::Etcd, Self::ApiServer, Self::Scheduler, Self::ControllerManager, Self::Kubelets];

    /// The name of its log file, without `.log`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::Scheduler => "kube-scheduler",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kubelets => "kwok",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The configuration of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// The version of Kubernetes.
    pub version: Version,
    /// Parts that do not start with the others. [`ControlPlane::start_part`] starts them later.
    pub without: Vec<Part>,
    /// Client limits of scheduler and controllers: requests a second, and burst. The scheduler ships with 50
    /// and 100.
    pub client_rate: (u32, u32),
    /// Added to the API server's command line, such as `--runtime-config=scheduling.k8s.io/v1alpha2=true`.
    pub api_server_flags: Vec<String>,
    /// Such as `GenericWorkload=true`, for API server, scheduler and controllers.
    pub feature_gates: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::default(),
            without: Vec::new(),
            client_rate: (5000, 5000),
            api_server_flags: Vec::new(),
            feature_gates: Vec::new(),
        }
    }
}

impl Options {
    /// Options with native pod groups: `PodGroup` in 1.36, `Workload` in both versions.
    pub fn native_groups(version: Version) -> Self {
        let api = match version {
            Version::V1_36 => "scheduling.k8s.io/v1alpha2=true",
            Version::V1_35 => "scheduling.k8s.io/v1alpha1=true",
        };
        Self {
            version,
            api_server_flags: vec![format!("--runtime-config={api}")],
            feature_gates: vec!["GenericWorkload=true".to_owned(), "GangScheduling=true".to_owned()],
            ..Self::default()
        }
    }
}

/// A running control plane. Dropping it ends all processes and removes the directory.
pub struct ControlPlane {
    directory: PathBuf,
    identity: Identity,
    binaries: Binaries,
    recipes: BTreeMap<Part, Recipe>,
    etcd_port: u16,
    api: Api,
    running: Mutex<BTreeMap<Part, Process>>,
    guard: Guard,
}

impl ControlPlane {
    /// Starts a control plane that ends with this process.
    ///
    /// # Errors
    /// When the programs are missing or a part does not come up; the message has the end of its log.
    pub fn start(options: &Options) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = scratch().join(format!("run/{}-{number}", std::process::id()));
        Self::start_in(options, &directory)
    }

    /// Starts a control plane in a given directory.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn start_in(options: &Options, directory: &Path) -> Result<Self> {
        let binaries = Binaries::of(options.version)?;
        let mut tries = 1;
        loop {
            match Self::try_start(options, &binaries, directory) {
                // Another process took the port after it was found free.
                Err(error) if tries < 4 && format!("{error:#}").contains("address already in use") => {
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    fn try_start(options: &Options, binaries: &Binaries, directory: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let guard = Guard::new(directory)?;
        let (etcd_port, peer_port, api_port) = (ports::free()?, ports::free()?, ports::free()?);
        let identity = Identity::write(directory, &format!("https://127.0.0.1:{api_port}"))?;
        let recipes = recipes(options, binaries, directory, &identity, [etcd_port, peer_port, api_port])?;
        let plane = Self {
            directory: directory.to_path_buf(),
            api: Api::new(&identity.admin)?,
            identity,
            binaries: binaries.clone(),
            recipes,
            etcd_port,
            running: Mutex::default(),
            guard,
        };
        for part in Part::ALL.into_iter().filter(|part| !options.without.contains(part)) {
            plane.start_part(part)?;
        }
        Ok(plane)
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<Part, Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a part that does not run. Waits until etcd or the API server answers.
    ///
    /// # Errors
    /// When it runs already or does not come up.
    pub fn start_part(&self, part: Part) -> Result<()> {
        let recipe = self.recipes.get(&part).ok_or_else(|| anyhow!("{part} is no part of this cluster"))?;
        {
            let mut running = self.running();
            if running.contains_key(&part) {
                bail!("{part} runs already");
            }
            running.insert(part, recipe.start(Some(&self.guard))?);
        }
        match part {
            Part::Etcd => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.etcd_port));
                self.come_up(part, || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
            }
            Part::ApiServer => self.come_up(part, || {
                self.api.get("/readyz").is_ok() && self.api.get("/api/v1/namespaces/default").is_ok()
            }),
            Part::Scheduler | Part::ControllerManager | Part::Kubelets => Ok(()),
        }
    }

    fn come_up(&self, part: Part, is_up: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_up() {
            let ended = self.running().get_mut(&part).map(Process::ended).transpose()?.flatten();
            let log = self.log(part);
            if let Some(status) = ended {
                self.stop_part(part);
                bail!(
                    "{part} ended with {status} at its start; {} ends with\n{}",
                    log.display(),
                    tail(&log, 20)
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "{part} does not answer after {START_TIMEOUT:?}; {} ends with\n{}",
                    log.display(),
                    tail(&log, 20)
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Kills a part, as a crash does. Does nothing when the part does not run.
    pub fn stop_part(&self, part: Part) {
        if let Some(mut process) = self.running().remove(&part) {
            process.kill(Some(&self.guard));
        }
    }

    /// Kills a part and starts it again, on the same port and with the same data.
    ///
    /// # Errors
    /// When it does not come up again.
    pub fn restart(&self, part: Part) -> Result<()> {
        self.stop_part(part);
        self.start_part(part)
    }

    /// Pauses a part (SIGSTOP).
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, part: Part) -> Result<()> {
        self.signal(part, Signal::STOP)
    }

    /// Resumes a paused part (SIGCONT).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, part: Part) -> Result<()> {
        self.signal(part, Signal::CONT)
    }

    fn signal(&self, part: Part, signal: Signal) -> Result<()> {
        self.running().get(&part).ok_or_else(|| anyhow!("{part} does not run"))?.signal(signal)
    }

    /// The process ids of the parts that run.
    pub fn processes(&self) -> BTreeMap<Part, u32> {
        self.running().iter().map(|(part, process)| (*part, process.id())).collect()
    }

    /// The log file of a part.
    pub fn log(&self, part: Part) -> PathBuf {
        self.directory.join(format!("{part}.log"))
    }

    /// The directory of data, logs and kubeconfig files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The users and certificates of the cluster.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A client with the rights of an administrator.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The programs of the parts.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The guard that ends all processes with this one.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Detaches the processes: they run on after this process, and their files stay.
    pub fn detach(&self) {
        self.guard.release();
        self.running().clear();
    }

    /// Prints the directory of the logs and keeps it.
    pub fn keep_directory(&self) {
        self.guard.keep_directory();
        eprintln!("the logs of the test cluster: {}", self.directory.display());
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() || std::env::var_os("PORTCULLIS_KEEP").is_some() {
            self.keep_directory();
        }
        // The API server ends before etcd, because it hangs without its store.
        for part in Part::ALL.into_iter().rev() {
            self.stop_part(part);
        }
        self.guard.finish();
    }
}

fn recipes(
    options: &Options,
    binaries: &Binaries,
    directory: &Path,
    identity: &Identity,
    [etcd, peer, api]: [u16; 3],
) -> Result<BTreeMap<Part, Recipe>> {
    let (rate, burst) = options.client_rate;
    let gates = (!options.feature_gates.is_empty())
        .then(|| format!("--feature-gates={}", options.feature_gates.join(",")));
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());

    let store = format!("http://127.0.0.1:{etcd}");
    let etcd_arguments = vec![
        flag("data-dir", &directory.join("etcd")),
        format!("--listen-client-urls={store}"),
        format!("--advertise-client-urls={store}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        "--unsafe-no-fsync".to_owned(),
    ];

    let mut api_arguments = vec![
        format!("--etcd-servers={store}"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        flag("service-account-key-file", &identity.tokens_public),
        flag("service-account-signing-key-file", &identity.tokens_private),
        flag("token-auth-file", &identity.users),
        "--authorization-mode=RBAC".to_owned(),
        format!("--secure-port={api}"),
        "--bind-address=127.0.0.1".to_owned(),
        // The address must not be a loopback address. It comes from a range for documentation, and no client
        // connects to it.
        "--advertise-address=192.0.2.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        flag("tls-cert-file", &identity.certificate),
        flag("tls-private-key-file", &identity.key),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // No kubelet mounts tokens here, and no controller removes the taint of a new node.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
    ];
    api_arguments.extend(gates.clone());
    api_arguments.extend(options.api_server_flags.iter().cloned());

    let configuration = directory.join("scheduler.yaml");
    fs::write(
        &configuration,
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {{leaderElect: false}}\n\
             clientConnection: {{kubeconfig: \"{}\", qps: {rate}, burst: {burst}}}\n",
            identity.admin.display()
        ),
    )?;
    let mut scheduler_arguments = vec![flag("config", &configuration), "--secure-port=0".to_owned()];
    scheduler_arguments.extend(gates.clone());

    let mut controller_arguments = vec![
        flag("kubeconfig", &identity.admin),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        // No kubelet renews a node lease, and service accounts have no token files.
        "--controllers=*,-nodelifecycle,-nodeipam,-cloud-node-lifecycle,-serviceaccount-token".to_owned(),
        format!("--kube-api-qps={rate}"),
        format!("--kube-api-burst={burst}"),
    ];
    controller_arguments.extend(gates);

    let stages = root().join("tests/cluster/stages");
    let kwok_arguments = vec![
        flag("kubeconfig", &identity.admin),
        "--manage-all-nodes=true".to_owned(),
        flag("config", &stages.join("nodes.yaml")),
        flag("config", &stages.join("pods.yaml")),
    ];

    let recipe = |part: Part, program: &[OsString], arguments: Vec<String>| {
        let command = program.iter().cloned().chain(arguments.into_iter().map(OsString::from)).collect();
        let recipe = Recipe {
            name: part.name().to_owned(),
            command,
            environment: Vec::new(),
            directory: directory.to_path_buf(),
        };
        (part, recipe)
    };
    Ok(BTreeMap::from([
        recipe(Part::Etcd, &binaries.etcd, etcd_arguments),
        recipe(Part::ApiServer, &binaries.api_server, api_arguments),
        recipe(Part::Scheduler, &binaries.scheduler, scheduler_arguments),
        recipe(Part::ControllerManager, &binaries.controller_manager, controller_arguments),
        recipe(Part::Kubelets, &binaries.kwok, kwok_arguments),
    ]))
}
