//! Checks of the installed objects: definition, hooks, certificates, gate guard, permissions, replicas,
//! leader, and a trial pod through all of them.

use std::time::{Duration, SystemTime};

use portcullis_core::model::Time;
use portcullis_core::objects::names;
use serde_json::Value;

use super::checks::{APPLY, DoctorCheck, named};
use super::cluster_state::{ClusterState, Lookup};
use super::policies;
use crate::certs::{CertificateNames, Registration, TlsSecret};
use crate::installation::read_tls_secret;

/// ValidatingAdmissionPolicy and matchConditions are stable since 1.30.
const OLDEST_MINOR: u32 = 30;

pub(super) fn checks(state: &ClusterState, now: SystemTime) -> Vec<DoctorCheck> {
    let parts = [&state.crd, &state.mutating, &state.validating, &state.deployment];
    if parts.iter().all(|part| **part == Lookup::Missing) {
        let message = "Portcullis is not installed: pods of gangs get no gate and are not validated";
        return vec![version(state), DoctorCheck::fail("installation", message, [APPLY])];
    }
    let mut checks = vec![version(state), definition(state)];
    checks.extend(configurations(state).map(|one| one.check(state.fallback.object().is_some())));
    checks.extend(policies::checks(state));
    checks.extend(certificates(state, now));
    checks.extend([guard(state), trial(state), permissions(state), replicas(state), leader(state, now)]);
    checks
}

fn logs(state: &ClusterState) -> String {
    format!("kubectl logs -n {} deployment/portcullis --all-pods --tail=50", state.namespace)
}

fn version(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "API server";
    let minor = state.version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let message = format!("{} at {}", state.version, state.server);
    match minor {
        Some(minor) if minor < OLDEST_MINOR => DoctorCheck::fail(
            NAME,
            format!("{message} is older than 1.{OLDEST_MINOR}: it has no stable ValidatingAdmissionPolicy"),
            ["# upgrade the control plane"],
        ),
        _ => DoctorCheck::ok(NAME, message),
    }
}

fn definition(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "gang definition";
    let crd = match &state.crd {
        Lookup::Object(crd) => crd,
        Lookup::Missing => {
            return DoctorCheck::fail(
                NAME,
                "CustomResourceDefinition gangs.portcullis.dev does not exist: no plan can be stored",
                [APPLY],
            );
        }
        Lookup::Unknown(problem) => return DoctorCheck::unknown(NAME, problem),
    };
    let served = list(&crd["spec"]["versions"]).any(|v| v["name"] == "v1alpha1" && v["served"] == true);
    let status = list(&crd["spec"]["versions"]).any(|v| v["subresources"]["status"].is_object());
    let established =
        list(&crd["status"]["conditions"]).any(|c| c["type"] == "Established" && c["status"] == "True");
    if served && status && established {
        DoctorCheck::ok(NAME, "gangs.portcullis.dev/v1alpha1 is served")
    } else {
        let message = "gangs.portcullis.dev does not serve v1alpha1 with a status: it belongs to another version of Portcullis";
        DoctorCheck::fail(NAME, message, [APPLY])
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A webhook configuration and the hooks that it must contain.
struct ExpectedConfiguration<'a> {
    /// Name of the check.
    name: &'static str,
    /// Consequence if the configuration does not exist.
    missing: &'static str,
    found: &'a Lookup,
    /// Required hooks with failurePolicy Fail.
    closed: &'static [&'static str],
    /// Required hooks with failurePolicy Ignore.
    open: &'static [&'static str],
}

fn configurations(state: &ClusterState) -> [ExpectedConfiguration<'_>; 2] {
    [
        ExpectedConfiguration {
            name: "mutating webhook",
            missing: "new gang members get no gate, so the validating webhook denies them",
            found: &state.mutating,
            closed: &[
                "members.portcullis.dev",
                "members-coscheduling.portcullis.dev",
                "members-coscheduling-old.portcullis.dev",
                "members-lws.portcullis.dev",
                "members-plain.portcullis.dev",
                "pods.portcullis.dev",
                "owners.portcullis.dev",
            ],
            open: &[],
        },
        ExpectedConfiguration {
            name: "validating webhook",
            missing: "changes of gang members by users and other webhooks are not validated",
            found: &state.validating,
            closed: &["pods.portcullis.dev", "changes.portcullis.dev"],
            open: &["groups.portcullis.dev"],
        },
    ]
}

