//! The act about policy files: a policy, a pod that violates it and a pod that satisfies it, each reviewed
//! over HTTPS.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use portcullis_core::admission::Hook;
use portcullis_policy::{ClusterData, PolicySet, SourceFile, load, review};
use serde_json::{Value, json};

use super::super::step_output;
use super::super::styles::{self, styled};
use crate::webhook::{LocalWebhook, PolicyEndpoints, Route};

/// The policy file: name and text.
const POLICY_FILE: (&str, &str) =
    ("policies/no-latest-images.yaml", include_str!("../../../policies/no-latest-images.yaml"));
/// The demo shows the lines of the policy that contain one of these texts.
const SHOWN_LINES: [&str; 4] =
    ["name: no-latest-images", "containers.filter", "expression: variables.moving", "moves, and members"];

/// Returns the policy endpoints of the webhook, with this policy.
pub(super) fn endpoints() -> Result<PolicyEndpoints> {
    let loaded =
        load(&[SourceFile { name: POLICY_FILE.0.to_owned(), bytes: POLICY_FILE.1.as_bytes().to_owned() }]);
    let problems: Vec<String> = loaded.problems.iter().map(portcullis_policy::Problem::one_line).collect();
    let set: Arc<PolicySet> = Arc::new(loaded.set.ok_or_else(|| anyhow!("{}", problems.join("; ")))?);
    let hash = set.hash().to_owned();
    Ok(PolicyEndpoints {
        review: Arc::new(move |hook, body, effort| {
            Ok(review(&set, &ClusterData::default(), hook, body, effort)?.map(|reviewed| reviewed.answer))
        }),
        status_json: Arc::new(move || hash.clone()),
    })
}

/// Plays and prints the act. Returns the number of expectations that held, or the first failure.
pub(super) fn play_act(
    out: &mut impl Write,
    number: usize,
    webhook: &LocalWebhook,
) -> Result<Result<usize, String>> {
    writeln!(out, "\n{}", styled(styles::HEAD, format!("Act {number}  Your own policies, as files")))?;
    let text = "A gang may lose a member and replace it weeks later. With a moving image tag, the new member would run \
                other code than the rest. The platform team forbids that in a file, in the format of Kubernetes admission \
                policies. Portcullis loads it without a restart. Its expressions can also use what the API server does not \
                know: gangs, cards, quotas.";
    for line in step_output::wrapped(text, "  ") {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\n  {}", styled(styles::FAINT, POLICY_FILE.0))?;
    let mut shown = Vec::new();
    for line in POLICY_FILE
        .1
        .lines()
        .filter(|line| !line.starts_with('#') && SHOWN_LINES.iter().any(|word| line.contains(word)))
    {
        if !shown.contains(&line.trim()) {
            writeln!(out, "    {}", line.trim())?;
            shown.push(line.trim());
        }
    }
    writeln!(out)?;
    let mut held = 0;
    for (image, allowed) in
        [("registry.example/trainer:latest", false), ("registry.example/trainer:v1.4", true)]
    {
        let response = send_review(webhook, image)?;
        writeln!(
            out,
            "  {}",
            styled(styles::COMMAND, format!("$ kubectl apply -f train.yaml   # image: {image}"))
        )?;
        if response["allowed"] == true {
            writeln!(out, "  pod/train-0 created")?;
        } else {
            writeln!(out, "  The Pod \"train-0\" is invalid:")?;
            for cause in response["status"]["details"]["causes"].as_array().into_iter().flatten() {
                let text = |key: &str| cause[key].as_str().unwrap_or_default();
                for line in step_output::wrapped(&format!("* {}: {}", text("field"), text("message")), "  ") {
                    writeln!(out, "{line}")?;
                }
            }
        }
        if response["allowed"] != allowed {
            return Ok(Err(format!(
                "{}: a pod with image {image} was {}",
                POLICY_FILE.0,
                if allowed { "denied" } else { "allowed" }
            )));
        }
        held += 1;
    }
    writeln!(out, "  {}", styled(styles::GOOD, format!("{held} of 2 expectations hold")))?;
    Ok(Ok(held))
}

/// Sends a review of a pod with this image and returns the response.
fn send_review(webhook: &LocalWebhook, image: &str) -> Result<Value> {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource, "requestKind": kind,
            "requestResource": resource, "name": "train-0", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "developer"}, "oldObject": null, "dryRun": false,
            "object": {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-0", "namespace": "default"},
                "spec": {"containers": [{
                    "name": "trainer", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}
                }]}
            }
        }
    });
    let body = webhook
        .send_blocking(Route::Policies(Hook::Validate), review.to_string().as_bytes())
        .map_err(|problem| anyhow!("{problem}"))?;
    let answer: Value = serde_json::from_slice(&body)?;
    Ok(answer["response"].clone())
}
