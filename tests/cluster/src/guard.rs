//! Ends child processes with this process, however it ends.
//!
//! A [`Guard`] is a small shell that receives the process group of every started process through a pipe. Only
//! this process holds the other end of the pipe. When this process ends, the shell reads the end of the file,
//! kills the remaining groups and removes the directory. A paused process dies as well; it could not watch a
//! pipe itself.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process_group};

/// Reads `add PID`, `gone PID`, `keep` (the directory) and `release` (everything) until the writer ends.
const SHELL: &str = r#"
trap '' INT HUP TERM QUIT
directory=$1
alive=' '
while read -r word group; do
  case $word in
    add) alive="$alive$group " ;;
    gone) case $alive in *" $group "*) alive="${alive%%" $group "*} ${alive#*" $group "}" ;; esac ;;
    keep) directory= ;;
    release) directory= alive=' ' ;;
  esac
done
for group in $alive; do kill -KILL "-$group" 2>/dev/null; done
test -z "$directory" || rm -rf "$directory" || { sleep 1; rm -rf "$directory"; }
"#;

/// Waits for a line before it executes the program, so that the guard knows the process first.
const STARTER: &str = r#"read -r go && exec "$@" </dev/null"#;

/// The shell that cleans up after this process.
#[derive(Debug)]
pub struct Guard {
    /// The lock makes it shareable. `None` after [`Guard::finish`].
    input: Mutex<Option<ChildStdin>>,
    child: Mutex<Child>,
}

impl Guard {
    /// Starts a guard that removes `directory` when this process ends.
    ///
    /// # Errors
    /// When there is no `sh`.
    pub fn new(directory: &Path) -> Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", SHELL, "guard"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh, which ends the processes of the test cluster")?;
        Ok(Self { input: Mutex::new(child.stdin.take()), child: Mutex::new(child) })
    }

    fn write_line(&self, line: &str) -> Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let input = input.as_mut().ok_or_else(|| anyhow!("the cluster has been stopped"))?;
        writeln!(input, "{line}").context("the guard of the test cluster is gone")
    }

    /// Keeps the directory.
    pub fn keep_directory(&self) {
        let _ = self.write_line("keep");
    }

    /// Keeps the directory and all processes after the end of this process.
    pub fn release(&self) {
        let _ = self.write_line("release");
    }

    /// Kills the processes and removes the directory now, and waits for that.
    pub fn finish(&self) {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// The command line and environment of a process that can be started repeatedly.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The name in messages, and of the log file without `.log`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Added to the environment.
    pub environment: Vec<(String, String)>,
    /// The working directory, which also holds the log file.
    pub directory: PathBuf,
}

impl Recipe {
    /// The log file. All runs of the process append to it.
    pub fn log(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.name))
    }

    /// Starts the process under a guard. Without a guard the process outlives this one, and the caller must
    /// end it.
    ///
    /// # Errors
    /// When the program or the log file cannot be opened.
    pub fn start(&self, guard: Option<&Guard>) -> Result<Process> {
        let log = self.open_log()?;
        let mut command = Command::new("sh");
        command.args(["-c", STARTER, "start"]).args(&self.command);
        command.current_dir(&self.directory).envs(self.environment.iter().map(|(k, v)| (k, v)));
        // With these variables the API server would call a webhook on this machine through a proxy.
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        if let Some(guard) = guard {
            guard.write_line(&format!("add {}", child.id()))?;
        }
        let input = child.stdin.take();
        if let Some(mut input) = input {
            writeln!(input, "go").with_context(|| format!("{} did not start", self.name))?;
        }
        Ok(Process { name: self.name.clone(), log: self.log(), child })
    }

    fn open_log(&self) -> Result<File> {
        let path = self.log();
        OpenOptions::new().create(true).append(true).open(&path).with_context(|| path.display().to_string())
    }
}

/// A running process. It leads its own process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Sends a signal to the process and its children.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let group = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| anyhow!("{}: {} is no process id", self.name, self.child.id()))?;
        kill_process_group(group, signal).with_context(|| format!("{} is gone", self.name))
    }

    /// The exit status; `None` while it runs.
    ///
    /// # Errors
    /// When the system does not report a status.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it still runs at the deadline.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!(
                    "{} still runs after {deadline:?}; its log ends with\n{}",
                    self.name,
                    tail(&self.log, 30)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process and waits for its end.
    pub fn kill(&mut self, guard: Option<&Guard>) {
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait();
        self.forget(guard);
    }

    /// Reports the end of the process to the guard.
    pub fn forget(&self, guard: Option<&Guard>) {
        if let Some(guard) = guard {
            let _ = guard.write_line(&format!("gone {}", self.child.id()));
        }
    }
}

/// The last lines of a file, for messages.
pub fn tail(path: &Path, lines: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
