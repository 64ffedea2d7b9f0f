//! Checks of what was installed: definition, hooks, certificates, guard, permissions, replicas, leader, and whether all of
//! it works together.

use std::time::{Duration, SystemTime};

use portcullis_core::model::Time;
use portcullis_core::objects::names;
use serde_json::Value;

use super::gather::{Found, Gathered};
use super::judge::{APPLY, Check, count, named};
use super::policies;
use crate::certs::{Names, Registration};
use crate::installation::read_tls_secret;

/// ValidatingAdmissionPolicy and matchConditions are stable since 1.30.
const OLDEST_MINOR: u32 = 30;

pub(super) fn checks(seen: &Gathered, now: SystemTime) -> Vec<Check> {
    let parts = [&seen.crd, &seen.mutating, &seen.validating, &seen.deployment];
    if parts.iter().all(|part| **part == Found::Missing) {
        let says = "Portcullis is not installed: pods of gangs are neither gated nor judged";
        return vec![version(seen), Check::fail("installation", says, [APPLY])];
    }
    let mut checks = vec![version(seen), definition(seen)];
    checks.extend(configurations(seen).map(|one| one.check(seen.fallback.object().is_some())));
    checks.extend(policies::checks(seen));
    checks.extend(certificates(seen, now));
    checks.extend([guard(seen), trial(seen), permissions(seen), replicas(seen), leader(seen, now)]);
    checks
}

fn logs(seen: &Gathered) -> String {
    format!("kubectl logs -n {} deployment/portcullis --all-pods --tail=50", seen.namespace)
}

fn version(seen: &Gathered) -> Check {
    const NAME: &str = "API server";
    let minor = seen.version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let says = format!("{} at {}", seen.version, seen.server);
    match minor {
        Some(minor) if minor < OLDEST_MINOR => Check::fail(
            NAME,
            format!("{says} is older than 1.{OLDEST_MINOR}: it knows no ValidatingAdmissionPolicy"),
            ["# upgrade the control plane"],
        ),
        _ => Check::ok(NAME, says),
    }
}

fn definition(seen: &Gathered) -> Check {
    const NAME: &str = "gang definition";
    let crd = match &seen.crd {
        Found::Object(crd) => crd,
        Found::Missing => {
            return Check::fail(
                NAME,
                "gangs.portcullis.dev is not defined: no plan can be recorded",
                [APPLY],
            );
        }
        Found::Unknown(problem) => return Check::unknown(NAME, problem),
    };
    let served = list(&crd["spec"]["versions"]).any(|v| v["name"] == "v1alpha1" && v["served"] == true);
    let status = list(&crd["spec"]["versions"]).any(|v| v["subresources"]["status"].is_object());
    let established =
        list(&crd["status"]["conditions"]).any(|c| c["type"] == "Established" && c["status"] == "True");
    if served && status && established {
        Check::ok(NAME, "gangs.portcullis.dev/v1alpha1 is served")
    } else {
        let says = "gangs.portcullis.dev is there, but does not serve v1alpha1 with a status: it belongs to another version";
        Check::fail(NAME, says, [APPLY])
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
    found: &'a Found,
    /// Hooks that must be in it and refuse what they cannot judge.
    closed: &'static [&'static str],
    /// Hooks that must be in it and may be left out when nobody answers.
    open: &'static [&'static str],
}

fn configurations(seen: &Gathered) -> [Configured<'_>; 2] {
    [
        Configured {
            name: "mutating webhook",
            missing: "members of gangs are not gated, and so they are refused",
            found: &seen.mutating,
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
            found: &seen.validating,
            closed: &["pods.portcullis.dev", "changes.portcullis.dev"],
            open: &["groups.portcullis.dev"],
        },
    ]
}

impl Configured<'_> {
    fn check(&self, fallback: bool) -> Check {
        let name = self.name;
        let object = match self.found {
            Found::Object(object) => object,
            Found::Missing => {
                return Check::fail(name, format!("is not registered: {}", self.missing), [APPLY]);
            }
            Found::Unknown(problem) => return Check::unknown(name, problem),
        };
        let hook = |wanted: &str| list(&object["webhooks"]).find(|hook| hook["name"] == wanted);
        let wanted = self.closed.iter().chain(self.open).copied();
        let absent: Vec<&str> = wanted.filter(|wanted| hook(wanted).is_none()).collect();
        if !absent.is_empty() {
            return Check::fail(name, format!("lacks {}", named(&absent)), [APPLY]);
        }
        let ignored = |wanted: &&str| hook(wanted).is_some_and(|hook| hook["failurePolicy"] == "Ignore");
        let open: Vec<&str> = self.closed.iter().copied().filter(ignored).collect();
        if !open.is_empty() && !fallback {
            let says = format!(
                "{} has failurePolicy Ignore and there is no fallback policy: members that are created while no replica \
                 answers start alone",
                named(&open)
            );
            return Check::warn(name, says, [APPLY, "# or add components/gate-fallback"]);
        }
        let hooks: Vec<&str> = list(&object["webhooks"]).filter_map(|hook| hook["name"].as_str()).collect();
        Check::ok(name, format!("registered: {}", hooks.join(", ")))
    }
}

