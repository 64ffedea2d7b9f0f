//! Waiting for what the cluster does by itself, with a deadline and something to read when it does not.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::Cluster;

/// How long anything may take on a busy machine. No test asserts how fast something is; this only ends what never comes.
pub const PATIENCE: Duration = Duration::from_secs(60);

impl Cluster {
    /// Asks for `path` until `is_so` holds of what is there (`Null` where nothing is) and gives it.
    ///
    /// # Panics
    /// At the deadline, with the object and the last events of its namespace.
    #[track_caller]
    pub fn wait(&self, path: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(PATIENCE, path, what, is_so)
    }

    /// As [`Cluster::wait`], with a patience of the caller's.
    ///
    /// # Panics
    /// At the deadline.
    #[track_caller]
    pub fn wait_for(
        &self,
        patience: Duration,
        path: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_millis(10);
        loop {
            // An API server that is being restarted answers nothing for a while.
            let seen = self.api().find(path);
            if let Ok(found) = &seen {
                let object = found.clone().unwrap_or(Value::Null);
                if is_so(&object) {
                    return object;
                }
            }
            if Instant::now() >= deadline {
                let seen = match seen {
                    Ok(found) => format!("{:#}", found.unwrap_or(Value::Null)),
                    Err(error) => format!("{error:#}"),
                };
                panic!(
                    "after {patience:?} still not: {what}\n{path} is\n{seen}\n{}",
                    self.recent_events(path)
                );
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Waits until something that is no single object is so.
    ///
    /// # Panics
    /// At the deadline.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(
                Instant::now() < deadline,
                "after {PATIENCE:?} still not: {what}\n{}",
                self.recent_events("")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The last events of the namespace that a path names, or of all.
    pub fn recent_events(&self, path: &str) -> String {
        let namespace =
            path.split_once("/namespaces/").map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
        let mut arguments = vec!["events"];
        match namespace {
            Some(namespace) => arguments.extend(["-n", namespace]),
            None => arguments.push("-A"),
        }
        let output = self.kubectl(&arguments);
        let lines: Vec<&str> = output.stdout.lines().collect();
        let last = &lines[lines.len().saturating_sub(30)..];
        format!("the last events:\n{}\n{}", last.join("\n"), output.stderr)
    }
}

/// Whether an object has the condition `kind` with status `True`.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    object["status"]["conditions"].as_array().is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
    })
}
