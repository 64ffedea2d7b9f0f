//! Tests of policy reloads beside a candidate set.

use std::fs;
use std::path::Path;

use super::*;

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("portcullis-policies-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a temporary directory");
    path
}

/// Writes a policy whose only variable has this expression.
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
fn cluster_facts_are_requested_for_the_active_set_and_the_candidate() {
    let home = directory("dependencies");
    let (live, shadow) = (home.join("live"), home.join("shadow"));
    for path in [&live, &shadow] {
        fs::create_dir_all(path).expect("made");
    }
    write(&live, "gpu.whole");
    write(&shadow, "quota.gpus");
    let metrics = PolicyMetrics::default();
    let candidate = std::slice::from_ref(&shadow);
    let policies = PolicyRuntime::start(vec![live.clone()], candidate, metrics).expect("they are good");
    let dependencies = policies.cluster_data_subscriber().dependencies;
    let wait_for = |gangs: bool, capacity: bool| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while *dependencies.borrow() != (DataDependencies { gangs, capacity }) {
            assert!(
                Instant::now() < deadline,
                "{:?}, not gangs {gangs} capacity {capacity}",
                *dependencies.borrow()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(true, true);
    write(&shadow, "gang.named");
    wait_for(true, false);
    write(&live, "cluster.known");
    wait_for(true, true);
    write(&shadow, "object.metadata.name");
    wait_for(false, true);
    write(&live, "object.metadata.name");
    wait_for(false, false);
    fs::remove_dir_all(home).expect("removed");
}

#[test]
fn a_panic_of_the_loader_is_reported_as_a_problem_of_the_files() {
    let panicking = || -> Result<(), String> { panic!("index 7 of 3") };
    let problem = panics_as_problems(panicking).expect_err("it panicked");
    assert!(problem.contains("the loader panicked: index 7 of 3. This is a bug in Portcullis"), "{problem}");
    assert_eq!(panics_as_problems(|| Ok(1)), Ok(1));
    assert_eq!(panics_as_problems::<()>(|| Err("line 3".to_owned())), Err("line 3".to_owned()));
}
