//! Policies that follow their files, beside a candidate.

use std::fs;
use std::path::Path;

use super::*;

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("portcullis-policies-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a temporary directory");
    path
}

/// A policy with this rule.
fn write(directory: &Path, expression: &str) {
    let text = format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: p}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]
  variables: [{{name: v, expression: {expression}}}]
  validations: [{{expression: dyn(variables.v) != null}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: p}}
spec: {{policyName: p, validationActions: [Deny]}}
"
    );
    fs::write(directory.join("p.yaml"), text).expect("written");
}

#[test]
fn the_world_is_asked_for_what_either_set_needs_as_both_change() {
    let home = directory("wishes");
    let (live, shadow) = (home.join("live"), home.join("shadow"));
    for path in [&live, &shadow] {
        fs::create_dir_all(path).expect("made");
    }
    write(&live, "gpu.whole");
    write(&shadow, "quota.gpus");
    let metrics = PolicyMetrics::default();
    let candidate = std::slice::from_ref(&shadow);
    let policies = Policies::start(vec![live.clone()], candidate, metrics).expect("they are good");
    let wishes = policies.audience().wishes;
    let becomes = |gangs: bool, capacity: bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while *wishes.borrow() != (Wishes { gangs, capacity }) {
            assert!(
                Instant::now() < deadline,
                "{:?}, not gangs {gangs} capacity {capacity}",
                *wishes.borrow()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    becomes(true, true);
    write(&shadow, "gang.named");
    becomes(true, false);
    write(&live, "cluster.known");
    becomes(true, true);
    write(&shadow, "object.metadata.name");
    becomes(false, true);
    write(&live, "object.metadata.name");
    becomes(false, false);
    fs::remove_dir_all(home).expect("removed");
}

#[test]
fn a_panic_of_the_loader_is_what_is_wrong_with_the_files() {
    let panicking = || -> Result<(), String> { panic!("index 7 of 3") };
    let problem = unless_it_panics(panicking).expect_err("it panicked");
    assert!(problem.contains("the loader panicked: index 7 of 3. This is a bug in Portcullis"), "{problem}");
    assert_eq!(unless_it_panics(|| Ok(1)), Ok(1));
    assert_eq!(unless_it_panics::<()>(|| Err("line 3".to_owned())), Err("line 3".to_owned()));
}
