//! The deadline of a request. The API server sends its timeout in the URL.

use std::time::Duration;

/// The maximum `timeoutSeconds` of a webhook in Kubernetes.
const MAX_WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns how long a request may take: `?timeout=` of its URL, or `default` if that is absent or invalid,
/// minus a margin for sending the answer.
pub(super) fn time_allowed(query: Option<&str>, default: Duration) -> Duration {
    let timeout = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(portcullis_text::duration::parse)
        .filter(|timeout| !timeout.is_zero())
        .unwrap_or(default)
        .min(MAX_WEBHOOK_TIMEOUT);
    timeout - margin(timeout)
}

/// A tenth of the timeout, at most 500 ms.
fn margin(timeout: Duration) -> Duration {
    (timeout / 10).min(Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_allowed_is_the_timeout_minus_a_margin() {
        let check = |query: Option<&str>, expected_ms: u64| {
            let allowed = time_allowed(query, Duration::from_secs(10));
            assert_eq!(allowed, Duration::from_millis(expected_ms), "{query:?}");
        };
        check(Some("timeout=5s"), 4_500);
        check(Some("timeout=30s"), 29_500);
        check(Some("timeout=1s"), 900);
        check(Some("dryRun=All&timeout=500ms"), 450);
        check(None, 9_500);
        check(Some("timeout=soon"), 9_500);
        check(Some("timeout=0s"), 9_500);
        check(Some("timeout=-1s"), 9_500);
        check(Some("timeout=24h"), 29_500);
        check(Some("nottimeout=1s"), 9_500);
    }
}