fn certificates(seen: &Gathered, now: SystemTime) -> Vec<Check> {
    const NAME: &str = "certificate";
    let mut objects: Vec<&Value> = configurations(seen).iter().filter_map(|one| one.found.object()).collect();
    objects.extend(policies::registered(seen));
    if objects.is_empty() {
        return Vec::new();
    }
    let injected = objects.iter().any(|object| injected(object));
    let registrations: Vec<Registration> = objects.into_iter().map(Registration::read).collect();
    let without: Vec<&str> = registrations.iter().flat_map(Registration::trusting_nobody).collect();
    if !without.is_empty() {
        let says =
            format!("caBundle of {} is empty: the API server cannot believe any answer", named(&without));
        return vec![Check::fail(NAME, says, [logs(seen)])];
    }
    if injected {
        return vec![Check::ok(NAME, "caBundle and the files are kept by cert-manager")];
    }
    let secret = match &seen.secret {
        Found::Object(secret) => secret,
        Found::Missing => {
            let says =
                "there is no Secret portcullis-tls: no replica has started yet, or it may not write it";
            return vec![Check::fail(NAME, says, [logs(seen)])];
        }
        Found::Unknown(problem) => return vec![Check::unknown(NAME, problem)],
    };
    let (kept, problems) = read_tls_secret(secret);
    if let Some(problem) = problems.first() {
        return vec![Check::fail(
            NAME,
            format!("the Secret portcullis-tls cannot be used: {problem}"),
            [logs(seen)],
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
        checks.push(Check::fail("caBundle", says, [logs(seen)]));
    }
    let needed = Names::of_service("portcullis", &seen.namespace);
    let leaf = kept.leaf.as_ref().expect("no problems, so there is a leaf");
    let (validity, expires) = (leaf.validity, day(leaf.validity.not_after));
    checks.push(if !validity.holds_at(now) {
        Check::fail(NAME, format!("expired, or not yet valid (good until {expires})"), [logs(seen)])
    } else if !kept.leaf_is_trusted(now) {
        Check::fail(NAME, "the leaf was not signed by an authority of caBundle", [logs(seen)])
    } else if !leaf.names().is_ok_and(|names| names.cover(&needed)) {
        Check::fail(NAME, format!("the leaf is not good for {}", needed.dns[0]), [logs(seen)])
    } else if late(validity.renewal_time(), now) {
        Check::warn(NAME, format!("should have been renewed by now (good until {expires})"), [logs(seen)])
    } else {
        let rolling = if kept.bundle.len() > 1 { ", two authorities side by side" } else { "" };
        Check::ok(NAME, format!("caBundle and leaf fit together, good until {expires}{rolling}"))
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

fn guard(seen: &Gathered) -> Check {
    const NAME: &str = "gate guard";
    match (&seen.guard, &seen.guard_binding) {
        (Found::Object(_), Found::Object(_)) => Check::ok(NAME, "only Portcullis can lift its gate"),
        (Found::Unknown(problem), _) | (_, Found::Unknown(problem)) => Check::unknown(NAME, problem),
        _ => {
            let says = "the policy portcullis-gate or its binding is missing: anybody who may change a pod can lift its gate";
            Check::warn(NAME, says, [APPLY])
        }
    }
}

fn trial(seen: &Gathered) -> Check {
    const NAME: &str = "trial pod";
    let (code, body) = &seen.trial;
    let says = body["message"].as_str().unwrap_or_default();
    match code {
        200..300 => {
            let gated = list(&body["spec"]["schedulingGates"]).any(|gate| gate["name"] == names::GATE);
            if gated {
                return Check::ok(NAME, format!("a member of a gang was gated (dry run in {})", seen.try_in));
            }
            let says =
                format!("a member of a gang was created without its gate (dry run in {})", seen.try_in);
            Check::fail(NAME, says, [APPLY.to_owned(), logs(seen)])
        }
        _ if says.contains("portcullis.dev") && says.contains("failed calling webhook") => {
            Check::fail(NAME, format!("the webhook does not answer: {says}"), [logs(seen)])
        }
        _ if !lacking(body).is_empty() => {
            let says = format!(
                "a member of a gang was refused because it lacked what the mutating webhook adds: {} (dry run in {})",
                named(&lacking(body)),
                seen.try_in
            );
            let remedy = if seen.mutating == Found::Missing {
                vec![APPLY.to_owned()]
            } else {
                vec![
                    "# it is not asked, or another webhook undoes what it added; these change new pods:"
                        .to_owned(),
                    "kubectl get mutatingwebhookconfigurations".to_owned(),
                    APPLY.to_owned(),
                ]
            };
            Check::fail(NAME, says, remedy)
        }
        _ => {
            let says = format!("could not be created (dry run in {}): {says}", seen.try_in);
            Check::warn(NAME, says, ["portcullis doctor --try-in ANOTHER-NAMESPACE"])
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

fn permissions(seen: &Gathered) -> Check {
    const NAME: &str = "permissions";
    let own_certificates = !seen.mutating.object().is_some_and(injected);
    let with_policies = policies::installed(seen);
    let asked = seen
        .access
        .iter()
        .filter(|(need, _)| (own_certificates || !need.certificates) && (with_policies || !need.policies));
    let refused: Vec<String> =
        asked.clone().filter(|(_, allowed)| *allowed == Some(false)).map(|(need, _)| need.words()).collect();
    if !refused.is_empty() {
        let account = format!("system:serviceaccount:{}:portcullis", seen.namespace);
        return Check::fail(NAME, format!("{account} may not {}", named(&refused)), [APPLY]);
    }
    if asked.clone().any(|(_, allowed)| allowed.is_none()) {
        return Check::unknown(NAME, "you may not ask what others may do (create subjectaccessreviews)");
    }
    Check::ok(NAME, format!("the service account may do all {} things it needs", asked.count()))
}

/// Whether cert-manager writes `caBundle`.
fn injected(configuration: &Value) -> bool {
    let annotations = configuration["metadata"]["annotations"].as_object();
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with("cert-manager.io/inject-ca-from")))
}

fn replicas(seen: &Gathered) -> Check {
    const NAME: &str = "replicas";
    let deployment = match &seen.deployment {
        Found::Object(deployment) => deployment,
        Found::Missing => {
            let says = format!("there is no Deployment portcullis in {}", seen.namespace);
            return Check::warn(NAME, says, [APPLY]);
        }
        Found::Unknown(problem) => return Check::unknown(NAME, problem),
    };
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let available = deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
    let says = format!("{available} of {wanted} are available");
    if available >= wanted && wanted >= 2 {
        Check::ok(NAME, says)
    } else if wanted < 2 {
        let says = format!("{says}: while that one is replaced, pods of gangs are refused");
        Check::warn(
            NAME,
            says,
            [format!("kubectl scale -n {} deployment/portcullis --replicas=2", seen.namespace)],
        )
    } else {
        let look = format!("kubectl get pods -n {} -l app.kubernetes.io/name=portcullis", seen.namespace);
        Check::warn(NAME, says, [look])
    }
}

/// Who leads, and how long ago that was last said; `None` when there is no Lease, or nobody holds it.
fn lease(seen: &Gathered, now: SystemTime) -> Option<(String, Duration, Duration)> {
    let spec = &seen.lease.object()?["spec"];
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    let renewed = Time::parse_rfc3339(spec["renewTime"].as_str()?)?;
    let lasts = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(15));
    let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now = Time(u64::try_from(since.as_millis()).ok()?);
    Some((holder.to_owned(), now.since(renewed), lasts))
}

/// Whether somebody leads. The clocks of this machine and of the leader need not agree to the second, so a Lease counts
/// for three times as long as it says.
pub(super) fn leads(seen: &Gathered, now: SystemTime) -> bool {
    lease(seen, now).is_some_and(|(_, age, lasts)| age <= lasts * 3)
}

fn leader(seen: &Gathered, now: SystemTime) -> Check {
    const NAME: &str = "leader";
    if let Found::Unknown(problem) = &seen.lease {
        return Check::unknown(NAME, problem);
    }
    match lease(seen, now) {
        Some((holder, age, _)) if leads(seen, now) => {
            Check::ok(NAME, format!("{holder}, seen {} ago", count(seconds(age), "second")))
        }
        Some((holder, age, _)) => {
            let ago = count(seconds(age), "second");
            Check::fail(NAME, format!("nobody leads: {holder} was last seen {ago} ago"), [logs(seen)])
        }
        None => Check::fail(NAME, "nobody leads: no gate is lifted until a replica does", [logs(seen)]),
    }
}

fn seconds(duration: Duration) -> usize {
    usize::try_from(duration.as_secs()).unwrap_or(usize::MAX)
}
