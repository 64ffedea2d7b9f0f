//! A cluster for tests: one that the tests start, or one that runs already.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use crate::api::Api;
use crate::binaries::{self, Binaries, Version, scratch};
use crate::control_plane::{ControlPlane, Options};
use crate::guard::Guard;
use crate::identity::{PROGRAM_GROUPS, PROGRAM_USER};

/// A cluster: its API server, its users, and its processes where the tests have started them.
pub struct Cluster {
    control_plane: Option<ControlPlane>,
    admin: PathBuf,
    program: PathBuf,
    directory: PathBuf,
    kubectl: Vec<OsString>,
    api: Api,
    /// `None` for a cluster that the tests have not started.
    guard: Option<Guard>,
}

impl Cluster {
    /// Starts a new cluster. It ends when it is dropped, or with this process.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn start(options: &Options) -> Result<Self> {
        Self::of(ControlPlane::start(options)?)
    }

    /// A cluster around a running control plane.
    ///
    /// # Errors
    /// When its directory cannot be written to.
    pub fn of(control_plane: ControlPlane) -> Result<Self> {
        let identity = control_plane.identity();
        put_kubectl(control_plane.directory(), &control_plane.binaries().kubectl)?;
        Ok(Self {
            admin: identity.admin.clone(),
            program: identity.program.clone(),
            directory: control_plane.directory().to_path_buf(),
            kubectl: control_plane.binaries().kubectl.clone(),
            api: control_plane.api().clone(),
            control_plane: Some(control_plane),
            guard: None,
        })
    }

    /// A cluster that runs already, by the kubeconfig of an administrator with the right to impersonate. It
    /// must reach 127.0.0.1 of this machine for the webhook. Its processes cannot be controlled.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn running(kubeconfig: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = scratch().join(format!("run/{}-running-{number}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let kubectl = Binaries::any_kubectl();
        put_kubectl(&directory, &kubectl)?;
        let output = crate::kubectl::run(&kubectl, kubeconfig, &VIEW, "")?;
        let admin = directory.join("admin.kubeconfig");
        fs::write(&admin, &output.stdout)?;
        let mut config: Value = serde_json::from_str(&output.stdout)
            .with_context(|| format!("{}: {}", kubeconfig.display(), output.stderr))?;
        let user = config["users"][0]["user"]
            .as_object_mut()
            .ok_or_else(|| anyhow!("{} names no user", kubeconfig.display()))?;
        user.insert("as".to_owned(), json!(PROGRAM_USER));
        user.insert("as-groups".to_owned(), json!(PROGRAM_GROUPS));
        let program = directory.join("portcullis.kubeconfig");
        fs::write(&program, config.to_string())?;
        let guard = Guard::new(&directory)?;
        Ok(Self {
            control_plane: None,
            api: Api::new(&admin)?,
            admin,
            program,
            directory,
            kubectl,
            guard: Some(guard),
        })
    }

    /// The control plane, if the tests have started it.
    pub fn control_plane(&self) -> Option<&ControlPlane> {
        self.control_plane.as_ref()
    }

    /// The control plane.
    ///
    /// # Panics
    /// When the tests have not started it. Use [`Cluster::control_plane`] where a running cluster is
    /// possible.
    pub fn own(&self) -> &ControlPlane {
        self.control_plane.as_ref().expect("a cluster of our own")
    }

    /// A client with the rights of an administrator.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The kubeconfig file of an administrator.
    pub fn admin(&self) -> &Path {
        &self.admin
    }

    /// The kubeconfig file of the service account of Portcullis.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The directory for logs and temporary files. It is removed at the end.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The first directory on the path of terminal sessions. It holds `kubectl`.
    pub fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// Adds `program` to the path of terminal sessions under `name`.
    ///
    /// # Errors
    /// When the cluster's directory cannot be written to.
    pub fn put_on_path(&self, name: &str, program: &Path) -> Result<()> {
        let link = self.bin().join(name);
        let _ = fs::remove_file(&link);
        symlink(fs::canonicalize(program)?, link).with_context(|| program.display().to_string())
    }

    /// The command of kubectl.
    pub fn kubectl_command(&self) -> &[OsString] {
        &self.kubectl
    }

    /// The guard that ends the processes with this one.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref().or_else(|| self.control_plane.as_ref().map(ControlPlane::guard))
    }

    /// Creates a namespace with a unique name that begins with `name`, and returns the name.
    ///
    /// # Errors
    /// When the API server refuses.
    pub fn namespace(&self, name: &str) -> Result<String> {
        let namespace = json!({"metadata": {"generateName": format!("{name}-")}});
        let created = self.api.create("/api/v1/namespaces", &namespace)?;
        Ok(created["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(guard) = &self.guard {
            guard.finish();
        }
    }
}

