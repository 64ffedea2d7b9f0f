//! The webhook inside this process, called from synchronous and from asynchronous code.

use std::sync::Arc;

use portcullis::webhook::{LocalWebhook, ReviewClient};
use portcullis_core::admission::Hook;

use super::harness::{ANSWER, Gate, reviewer};

fn webhook() -> LocalWebhook {
    LocalWebhook::start_with_handler(reviewer(&Arc::new(Gate::default()))).unwrap()
}

#[test]
fn synchronous_code_reviews_over_one_connection() {
    let webhook = webhook();
    let mut review = |hook: Hook, body: &[u8]| webhook.review_blocking(hook, body);
    synchronous_user(&mut review);
}

/// Calls the webhook as the simulation does: through a plain function.
fn synchronous_user(ask: &mut impl FnMut(Hook, &[u8]) -> Result<Vec<u8>, String>) {
    for _ in 0..50 {
        assert_eq!(ask(Hook::Mutate, b"{}"), Ok(ANSWER.into()));
        assert_eq!(ask(Hook::Validate, b"{}"), Ok(ANSWER.into()));
    }
    let error = ask(Hook::Mutate, b"bad").unwrap_err();
    assert!(error.contains("400") && error.contains("asked to"), "{error}");
    assert_eq!(ask(Hook::Mutate, b"{}"), Ok(ANSWER.into()), "the connection goes on");
}

#[tokio::test]
async fn asynchronous_code_reviews_and_may_drop_it() {
    let webhook = webhook();
    assert_eq!(webhook.review(Hook::Mutate, b"{}").await.unwrap(), ANSWER.as_bytes());
    assert_eq!(webhook.review_blocking(Hook::Mutate, b"{}").unwrap(), ANSWER.as_bytes());

    let (address, ca) = (webhook.address(), webhook.ca_pem().to_owned());
    let client = ReviewClient::new(address, &ca).unwrap();
    assert_eq!(client.review(Hook::Validate, "{}").await.unwrap(), ANSWER.as_bytes());
    drop(webhook);
    assert!(ReviewClient::new(address, &ca).unwrap().review(Hook::Mutate, "{}").await.is_err(), "it is gone");
}

#[test]
fn a_client_without_a_certificate_is_an_error() {
    let error = ReviewClient::new(([127, 0, 0, 1], 1).into(), "nothing").err().unwrap();
    assert!(error.to_string().contains("CA certificate"), "{error}");
}
