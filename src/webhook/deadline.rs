//! When a request must be answered: the API server says it in the URL.

use std::time::Duration;

/// The longest `timeoutSeconds` that Kubernetes lets a webhook have.
const LONGEST: Duration = Duration::from_secs(30);

/// How long a request may take: `?timeout=` of its URL minus a margin for the way back, or `default` minus the same
/// when there is none, or none that makes sense.
pub(super) fn time_allowed(query: Option<&str>, default: Duration) -> Duration {
    let asked = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(portcullis_text::duration::parse)
        .filter(|asked| !asked.is_zero())
        .unwrap_or(default)
        .min(LONGEST);
    asked - margin(asked)
}

/// A tenth, half a second at most.
fn margin(asked: Duration) -> Duration {
    (asked / 10).min(Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_given_its_timeout_less_a_margin() {
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
