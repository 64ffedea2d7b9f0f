//! Checks of what was installed: definition, hooks, certificates, guard, permissions, replicas, leader, and whether all of
//! it works together.

use std::time::{Duration, SystemTime};

use portcullis_core::model::Time;
use portcullis_core::objects::names;
use serde_json::Value;

use super::checks::{APPLY, DoctorCheck, named};
use super::cluster_state::{ClusterState, Lookup};
use super::policies;
use crate::certs::{Names, Registration};
use crate::installation::read_tls_secret;

/// ValidatingAdmissionPolicy and matchConditions are stable since 1.30.
const OLDEST_MINOR: u32 = 30;

pub(super) fn checks(state: &ClusterState, now: SystemTime) -> Vec<DoctorCheck> {
    let parts = [&state.crd, &state.mutating, &state.validating, &state.deployment];
    if parts.iter().all(|part| **part == Lookup::Missing) {
        let says = "Portcullis is not installed: pods of gangs are neither gated nor judged";
        return vec![version(state), DoctorCheck::fail("installation", says, [APPLY])];
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
    let says = format!("{} at {}", state.version, state.server);
    match minor {
        Some(minor) if minor < OLDEST_MINOR => DoctorCheck::fail(
            NAME,
            format!("{says} is older than 1.{OLDEST_MINOR}: it knows no ValidatingAdmissionPolicy"),
            ["# upgrade the control plane"],
        ),
        _ => DoctorCheck::ok(NAME, says),
    }
}

fn definition(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "gang definition";
    let crd = match &state.crd {
        Lookup::Object(crd) => crd,
        Lookup::Missing => {
            return DoctorCheck::fail(
                NAME,
                "gangs.portcullis.dev is not defined: no plan can be recorded",
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
        let says = "gangs.portcullis.dev is there, but does not serve v1alpha1 with a status: it belongs to another version";
        DoctorCheck::fail(NAME, says, [APPLY])
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// One of the two webhook configurations.
struct Configured<'a> {
    /// As people say it.
    name: &'static str,
    /// What follows where it is gone.
    missing: &'static str,
    found: &'a Lookup,
    /// Hooks that must be in it and refuse what they cannot judge.
    closed: &'static [&'static str],
    /// Hooks that must be in it and may be left out when nobody answers.
    open: &'static [&'static str],
}

fn configurations(state: &ClusterState) -> [Configured<'_>; 2] {
    [
        Configured {
            name: "mutating webhook",
            missing: "members of gangs are not gated, and so they are refused",
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
        Configured {
            name: "validating webhook",
            missing: "nobody sees what other webhooks make of the members of gangs, or what is changed in them",
            found: &state.validating,
            closed: &["pods.portcullis.dev", "changes.portcullis.dev"],
            open: &["groups.portcullis.dev"],
        },
    ]
}

impl Configured<'_> {
    fn check(&self, fallback: bool) -> DoctorCheck {
        let name = self.name;
        let object = match self.found {
            Lookup::Object(object) => object,
            Lookup::Missing => {
                return DoctorCheck::fail(name, format!("is not registered: {}", self.missing), [APPLY]);
            }
            Lookup::Unknown(problem) => return DoctorCheck::unknown(name, problem),
        };
        let hook = |wanted: &str| list(&object["webhooks"]).find(|hook| hook["name"] == wanted);
        let wanted = self.closed.iter().chain(self.open).copied();
        let absent: Vec<&str> = wanted.filter(|wanted| hook(wanted).is_none()).collect();
        if !absent.is_empty() {
            return DoctorCheck::fail(name, format!("lacks {}", named(&absent)), [APPLY]);
        }
        let ignored = |wanted: &&str| hook(wanted).is_some_and(|hook| hook["failurePolicy"] == "Ignore");
        let open: Vec<&str> = self.closed.iter().copied().filter(ignored).collect();
        if !open.is_empty() && !fallback {
            let says = format!(
                "{} has failurePolicy Ignore and there is no fallback policy: members that are created while no replica \
                 answers start alone",
                named(&open)
            );
            return DoctorCheck::warn(name, says, [APPLY, "# or add components/gate-fallback"]);
        }
        let hooks: Vec<&str> = list(&object["webhooks"]).filter_map(|hook| hook["name"].as_str()).collect();
        DoctorCheck::ok(name, format!("registered: {}", hooks.join(", ")))
    }
}

fn certificates(state: &ClusterState, now: SystemTime) -> Vec<DoctorCheck> {
    const NAME: &str = "certificate";
    let mut objects: Vec<&Value> =
        configurations(state).iter().filter_map(|one| one.found.object()).collect();
    objects.extend(policies::registered(state));
    if objects.is_empty() {
        return Vec::new();
    }
    let injected = objects.iter().any(|object| injected(object));
    let registrations: Vec<Registration> = objects.into_iter().map(Registration::read).collect();
    let without: Vec<&str> = registrations.iter().flat_map(Registration::trusting_nobody).collect();
    if !without.is_empty() {
        let says =
            format!("caBundle of {} is empty: the API server cannot believe any answer", named(&without));
        return vec![DoctorCheck::fail(NAME, says, [logs(state)])];
    }
    if injected {
        return vec![DoctorCheck::ok(NAME, "caBundle and the files are kept by cert-manager")];
    }
    let secret = match &state.secret {
        Lookup::Object(secret) => secret,
        Lookup::Missing => {
            let says =
                "there is no Secret portcullis-tls: no replica has started yet, or it may not write it";
            return vec![DoctorCheck::fail(NAME, says, [logs(state)])];
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
    let strangers: Vec<&str> = registrations.iter().flat_map(|r| r.strangers(&bundle)).collect();
    if !strangers.is_empty() {
        let says = format!(
            "caBundle of {} is not what the Secret portcullis-tls says; a running replica mends that within seconds",
            named(&strangers)
        );
        checks.push(DoctorCheck::fail("caBundle", says, [logs(state)]));
    }
    let needed = Names::of_service("portcullis", &state.namespace);
    let leaf = kept.leaf.as_ref().expect("no problems, so there is a leaf");
    let (validity, expires) = (leaf.validity, day(leaf.validity.not_after));
    checks.push(if !validity.holds_at(now) {
        DoctorCheck::fail(NAME, format!("expired, or not yet valid (good until {expires})"), [logs(state)])
    } else if !kept.leaf_is_trusted(now) {
        DoctorCheck::fail(NAME, "the leaf was not signed by an authority of caBundle", [logs(state)])
    } else if !leaf.names().is_ok_and(|names| names.cover(&needed)) {
        DoctorCheck::fail(NAME, format!("the leaf is not good for {}", needed.dns[0]), [logs(state)])
    } else if late(validity.renewal_time(), now) {
        DoctorCheck::warn(
            NAME,
            format!("should have been renewed by now (good until {expires})"),
            [logs(state)],
        )
    } else {
        let rolling = if kept.bundle.len() > 1 { ", two authorities side by side" } else { "" };
        DoctorCheck::ok(NAME, format!("caBundle and leaf fit together, good until {expires}{rolling}"))
    });
    checks
}

/// Patient replicas renew up to 5 % of a life later.
fn late(renewal: SystemTime, now: SystemTime) -> bool {
    now > renewal + Duration::from_secs(3 * 86_400)
}

fn day(time: SystemTime) -> String {
    time::OffsetDateTime::from(time).date().to_string()
}

fn guard(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "gate guard";
    match (&state.guard, &state.guard_binding) {
        (Lookup::Object(_), Lookup::Object(_)) => DoctorCheck::ok(NAME, "only Portcullis can lift its gate"),
        (Lookup::Unknown(problem), _) | (_, Lookup::Unknown(problem)) => DoctorCheck::unknown(NAME, problem),
        _ => {
            let says = "the policy portcullis-gate or its binding is missing: anybody who may change a pod can lift its gate";
            DoctorCheck::warn(NAME, says, [APPLY])
        }
    }
}

fn trial(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "trial pod";
    let (code, body) = &state.trial;
    let says = body["message"].as_str().unwrap_or_default();
    match code {
        200..300 => {
            let gated = list(&body["spec"]["schedulingGates"]).any(|gate| gate["name"] == names::GATE);
            if gated {
                return DoctorCheck::ok(
                    NAME,
                    format!("a member of a gang was gated (dry run in {})", state.try_in),
                );
            }
            let says =
                format!("a member of a gang was created without its gate (dry run in {})", state.try_in);
            DoctorCheck::fail(NAME, says, [APPLY.to_owned(), logs(state)])
        }
        _ if says.contains("portcullis.dev") && says.contains("failed calling webhook") => {
            DoctorCheck::fail(NAME, format!("the webhook does not answer: {says}"), [logs(state)])
        }
        _ if !lacking(body).is_empty() => {
            let says = format!(
                "a member of a gang was refused because it lacked what the mutating webhook adds: {} (dry run in {})",
                named(&lacking(body)),
                state.try_in
            );
            let remedy = if state.mutating == Lookup::Missing {
                vec![APPLY.to_owned()]
            } else {
                vec![
                    "# it is not asked, or another webhook undoes what it added; these change new pods:"
                        .to_owned(),
                    "kubectl get mutatingwebhookconfigurations".to_owned(),
                    APPLY.to_owned(),
                ]
            };
            DoctorCheck::fail(NAME, says, remedy)
        }
        _ => {
            let says = format!("could not be created (dry run in {}): {says}", state.try_in);
            DoctorCheck::warn(NAME, says, ["portcullis doctor --try-in ANOTHER-NAMESPACE"])
        }
    }
}

/// The fields for which our validating webhook has refused the trial pod; it refuses a sound one for no others.
fn lacking(refusal: &Value) -> Vec<&str> {
    let ours =
        refusal["message"].as_str().is_some_and(|says| says.contains("portcullis.dev\" denied the request"));
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
    let refused: Vec<String> =
        asked.clone().filter(|(_, allowed)| *allowed == Some(false)).map(|(need, _)| need.words()).collect();
    if !refused.is_empty() {
        let account = format!("system:serviceaccount:{}:portcullis", state.namespace);
        return DoctorCheck::fail(NAME, format!("{account} may not {}", named(&refused)), [APPLY]);
    }
    if asked.clone().any(|(_, allowed)| allowed.is_none()) {
        return DoctorCheck::unknown(
            NAME,
            "you may not ask what others may do (create subjectaccessreviews)",
        );
    }
    DoctorCheck::ok(NAME, format!("the service account may do all {} things it needs", asked.count()))
}

/// Whether cert-manager writes `caBundle`.
fn injected(configuration: &Value) -> bool {
    let annotations = configuration["metadata"]["annotations"].as_object();
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with("cert-manager.io/inject-ca-from")))
}

fn replicas(state: &ClusterState) -> DoctorCheck {
    const NAME: &str = "replicas";
    let deployment = match &state.deployment {
        Lookup::Object(deployment) => deployment,
        Lookup::Missing => {
            let says = format!("there is no Deployment portcullis in {}", state.namespace);
            return DoctorCheck::warn(NAME, says, [APPLY]);
        }
        Lookup::Unknown(problem) => return DoctorCheck::unknown(NAME, problem),
    };
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let available = deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
    let says = format!("{available} of {wanted} are available");
    if available >= wanted && wanted >= 2 {
        DoctorCheck::ok(NAME, says)
    } else if wanted < 2 {
        let says = format!("{says}: while that one is replaced, pods of gangs are refused");
        DoctorCheck::warn(
            NAME,
            says,
            [format!("kubectl scale -n {} deployment/portcullis --replicas=2", state.namespace)],
        )
    } else {
        let look = format!("kubectl get pods -n {} -l app.kubernetes.io/name=portcullis", state.namespace);
        DoctorCheck::warn(NAME, says, [look])
    }
}

/// Who leads, and how long ago that was last said; `None` when there is no Lease, or nobody holds it.
fn lease(state: &ClusterState, now: SystemTime) -> Option<(String, Duration, Duration)> {
    let spec = &state.lease.object()?["spec"];
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    let renewed = Time::parse_rfc3339(spec["renewTime"].as_str()?)?;
    let lasts = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(15));
    let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now = Time(u64::try_from(since.as_millis()).ok()?);
    Some((holder.to_owned(), now.since(renewed), lasts))
}

/// Whether somebody leads. The clocks of this machine and of the leader need not agree to the second, so a Lease counts
/// for three times as long as it says.
pub(super) fn leads(state: &ClusterState, now: SystemTime) -> bool {
    lease(state, now).is_some_and(|(_, age, lasts)| age <= lasts * 3)
}

fn leader(state: &ClusterState, now: SystemTime) -> DoctorCheck {
    const NAME: &str = "leader";
    if let Lookup::Unknown(problem) = &state.lease {
        return DoctorCheck::unknown(NAME, problem);
    }
    match lease(state, now) {
        Some((holder, age, _)) if leads(state, now) => DoctorCheck::ok(
            NAME,
            format!("{holder}, state {} ago", portcullis_text::counted(seconds(age), "second", "seconds")),
        ),
        Some((holder, age, _)) => {
            let ago = portcullis_text::counted(seconds(age), "second", "seconds");
            DoctorCheck::fail(NAME, format!("nobody leads: {holder} was last state {ago} ago"), [logs(state)])
        }
        None => {
            DoctorCheck::fail(NAME, "nobody leads: no gate is lifted until a replica does", [logs(state)])
        }
    }
}

fn seconds(duration: Duration) -> usize {
    usize::try_from(duration.as_secs()).unwrap_or(usize::MAX)
}
