//! Finds the programs of a control plane, or builds them from the Go modules beside this crate.
//!
//! The order is: the directory in `KUBEBUILDER_ASSETS`; an earlier build from the same sources; a new build.
//! One process builds, and others wait for it. Only `go` downloads anything, and only Go modules.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The versions of Kubernetes that can be built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.36.3.
    #[default]
    V1_36,
    /// 1.35.4.
    V1_35,
}

impl Version {
    /// `1.36.3`.
    pub fn number(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36.3",
            Self::V1_35 => "1.35.4",
        }
    }

    fn minor(self) -> &'static str {
        match self {
            Self::V1_36 => "36",
            Self::V1_35 => "35",
        }
    }

    /// The file with its modules, beside this crate.
    fn modules(self) -> &'static str {
        match self {
            Self::V1_36 => "go.mod",
            Self::V1_35 => "go-1.35.4.mod",
        }
    }
}

/// The command of each part: a program and its first arguments.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// etcd.
    pub etcd: Vec<OsString>,
    /// The API server.
    pub api_server: Vec<OsString>,
    /// The stock scheduler.
    pub scheduler: Vec<OsString>,
    /// The stock controllers.
    pub controller_manager: Vec<OsString>,
    /// kubectl.
    pub kubectl: Vec<OsString>,
    /// kwok, which simulates the kubelets.
    pub kwok: Vec<OsString>,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_directory.ancestors().nth(2).unwrap_or(crate_directory).to_path_buf()
}

/// The directory of everything that test clusters write.
pub fn scratch() -> PathBuf {
    root().join("target/cluster")
}

impl Binaries {
    /// Finds the programs of `version` or builds them. The first build takes some minutes.
    ///
    /// # Errors
    /// Names what is missing and how to provide it.
    pub fn of(version: Version) -> Result<Self> {
        if let Some(assets) = assets(version) {
            return Self::in_directory(&assets);
        }
        let directory = scratch().join(version.number());
        built(version, &directory)?;
        Ok(Self::of_one(&directory))
    }

    /// A kubectl that needs no build: the one of the test cluster, or else the one on the path.
    pub fn any_kubectl() -> Vec<OsString> {
        let version = Version::default();
        let directory = scratch().join(version.number());
        match assets(version) {
            Some(assets) if assets.join("kubectl").is_file() => {
                vec![assets.join("kubectl").into_os_string()]
            }
            _ if current(version, &directory) => Self::of_one(&directory).kubectl,
            _ => vec!["kubectl".into()],
        }
    }

    /// The programs of a build in `directory`.
    fn of_one(directory: &Path) -> Self {
        let part = |name: &str| vec![directory.join("control-plane").into_os_string(), name.into()];
        Self {
            etcd: part("etcd"),
            api_server: part("kube-apiserver"),
            scheduler: part("kube-scheduler"),
            controller_manager: part("kube-controller-manager"),
            kubectl: part("kubectl"),
            kwok: vec![directory.join("kwok").into_os_string()],
        }
    }

    /// The programs in a directory that the user has named.
    ///
    /// # Errors
    /// Names every missing program.
    pub fn in_directory(directory: &Path) -> Result<Self> {
        let names =
            ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "kwok"];
        let missing: Vec<&str> = names.into_iter().filter(|name| !directory.join(name).is_file()).collect();
        if !missing.is_empty() {
            bail!(
                "KUBEBUILDER_ASSETS is {}, which has no {}. Put them there, or unset it to build them with Go.",
                directory.display(),
                missing.join(", no ")
            );
        }
        // The parts run in another directory, so the paths must be absolute.
        let directory = fs::canonicalize(directory)?;
        let part = |name: &str| vec![directory.join(name).into_os_string()];
        Ok(Self {
            etcd: part("etcd"),
            api_server: part("kube-apiserver"),
            scheduler: part("kube-scheduler"),
            controller_manager: part("kube-controller-manager"),
            kubectl: part("kubectl"),
            kwok: part("kwok"),
        })
    }

    /// The reason why a test cluster cannot run here, in one line; `None` when it can.
    pub fn unavailable(version: Version) -> Option<String> {
        if assets(version).is_some() || current(version, &scratch().join(version.number())) {
            return None;
        }
        let number = version.number();
        if go().is_none() {
            return Some(format!(
                "a control plane of Kubernetes {number} needs Go 1.26, or its programs in KUBEBUILDER_ASSETS"
            ));
        }
        // Its build takes minutes, so that only CI builds it.
        if version != Version::default() && !is_required() {
            return Some(format!(
                "the control plane of Kubernetes {number} is built only with {REQUIRE_CLUSTER}=1, as .ci/run does"
            ));
        }
        None
    }
}

