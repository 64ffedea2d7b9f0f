//! Suppression of repeated log lines.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moka::sync::Cache;

/// Minimum time between two log lines with the same key.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of remembered keys. Evicting one causes an extra log line, never a missing one.
const MAX_REMEMBERED_KEYS: u64 = 1024;

/// A key that is not repeated within this time is forgotten.
const REMEMBERED_KEY_TTL: Duration = Duration::from_secs(600);

/// The recent log lines of one sort, by a key that tells which lines say the same. A controller retries a
/// denied request for ever, so the same line is due again and again.
pub struct RepeatedLines<K>(Cache<K, Arc<Mutex<LineHistory>>>);

/// When a line was last logged, and how many repetitions were suppressed since then.
#[derive(Debug)]
struct LineHistory {
    last_logged: Instant,
    suppressed: u64,
}

impl<K: Eq + Hash + Send + Sync + 'static> Default for RepeatedLines<K> {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(MAX_REMEMBERED_KEYS).time_to_idle(REMEMBERED_KEY_TTL).build())
    }
}

impl<K: Eq + Hash + Send + Sync + 'static> RepeatedLines<K> {
    /// Records that a line is due. Returns the number of repetitions suppressed since the last line, or
    /// `None` to suppress this one too: one line per minute and key is logged.
    pub fn record(&self, key: K, now: Instant) -> Option<u64> {
        let mut is_first = false;
        let history = self.0.get_with(key, || {
            is_first = true;
            Arc::new(Mutex::new(LineHistory { last_logged: now, suppressed: 0 }))
        });
        if is_first {
            return Some(0);
        }
        let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(history.last_logged) < REPEAT_INTERVAL {
            history.suppressed += 1;
            return None;
        }
        history.last_logged = now;
        Some(std::mem::take(&mut history.suppressed))
    }
}

/// The problem of a task that retries: it is logged when it appears or changes, not at every attempt.
#[derive(Debug, Default)]
pub struct LastProblem(Option<String>);

impl LastProblem {
    /// Whether the problem differs from that of the last attempt; remembers it.
    pub fn is_new(&mut self, problem: &str) -> bool {
        let is_new = self.0.as_deref() != Some(problem);
        if is_new {
            self.0 = Some(problem.to_owned());
        }
        is_new
    }

    /// Records a successful attempt: the next problem is new.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_is_logged_once_a_minute_with_a_count() {
        let (lines, start) = (RepeatedLines::default(), Instant::now());
        let at = |seconds| lines.record("both", start + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(0));
        assert_eq!(at(1), None);
        assert_eq!(at(59), None);
        assert_eq!(at(60), Some(2));
        assert_eq!(at(61), None);
        assert_eq!(at(300), Some(1));
        assert_eq!(lines.record("range", start), Some(0));
    }

    #[test]
    fn a_problem_is_new_when_it_appears_changes_or_comes_back() {
        let mut problem = LastProblem::default();
        let answers = [problem.is_new("a"), problem.is_new("a"), problem.is_new("b"), problem.is_new("a")];
        assert_eq!(answers, [true, false, true, true]);
        problem.clear();
        assert!(problem.is_new("a"));
    }
}