impl ExpectedConfiguration<'_> {
    fn check(&self, fallback: bool) -> DoctorCheck {
        let name = self.name;
        let object = match self.found {
            Lookup::Object(object) => object,
            Lookup::Missing => {
                return DoctorCheck::fail(name, format!("not registered: {}", self.missing), [APPLY]);
            }
            Lookup::Unknown(problem) => return DoctorCheck::unknown(name, problem),
        };
        let hook = |wanted: &str| list(&object["webhooks"]).find(|hook| hook["name"] == wanted);
        let wanted = self.closed.iter().chain(self.open).copied();
        let absent: Vec<&str> = wanted.filter(|wanted| hook(wanted).is_none()).collect();
        if !absent.is_empty() {
            return DoctorCheck::fail(name, format!("hooks are missing: {}", named(&absent)), [APPLY]);
        }
        let ignored = |wanted: &&str| hook(wanted).is_some_and(|hook| hook["failurePolicy"] == "Ignore");
        let open: Vec<&str> = self.closed.iter().copied().filter(ignored).collect();
        if !open.is_empty() && !fallback {
            let message = format!(
                "{} has failurePolicy Ignore and there is no fallback policy: gang members that are \
                 created while no replica answers start without a gate",
                named(&open)
            );
            return DoctorCheck::warn(name, message, [APPLY, "# or add components/gate-fallback"]);
        }
        let hooks: Vec<&str> = list(&object["webhooks"]).filter_map(|hook| hook["name"].as_str()).collect();
        DoctorCheck::ok(name, format!("registered: {}", hooks.join(", ")))
    }
}

fn certificates(state: &ClusterState, now: SystemTime) -> Vec<DoctorCheck> {
    const NAME: &str = "certificate";
    let mut objects: Vec<&Value> =
        configurations(state).iter().filter_map(|one| one.found.object()).collect();
    objects.extend(policies::webhook_configurations(state));
    if objects.is_empty() {
        return Vec::new();
    }
    let injected = objects.iter().any(|object| injected(object));
    let registrations: Vec<Registration> = objects.into_iter().map(Registration::read).collect();
    let without: Vec<&str> = registrations.iter().flat_map(Registration::hooks_without_bundle).collect();
    if !without.is_empty() {
        let message = format!(
            "caBundle of {} is empty: the API server cannot verify the webhook's certificate",
            named(&without)
        );
        return vec![DoctorCheck::fail(NAME, message, [logs(state)])];
    }
    if injected {
        return vec![DoctorCheck::ok(NAME, "cert-manager manages caBundle and the certificate files")];
    }
    let secret = match &state.secret {
        Lookup::Object(secret) => secret,
        Lookup::Missing => {
            let message = "Secret portcullis-tls does not exist: no replica has started yet, or RBAC forbids writing it";
            return vec![DoctorCheck::fail(NAME, message, [logs(state)])];
        }
        Lookup::Unknown(problem) => return vec![DoctorCheck::unknown(NAME, problem)],
    };
    let (kept, problems) = read_tls_secret(secret);
    if let Some(problem) = problems.first() {
        return vec![DoctorCheck::fail(
            NAME,
            format!("the Secret portcullis-tls cannot be used: {problem}"),
            [logs(state)],
        )];
    }
    let mut checks = Vec::new();
    let bundle = kept.bundle_pem();
    let outdated: Vec<&str> = registrations.iter().flat_map(|r| r.hooks_without(&bundle)).collect();
    if !outdated.is_empty() {
        let message = format!(
            "caBundle of {} differs from the Secret portcullis-tls; a running replica corrects it within seconds",
            named(&outdated)
        );
        checks.push(DoctorCheck::fail("caBundle", message, [logs(state)]));
    }
    checks.push(leaf_certificate(state, &kept, now));
    checks
}

