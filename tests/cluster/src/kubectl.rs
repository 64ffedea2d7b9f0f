//! Runs kubectl commands as a user types them.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};

use crate::cluster::Cluster;

/// The output and the exit code of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The exit code; 0 is success.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error, with refusals and warnings.
    pub stderr: String,
}

impl Output {
    /// Standard output of a command that succeeded.
    ///
    /// # Panics
    /// When the command failed.
    #[track_caller]
    pub fn expect_success(self) -> String {
        assert!(self.code == 0, "kubectl ended with {}\n{}{}", self.code, self.stdout, self.stderr);
        self.stdout
    }

    /// Standard error of a command that failed.
    ///
    /// # Panics
    /// When the command succeeded.
    #[track_caller]
    pub fn expect_failure(self) -> String {
        assert!(self.code != 0, "kubectl was to be refused\n{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// Runs kubectl with a kubeconfig and text on its standard input.
///
/// # Errors
/// When kubectl cannot be run. A refusal is an output.
pub fn run(command: &[OsString], kubeconfig: &Path, arguments: &[&str], input: &str) -> Result<Output> {
    let (program, first) = command.split_first().ok_or_else(|| anyhow!("no kubectl"))?;
    let mut child = Command::new(program)
        .args(first)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        // Neither proxies nor the kubectl settings of the user may change the output.
        .env_remove("HTTPS_PROXY")
        .env_remove("https_proxy")
        .env("KUBERC", "off")
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let mut stdin = child.stdin.take();
    let input = input.to_owned();
    // A thread writes the input, because a long manifest does not fit into the pipe.
    let writer = std::thread::spawn(move || stdin.as_mut().map(|stdin| stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output()?;
    let _ = writer.join();
    Ok(Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

impl Cluster {
    /// Runs kubectl as an administrator.
    ///
    /// # Panics
    /// When it cannot be run. A refusal is an output.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_with(arguments, "")
    }

    /// Runs kubectl as an administrator with text on its standard input.
    ///
    /// # Panics
    /// When kubectl cannot be run.
    #[track_caller]
    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> Output {
        run(self.kubectl_command(), self.admin(), arguments, input).unwrap_or_else(|e| panic!("{e:#}"))
    }

    /// `kubectl apply -n NAMESPACE -f -` of a manifest.
    ///
    /// # Panics
    /// When kubectl cannot be run.
    #[track_caller]
    pub fn apply(&self, namespace: &str, manifest: &str) -> Output {
        self.kubectl_with(&["apply", "-n", namespace, "-f", "-"], manifest)
    }
}