/// With this environment variable the cluster tests fail instead of being left out, and old versions are
/// built too.
pub const REQUIRE_CLUSTER: &str = "PORTCULLIS_REQUIRE_CLUSTER";

/// Whether the cluster tests must run.
pub fn is_required() -> bool {
    std::env::var_os(REQUIRE_CLUSTER).is_some()
}

/// The directory in `KUBEBUILDER_ASSETS`. It counts for the default version, and for another version only if
/// its API server reports that version.
fn assets(version: Version) -> Option<PathBuf> {
    let directory =
        std::env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()).map(PathBuf::from)?;
    let says = || {
        let output = Command::new(directory.join("kube-apiserver")).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).contains(&format!(" v1.{}.", version.minor())))
    };
    (version == Version::default() || says() == Some(true)).then_some(directory)
}

fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Whether `go` runs here.
fn go() -> Option<()> {
    let found = Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success()).then_some(())
}

/// The inputs of a build besides Go itself, in one text.
fn inputs(version: Version) -> Result<String> {
    let mut text = format!("{}\n", version.number());
    let mut names = vec!["main.go".to_owned()];
    for modules in BTreeSet::from([version.modules(), Version::default().modules()]) {
        names.extend([modules.to_owned(), modules.replace(".mod", ".sum")]);
    }
    for name in names {
        let path = sources().join(name);
        text.push_str(&fs::read_to_string(&path).with_context(|| path.display().to_string())?);
    }
    Ok(text)
}

fn current(version: Version, directory: &Path) -> bool {
    let stamp = fs::read_to_string(directory.join("built-from")).unwrap_or_default();
    ["control-plane", "kwok"].iter().all(|name| directory.join(name).is_file())
        && inputs(version).is_ok_and(|inputs| inputs == stamp)
}

/// Builds the programs of `version` into `directory`.
fn built(version: Version, directory: &Path) -> Result<()> {
    if current(version, directory) {
        return Ok(());
    }
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let lock = File::create(directory.join("lock"))?;
    lock.lock().context("cannot wait for another build of the control plane")?;
    if current(version, directory) {
        return Ok(());
    }
    if go().is_none() {
        bail!(
            "the control plane of the test cluster has to be built, and there is no Go. Install Go 1.26, or name a directory with etcd, \
             kube-apiserver, kube-scheduler, kube-controller-manager, kubectl and kwok in KUBEBUILDER_ASSETS."
        );
    }
    eprintln!(
        "building the control plane of Kubernetes {} from Go modules: some 5 minutes the first time, seconds later",
        version.number()
    );
    go_build(version, directory, "control-plane", ".")?;
    // kwok does not build against every version of Kubernetes, but works with each.
    go_build(Version::default(), directory, "kwok", "sigs.k8s.io/kwok/cmd/kwok")?;
    fs::write(directory.join("built-from"), inputs(version)?)?;
    Ok(())
}

fn go_build(version: Version, directory: &Path, name: &str, package: &str) -> Result<()> {
    let (number, minor) = (version.number(), version.minor());
    let stamp = "k8s.io/component-base/version";
    let link =
        format!("-s -w -X {stamp}.gitVersion=v{number} -X {stamp}.gitMajor=1 -X {stamp}.gitMinor={minor}");
    let unfinished = directory.join(format!("{name}.unfinished"));
    let status = Command::new("go")
        .args(["build", "-trimpath", "-modfile", version.modules(), "-ldflags", &link, "-o"])
        .arg(&unfinished)
        .arg(package)
        .env("CGO_ENABLED", "0")
        .current_dir(sources())
        .stdin(Stdio::null())
        .status()
        .context("cannot run go")?;
    if !status.success() {
        bail!("go build of {name} for Kubernetes {number} failed, see above");
    }
    fs::rename(&unfinished, directory.join(name))?;
    Ok(())
}