/// Checks validity, trust, names and renewal of the leaf certificate in a Secret without problems.
fn leaf_certificate(state: &ClusterState, kept: &TlsSecret, now: SystemTime) -> DoctorCheck {
    const NAME: &str = "certificate";
    let service_names = CertificateNames::of_service("portcullis", &state.namespace);
    let leaf = kept.leaf.as_ref().expect("a Secret without problems has a leaf certificate");
    let (validity, expires) = (leaf.validity, day(leaf.validity.not_after));
    let fail = |message: String| DoctorCheck::fail(NAME, message, [logs(state)]);
    if !validity.holds_at(now) {
        fail(format!("expired or not yet valid (valid until {expires})"))
    } else if !kept.leaf_is_trusted(now) {
        fail("the leaf certificate is not signed by an authority in caBundle".to_owned())
    } else if !leaf.names().is_ok_and(|names| names.cover(&service_names)) {
        fail(format!("the leaf certificate is not valid for {}", service_names.dns[0]))
    } else if renewal_is_overdue(validity.renewal_time(), now) {
        DoctorCheck::warn(NAME, format!("the renewal is overdue (valid until {expires})"), [logs(state)])
    } else {
        let rolling = if kept.bundle.len() > 1 { ", two authorities side by side" } else { "" };
        DoctorCheck::ok(
            NAME,
            format!("caBundle matches the leaf certificate, valid until {expires}{rolling}"),
        )
    }
}

/// Replicas delay the renewal by up to 5% of the certificate's life.
const RENEWAL_GRACE: Duration = Duration::from_secs(3 * 86_400);

fn renewal_is_overdue(renewal: SystemTime, now: SystemTime) -> bool {
    now > renewal + RENEWAL_GRACE
}

fn day(time: SystemTime) -> String {
    time::OffsetDateTime::from(time).date().to_string()
}

fn guard(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "gate guard";
    match (&state.guard, &state.guard_binding) {
        (Lookup::Object(_), Lookup::Object(_)) => {
            DoctorCheck::ok(NAME, "only Portcullis can remove its gate")
        }
        (Lookup::Unknown(problem), _) | (_, Lookup::Unknown(problem)) => DoctorCheck::unknown(NAME, problem),
        _ => {
            let message = "the policy portcullis-gate or its binding is missing: every user who may update a pod can remove its gate";
            DoctorCheck::warn(NAME, message, [APPLY])
        }
    }
}

fn trial(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "trial pod";
    let (code, body) = &state.trial;
    let message = body["message"].as_str().unwrap_or_default();
    match code {
        200..300 => {
            let gated = list(&body["spec"]["schedulingGates"]).any(|gate| gate["name"] == names::GATE);
            if gated {
                return DoctorCheck::ok(
                    NAME,
                    format!("a gang member got its gate (dry run in {})", state.try_in),
                );
            }
            let message = format!("a gang member was created without its gate (dry run in {})", state.try_in);
            DoctorCheck::fail(NAME, message, [APPLY.to_owned(), logs(state)])
        }
        _ if message.contains("portcullis.dev") && message.contains("failed calling webhook") => {
            DoctorCheck::fail(NAME, format!("the webhook does not answer: {message}"), [logs(state)])
        }
        _ if !missing_fields(body).is_empty() => {
            let message = format!(
                "a gang member was denied because fields of the mutating webhook are missing: {} (dry run in {})",
                named(&missing_fields(body)),
                state.try_in
            );
            let remedy = if state.mutating == Lookup::Missing {
                vec![APPLY.to_owned()]
            } else {
                vec![
                    "# it was not called, or another webhook removed its fields; these webhooks change new pods:"
                        .to_owned(),
                    "kubectl get mutatingwebhookconfigurations".to_owned(),
                    APPLY.to_owned(),
                ]
            };
            DoctorCheck::fail(NAME, message, remedy)
        }
        _ => {
            let message = format!("was not created (dry run in {}): {message}", state.try_in);
            DoctorCheck::warn(NAME, message, ["portcullis doctor --try-in ANOTHER-NAMESPACE"])
        }
    }
}

/// Returns the fields for which the validating webhook of Portcullis denied the trial pod. It has no other
/// reason to deny it.
fn missing_fields(refusal: &Value) -> Vec<&str> {
    let ours = refusal["message"]
        .as_str()
        .is_some_and(|message| message.contains("portcullis.dev\" denied the request"));
    let causes =
        list(&refusal["details"]["causes"]).filter(|cause| ours && cause["reason"] == "FieldValueRequired");
    causes.filter_map(|cause| cause["field"].as_str()).collect()
}

