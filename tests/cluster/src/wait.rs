//! Waits until the cluster reaches a state, with a timeout and a report of the state when it does not.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::Cluster;

/// Upper bound of every wait. No test asserts a speed: a busy machine makes the tests slower, and only an
/// event that never comes reaches this timeout.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(300);

impl Cluster {
    /// Reads `path` until `is_so` holds for the object (`Null` where there is none), and returns the object.
    ///
    /// # Panics
    /// After [`WAIT_TIMEOUT`], with the object and the last events of its namespace.
    #[track_caller]
    pub fn wait(&self, path: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(WAIT_TIMEOUT, path, what, is_so)
    }

    /// As [`Cluster::wait`], with a timeout of the caller.
    ///
    /// # Panics
    /// After `timeout`.
    #[track_caller]
    pub fn wait_for(
        &self,
        timeout: Duration,
        path: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + timeout;
        let mut pause = Duration::from_millis(10);
        loop {
            // An API server that restarts answers nothing for a while.
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
                    "after {timeout:?} still not: {what}\n{path} is\n{seen}\n{}",
                    self.recent_events(path)
                );
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Waits until a condition holds that is not about a single object.
    ///
    /// # Panics
    /// After [`WAIT_TIMEOUT`].
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !is_so() {
            assert!(
                Instant::now() < deadline,
                "after {WAIT_TIMEOUT:?} still not: {what}\n{}",
                self.recent_events("")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The last events of the namespace in a path, or of all namespaces.
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