/// Whether cluster tests can run here. If not, prints in one line why they are left out.
///
/// # Panics
/// When they cannot run and `PORTCULLIS_REQUIRE_CLUSTER` is set.
pub fn available(version: Version) -> bool {
    static REPORTED_REASONS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(reason) = Binaries::unavailable(version) else { return true };
    assert!(!binaries::is_required(), "{reason}");
    // The test runner captures `eprintln!` of a test that passes, so this writes to stderr directly.
    if REPORTED_REASONS.lock().unwrap_or_else(PoisonError::into_inner).insert(reason.clone()) {
        let _ = writeln!(std::io::stderr(), "left out the tests on a real Kubernetes: {reason}");
    }
    false
}

/// The cluster that the tests of a binary share, each in its own namespace; `None` where no cluster can run.
/// It is the running cluster in `PORTCULLIS_TEST_KUBECONFIG`, or that of `KUBECONFIG` if it [`may_be_used`],
/// or else a new one with default options.
///
/// # Panics
/// When it does not start.
pub fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            if let Some(kubeconfig) = std::env::var_os("PORTCULLIS_TEST_KUBECONFIG") {
                return Some(Cluster::running(Path::new(&kubeconfig)).unwrap_or_else(|e| panic!("{e:#}")));
            }
            if let Some(kubeconfig) = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
                match may_be_used(Path::new(&kubeconfig)) {
                    Ok(()) => {
                        return Some(
                            Cluster::running(Path::new(&kubeconfig)).unwrap_or_else(|e| panic!("{e:#}")),
                        );
                    }
                    Err(reason) => eprintln!("the tests leave the cluster of KUBECONFIG alone: {reason:#}"),
                }
            }
            if !available(Version::default()) {
                return None;
            }
            let cluster = Cluster::start(&Options::default()).unwrap_or_else(|e| panic!("{e:#}"));
            if std::env::var_os("PORTCULLIS_KEEP").is_some() {
                cluster.own().keep_directory();
            }
            // A static is never dropped, and the guard cleans up. So a panic hook tells the guard to keep the
            // logs.
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if let Some(Some(cluster)) = SHARED.get()
                    && let Some(control_plane) = cluster.control_plane()
                {
                    control_plane.keep_directory();
                }
                previous(panic);
            }));
            Some(cluster)
        })
        .as_ref()
}

/// Label of the namespace `kube-system` with the value `true`: tests may change and delete anything in this
/// cluster.
pub const FOR_TESTS: &str = "portcullis.dev/for-tests";

const VIEW: [&str; 7] = ["config", "view", "--raw", "--flatten", "--minify", "-o", "json"];

/// Whether tests may use the cluster of `KUBECONFIG`: its API server is on this machine, and it has the label
/// [`FOR_TESTS`]. Tests install things and delete nodes, so the cluster itself must permit it. A cluster on
/// another machine gets no request.
///
/// # Errors
/// The reason why not, and how to permit it.
pub fn may_be_used(kubeconfig: &Path) -> Result<()> {
    let kubectl = Binaries::any_kubectl();
    let run = |arguments: &[&str]| -> Result<Value> {
        let output = crate::kubectl::run(&kubectl, kubeconfig, arguments, "")?;
        serde_json::from_str(&output.stdout).map_err(|_| anyhow!("{}", output.stderr.trim()))
    };
    let config = run(&VIEW)?;
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default().to_owned();
    let address: http::Uri = server.parse().with_context(|| format!("{server:?} is no address"))?;
    let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    if !here {
        bail!("its API server {server} is not on this machine");
    }
    let namespace = run(&["get", "namespace", "kube-system", "-o", "json", "--request-timeout=10s"])?;
    if namespace["metadata"]["labels"][FOR_TESTS] != "true" {
        bail!(
            "it does not say that it is there for tests, which delete what they find. If it is: \
             kubectl label namespace kube-system {FOR_TESTS}=true"
        );
    }
    Ok(())
}

/// Makes the directory `bin` with a kubectl for the path of a shell.
fn put_kubectl(directory: &Path, command: &[OsString]) -> Result<()> {
    let bin = directory.join("bin");
    fs::create_dir_all(&bin)?;
    // A kubectl that is already on the path needs no link.
    if let Some(program) = command.first().map(Path::new).filter(|program| program.is_absolute()) {
        symlink(program, bin.join("kubectl"))?;
    }
    Ok(())
}

/// Labels, taints or annotations as JSON.
pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
