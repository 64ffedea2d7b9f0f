//! A cluster to test on: one of our own, or one that runs already.

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

/// An API server with what belongs to it.
pub struct Cluster {
    control_plane: Option<ControlPlane>,
    admin: PathBuf,
    program: PathBuf,
    directory: PathBuf,
    kubectl: Vec<OsString>,
    api: Api,
    /// Where there is no control plane that has one.
    guard: Option<Guard>,
}

impl Cluster {
    /// A new one of our own; it ends when this is dropped, or with this process.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn start(options: &Options) -> Result<Self> {
        Self::of(ControlPlane::start(options)?)
    }

    /// Around a control plane.
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

    /// One that runs already, by the kubeconfig of an administrator who may impersonate. It has to reach 127.0.0.1 of this machine
    /// for the webhook, and there is no control over its processes.
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

    /// The processes behind it, where they are ours.
    pub fn control_plane(&self) -> Option<&ControlPlane> {
        self.control_plane.as_ref()
    }

    /// The processes behind it.
    ///
    /// # Panics
    /// When they are not ours; ask [`Cluster::control_plane`] first where a running cluster may be given.
    pub fn own(&self) -> &ControlPlane {
        self.control_plane.as_ref().expect("a cluster of our own")
    }

    /// An administrator's requests.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The kubeconfig file of an administrator.
    pub fn admin(&self) -> &Path {
        &self.admin
    }

    /// The kubeconfig file of the user that Portcullis is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// For log files and scratch; removed at the end.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory that comes first on the path of terminal sessions: `kubectl` is there.
    pub fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// Lets terminal sessions call `program` by `name`.
    ///
    /// # Errors
    /// When the cluster's directory cannot be written to.
    pub fn put_on_path(&self, name: &str, program: &Path) -> Result<()> {
        let link = self.bin().join(name);
        let _ = fs::remove_file(&link);
        symlink(fs::canonicalize(program)?, link).with_context(|| program.display().to_string())
    }

    /// How kubectl is called.
    pub fn kubectl_command(&self) -> &[OsString] {
        &self.kubectl
    }

    /// What ends processes with us.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref().or_else(|| self.control_plane.as_ref().map(ControlPlane::guard))
    }

    /// Creates a namespace with a name of its own that begins with `name`, and gives that name.
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

/// Whether cluster tests can run here; says in one line that they are left out when not.
///
/// # Panics
/// When they cannot run and `PORTCULLIS_REQUIRE_CLUSTER` is set.
pub fn available(version: Version) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(reason) = Binaries::unavailable(version) else { return true };
    assert!(!binaries::is_required(), "{reason}");
    // Not by eprintln, which the test runner keeps to itself when a test passes.
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(reason.clone()) {
        let _ = writeln!(std::io::stderr(), "left out the tests on a real Kubernetes: {reason}");
    }
    false
}

/// The one cluster that the tests of a binary share, each in a namespace of its own; `None` where there can be none.
/// It is the running one that `PORTCULLIS_TEST_KUBECONFIG` names, or that of `KUBECONFIG` if it [`may_be_used`], or else one of our
/// own with default options.
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
            // A static is never dropped; the guard cleans up. So it is told of a failure when it happens.
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

/// Label of the namespace `kube-system` of a cluster that tests may do anything to, with the value `true`.
pub const FOR_TESTS: &str = "portcullis.dev/for-tests";

const VIEW: [&str; 7] = ["config", "view", "--raw", "--flatten", "--minify", "-o", "json"];

/// Whether tests may use the cluster of a kubeconfig that happens to be set: its API server is on this machine, and it is marked
/// by [`FOR_TESTS`]. Tests install things and delete nodes, so the cluster has to say so itself; one elsewhere is not even asked.
///
/// # Errors
/// Why not, and how to change that.
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

/// A directory `bin` with a kubectl in it, for the path of a shell.
fn put_kubectl(directory: &Path, command: &[OsString]) -> Result<()> {
    let bin = directory.join("bin");
    fs::create_dir_all(&bin)?;
    // Our own binary is what it is called; one that is found on the path is found there by everybody.
    if let Some(program) = command.first().map(Path::new).filter(|program| program.is_absolute()) {
        symlink(program, bin.join("kubectl"))?;
    }
    Ok(())
}

/// Labels, taints or annotations as JSON.
pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