fn permissions(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "permissions";
    let own_certificates = !state.mutating.object().is_some_and(injected);
    let with_policies = policies::installed(state);
    let asked = state
        .access
        .iter()
        .filter(|(need, _)| (own_certificates || !need.certificates) && (with_policies || !need.policies));
    let refused: Vec<String> = asked
        .clone()
        .filter(|(_, allowed)| *allowed == Some(false))
        .map(|(need, _)| need.description())
        .collect();
    if !refused.is_empty() {
        let account = format!("system:serviceaccount:{}:portcullis", state.namespace);
        return DoctorCheck::fail(NAME, format!("{account} may not {}", named(&refused)), [APPLY]);
    }
    if asked.clone().any(|(_, allowed)| allowed.is_none()) {
        return DoctorCheck::unknown(NAME, "you may not create subjectaccessreviews");
    }
    DoctorCheck::ok(NAME, format!("the service account has all {} permissions that it needs", asked.count()))
}

/// Whether cert-manager injects `caBundle`.
fn injected(configuration: &Value) -> bool {
    let annotations = configuration["metadata"]["annotations"].as_object();
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with("cert-manager.io/inject-ca-from")))
}

fn replicas(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "replicas";
    let deployment = match &state.deployment {
        Lookup::Object(deployment) => deployment,
        Lookup::Missing => {
            let message = format!("there is no Deployment portcullis in {}", state.namespace);
            return DoctorCheck::warn(NAME, message, [APPLY]);
        }
        Lookup::Unknown(problem) => return DoctorCheck::unknown(NAME, problem),
    };
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let available = deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
    let message = format!("{available} of {wanted} are available");
    if available >= wanted && wanted >= 2 {
        DoctorCheck::ok(NAME, message)
    } else if wanted < 2 {
        let message = format!("{message}: while it is replaced, the API server rejects pods of gangs");
        DoctorCheck::warn(
            NAME,
            message,
            [format!("kubectl scale -n {} deployment/portcullis --replicas=2", state.namespace)],
        )
    } else {
        let look = format!("kubectl get pods -n {} -l app.kubernetes.io/name=portcullis", state.namespace);
        DoctorCheck::warn(NAME, message, [look])
    }
}

/// Returns holder, age of the last renewal and duration of the Lease; `None` if the Lease does not exist or
/// has no holder.
fn lease(state: &ClusterState, now: SystemTime) -> Option<(String, Duration, Duration)> {
    let spec = &state.lease.object()?["spec"];
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    let renewed = Time::parse_rfc3339(spec["renewTime"].as_str()?)?;
    let lasts = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(15));
    let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now = Time(u64::try_from(since.as_millis()).ok()?);
    Some((holder.to_owned(), now.since(renewed), lasts))
}

/// Whether a replica is the leader. The clocks of this machine and the leader may differ, so a Lease counts
/// for three times its duration.
pub(super) fn has_leader(state: &ClusterState, now: SystemTime) -> bool {
    lease(state, now).is_some_and(|(_, age, lasts)| age <= lasts * 3)
}

fn leader(state: &ClusterState, now: SystemTime) -> DoctorCheck {
    const NAME: &str = "leader";
    if let Lookup::Unknown(problem) = &state.lease {
        return DoctorCheck::unknown(NAME, problem);
    }
    match lease(state, now) {
        Some((holder, age, _)) if has_leader(state, now) => DoctorCheck::ok(
            NAME,
            format!(
                "{holder} renewed its lease {} ago",
                portcullis_text::counted(seconds(age), "second", "seconds")
            ),
        ),
        Some((holder, age, _)) => {
            let ago = portcullis_text::counted(seconds(age), "second", "seconds");
            DoctorCheck::fail(
                NAME,
                format!("no leader: {holder} last renewed its lease {ago} ago"),
                [logs(state)],
            )
        }
        None => DoctorCheck::fail(
            NAME,
            "no leader: no gate is removed until a replica acquires the lease",
            [logs(state)],
        ),
    }
}

fn seconds(duration: Duration) -> usize {
    usize::try_from(duration.as_secs()).unwrap_or(usize::MAX)
}
