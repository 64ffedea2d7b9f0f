//! Tests of the loader: the message and place of each error. One error does not hide another.

use serde_json::json;

use super::*;
use crate::input::AdmissionRequest;
use crate::input::{ClusterData, DataDependencies};

fn file(name: &str, text: impl AsRef<[u8]>) -> SourceFile {
    SourceFile { name: name.to_owned(), bytes: text.as_ref().to_owned() }
}

/// Returns the problems, each as `SEVERITY FILE:LINE:COLUMN MESSAGE (SUGGESTION)`.
fn problems(files: &[SourceFile]) -> Vec<String> {
    let loaded = load(files);
    let errors = loaded.problems.iter().any(|problem| problem.severity == Severity::Error);
    assert_eq!(loaded.set.is_none(), errors, "{:?}", loaded.problems);
    loaded
        .problems
        .iter()
        .map(|problem| {
            let meant = problem.suggestion.as_ref().map(|meant| format!(" ({meant})")).unwrap_or_default();
            format!(
                "{} {} {}{meant}",
                report::severity_name(problem.severity),
                problem.place(),
                problem.message
            )
        })
        .collect()
}

const HEAD: &str =
    "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n";
const PODS: &str = "  matchConstraints:\n    resourceRules:\n    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n";
const BINDING: &str = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: a}\nspec: {policyName: a, validationActions: [Deny]}\n";

/// Returns a bound policy for pods with these lines in its `spec`, from line 8 on.
fn policy(lines: &str) -> String {
    format!("{HEAD}spec:\n{PODS}{lines}{BINDING}")
}

#[test]
fn an_error_in_an_expression_has_its_line_and_column() {
    for (lines, expected) in [
        ("  validations:\n  - expression: \"true\"\n", None),
        (
            "  validations:\n  - expression: object.spec.imgae == ''\n",
            Some("9:29 undefined field 'imgae', where object is a Pod"),
        ),
        (
            "  validations:\n  - expression: |\n      true &&\n        objct.spec.x\n",
            Some("11:9 undeclared reference to 'objct' (object)"),
        ),
        (
            "  validations:\n  - expression: >-\n      true\n      && 'x'.startWith('x')\n",
            Some("11:14 undeclared reference to 'startWith' (startsWith)"),
        ),
        (
            "  validations:\n  - expression: \"true && \\\"a\\\" == objct\"\n",
            Some("9:35 undeclared reference to 'objct' (object)"),
        ),
        (
            "  validations:\n  - expression: 'objct == ''a'''\n",
            Some("9:18 undeclared reference to 'objct' (object)"),
        ),
        (
            "  validations: [{expression: \"true\", messageExpression: 'string(objct)'}]\n",
            Some("8:65 undeclared reference to 'objct' (object)"),
        ),
        ("  validations:\n  - expression: |\n      1 +\n", Some("10:10 Syntax error")),
        ("  validations:\n  - expression: request.name\n", Some("9:17 must evaluate to bool but got string")),
        (
            "  matchConditions: [{name: x, expression: variables.a}]\n  validations: [{expression: 'true'}]\n",
            Some("8:43 undeclared reference to 'variables'"),
        ),
        (
            "  variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]\n  validations: [{expression: 'true'}]\n",
            Some("8:47 undefined field 'b'"),
        ),
        ("  validations:\n  - expression: params.x == 1\n", Some("9:17 undeclared reference to 'params'")),
    ] {
        let found = problems(&[file("p.yaml", policy(lines))]);
        match expected {
            None => assert_eq!(found, Vec::<String>::new(), "{lines}"),
            Some(expected) => {
                assert_eq!(found.len(), 1, "{lines}: {found:?}");
                let wanted = format!("error p.yaml:{expected}");
                assert!(found[0].starts_with(&wanted), "{lines}\n found {}\nwanted {wanted}", found[0]);
            }
        }
    }
}

#[test]
fn dangling_references_are_reported() {
    let good = policy("  validations: [{expression: 'true'}]\n");
    let other = BINDING.trim_start_matches("---\n");
    let mutating = other.replace("Validating", "Mutating").replace(", validationActions: [Deny]", "");
    let unbound = good.replace(BINDING, "");
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n";
    for (files, expected) in [
        (vec![file("a.yaml", &good)], vec![]),
        (
            vec![file("a.yaml", &unbound)],
            vec![
                "warning a.yaml:3:18 no ValidatingAdmissionPolicyBinding names \"a\": it is never evaluated",
            ],
        ),
        (
            vec![file("b.yaml", &good), file("a/c.yaml", &unbound)],
            vec!["error b.yaml:3:18 there is another ValidatingAdmissionPolicy \"a\" at a/c.yaml:2"],
        ),
        (
            vec![
                file("a.yaml", &good),
                file(
                    "b.yaml",
                    other.replace("name: a}", "name: b}").replace("policyName: a", "policyName: ab"),
                ),
            ],
            vec!["error b.yaml:4:20 there is no ValidatingAdmissionPolicy \"ab\" in these files (a)"],
        ),
        (
            vec![file("a.yaml", &good), file("b.yaml", &mutating)],
            vec!["error b.yaml:4:20 \"a\" is not a MutatingAdmissionPolicy: use the other kind of binding"],
        ),
        (
            vec![file("a.yaml", &good), file("b.yaml", config)],
            vec![
                "warning b.yaml:2:7 a ConfigMap is not a policy, and no policy takes parameters of this kind: it is ignored",
            ],
        ),
        (
            vec![file("a.yaml", &good), file("b.yaml", "a: 1\n")],
            vec![
                "error b.yaml:1:1 this is not a Kubernetes object: the field \"apiVersion\" is required",
                "error b.yaml:1:1 this is not a Kubernetes object: the field \"kind\" is required",
            ],
        ),
        (
            vec![file("a.yaml", &good), file("b.yaml", "- 1\n")],
            vec![
                "error b.yaml:1:1 this is not a Kubernetes object: it must be a mapping with apiVersion and kind",
            ],
        ),
        (
            vec![file(
                "a.yaml",
                good.replace(
                    "k8s.io/v1\nkind: ValidatingAdmissionPolicy\n",
                    "k8s.io/v1beta1\nkind: ValidatingAdmissionPolicy\n",
                ),
            )],
            vec![
                "error a.yaml:1:13 Kubernetes 1.36 has no ValidatingAdmissionPolicy of \"admissionregistration.k8s.io/v1beta1\": it has v1 (admissionregistration.k8s.io/v1)",
            ],
        ),
        (
            vec![file("a.test.yaml", "nonsense: ["), file("b.txt", "nonsense: ["), file("c.yaml", &good)],
            vec![],
        ),
    ] {
        assert_eq!(problems(&files), expected);
    }
}

#[test]
fn gang_policies_are_loaded_like_other_policies() {
    let ours = "apiVersion: portcullis.dev/v1alpha1\nkind: GangPolicy\nmetadata: {name: g}\nspec:\n  limits:\n    pod:\n      gpus: 8\n";
    let good = policy("  validations: [{expression: 'true'}]\n");
    for (files, expected) in [
        (vec![file("g.yaml", ours)], vec![]),
        (
            vec![file("g.yaml", ours.replace("gpus", "gpsu"))],
            vec!["error g.yaml:7:7 unknown field \"gpsu\" (gpus)"],
        ),
        (
            vec![file("a.yaml", &good), file("g.yaml", ours.replace("name: g", "name: a"))],
            vec![
                "error g.yaml:3:18 it becomes a ValidatingAdmissionPolicy \"a\", and there is one at a.yaml:2: choose another name",
            ],
        ),
        (
            vec![file("g.yaml", ours.replace("v1alpha1", "v1"))],
            vec!["error g.yaml:1:13 portcullis.dev has no version \"v1\" (portcullis.dev/v1alpha1)"],
        ),
    ] {
        assert_eq!(problems(&files), expected);
    }
}

#[test]
fn parameters_are_loaded_from_the_files() {
    let with_params = |reference: &str| {
        policy("  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'params.data.x == \"1\"'}]\n")
            .replace(", validationActions", &format!("{reference}, validationActions"))
    };
    let reference = ", paramRef: {name: x, parameterNotFoundAction: Deny}";
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {x: '1'}\n";
    for (files, expected) in [
        (vec![file("a.yaml", with_params(reference)), file("b.yaml", config)], vec![]),
        (
            vec![
                file("a.yaml", with_params(reference)),
                file("b.yaml", config.replace("name: x", "name: xx")),
            ],
            vec![
                "warning a.yaml:14:40 there is no ConfigMap \"x\" in these files, so every request is denied (xx)",
            ],
        ),
        (
            vec![file("a.yaml", with_params("")), file("b.yaml", config)],
            vec![
                "warning a.yaml:14:1 the policy has a paramKind but this binding has no paramRef: params is null",
            ],
        ),
        (
            vec![
                file("a.yaml", with_params(reference)),
                file("b.yaml", config.replace("data: {x: '1'}", "dta: {x: 1}\ndata: {x: 1}")),
            ],
            vec![
                "error b.yaml:4:1 unknown field \"dta\" (data)",
                "error b.yaml:5:11 this must be text, and is the number 1: put it in quotes",
            ],
        ),
    ] {
        assert_eq!(problems(&files), expected);
    }
}

#[test]
fn files_can_be_yaml_or_json_in_every_layout() {
    let good = policy("  validations: [{expression: 'true'}]\n");
    let with_bom = [b"\xEF\xBB\xBF".as_slice(), good.as_bytes()].concat();
    let as_json = |text: &str| {
        let (documents, _) = yaml::read(text, false);
        documents.iter().map(Node::json).collect::<Vec<_>>()
    };
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": as_json(&good) });
    let misspelt = json!({ "apiVersion": "v1", "kind": "List", "items": as_json(&good.replace("policyName: a", "policyName: b")) });
    let mut tabs = String::new();
    for line in format!("{misspelt:#}").lines() {
        tabs.push_str(&line.replace("  ", "\t"));
        tabs.push('\n');
    }
    for (files, expected) in [
        (vec![file("a.yaml", with_bom)], vec![]),
        (vec![file("a.yml", good.replace('\n', "\r\n"))], vec![]),
        (vec![file("a.json", list.to_string())], vec![]),
        (vec![file("a.json", format!("{list:#}"))], vec![]),
        (
            vec![file("a.json", tabs)],
            vec!["error ValidatingAdmissionPolicy \"b\" in these files", "warning never evaluated"],
        ),
        (
            vec![file("a.yaml", b"a: \xE4\n")],
            vec!["error a.yaml:1:4 the byte 0xE4 is not UTF-8: save the file as UTF-8"],
        ),
        (vec![file("a.yaml", b"\xFF\xFEa\0")], vec!["error a.yaml the file is UTF-16: save it as UTF-8"]),
        (vec![file("a.yaml", "a:\n\tb: 1\n")], vec!["error a.yaml:2:2 tabs disallowed"]),
        (
            vec![file("a.yaml", "a: 1\n---\nb: [\n---\nkind: c\n")],
            vec!["error a.yaml:1:1", "error a.yaml:3:4", "error a.yaml:5:1"],
        ),
    ] {
        let found = problems(&files);
        assert_eq!(found.is_empty(), expected.is_empty(), "{found:?}");
        for wanted in expected {
            let (severity, text) = wanted.split_once(' ').expect("two words");
            let is_reported = found.iter().any(|one| one.starts_with(severity) && one.contains(text));
            assert!(is_reported, "{wanted}: {found:?}");
        }
    }
}

#[test]
fn the_hash_of_a_set_depends_on_file_names_and_contents() {
    let good = policy("  validations: [{expression: 'true'}]\n");
    let hash = |name: &str, text: &str| load(&[file(name, text)]).set.expect("it is good").hash().to_owned();
    assert_eq!(hash("a/p.yaml", &good), hash("/b/p.yaml", &good), "the directory has no effect");
    assert_ne!(hash("p.yaml", &good), hash("p.yaml", &format!("{good}\n")));
    assert_ne!(hash("p.yaml", &good), hash("q.yaml", &good));
    assert_eq!(hash("p.yaml", &good).len(), 64);
}

#[test]
fn a_set_evaluates_requests_and_exceptions_expire() {
    let text = policy(
        "  validations: [{expression: \"!object.spec.containers.exists(c, c.image.endsWith(':latest'))\", message: latest}]\n",
    );
    let exception = "---\napiVersion: portcullis.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: e}\nspec:\n  owner: o\n  reason: r\n  expires: '1970-01-01T00:01:40Z'\n  policies: [{name: a}]\n  match: {namespaces: [ml]}\n";
    let files = [file("p.yaml", format!("{text}{exception}"))];
    let set = load(&files).set.expect("it is good");
    let request = |namespace: &str, image: &str| {
        json!({
            "uid": "u", "operation": "CREATE", "namespace": namespace, "name": "p",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "object": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": namespace },
                "spec": { "containers": [{ "name": "c", "image": image }] } },
        })
    };
    for (namespace, image, now, denied, excepted) in [
        ("ml", "x:1", 0, 0, 0),
        ("ml", "x:latest", 99, 0, 1),
        ("ml", "x:latest", 100, 1, 0),
        ("other", "x:latest", 99, 1, 0),
    ] {
        let json = request(namespace, image);
        let validation =
            set.validate(&AdmissionRequest { json: &json }, &ClusterData { now, ..ClusterData::default() });
        let found = (validation.denials.len(), validation.applied_exceptions.len());
        assert_eq!(found, (denied, excepted), "{namespace} {image} at {now}: {validation:?}");
    }
    assert!(load(&files).warn_expired(99).problems.is_empty());
    let late = load(&files).warn_expired(100);
    assert_eq!(late.problems.len(), 1);
    assert_eq!(late.problems[0].place(), "p.yaml:21:12");
    assert!(late.set.is_some(), "an exception that has ended is no error");
}

#[test]
fn a_set_returns_the_data_dependencies_of_its_expressions() {
    let rule = |expression: &str| policy(&format!("  validations: [{{expression: \"{expression}\"}}]\n"));
    let ours = |limits: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: GangPolicy\nmetadata: {{name: g}}\nspec: {{limits: {limits}}}\n"
        )
    };
    let mutating = rule("true").replace("Validating", "Mutating").replace(
        "  validations: [{expression: \"true\"}]\n",
        "  mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'cluster.known ? [JSONPatch{op: \"remove\", path: \"/x\"}] : []'}}]\n  reinvocationPolicy: Never\n  failurePolicy: Fail\n",
    );
    let mutating =
        mutating.replace("spec: {policyName: a, validationActions: [Deny]}", "spec: {policyName: a}");
    for (text, gangs, capacity) in [
        (rule("object.metadata.name != 'quota.gpus' || 'cluster.cards' == 'queue.name'"), false, false),
        (format!("# quota. cluster. gang. GangPolicy\n{}", rule("gpu.whole < 9")), false, false),
        (rule("[1].all(cluster, cluster == 1)"), false, false),
        (rule("gang.known"), true, false),
        (rule("cluster.known"), false, true),
        (rule("queue.name == ''"), true, true),
        (
            policy(
                "  variables: [{name: q, expression: quota}]\n  validations: [{expression: 'variables.q.gpusAfter < 9'}]\n",
            ),
            true,
            true,
        ),
        (
            policy(
                "  matchConditions: [{name: a, expression: gang.named}]\n  validations: [{expression: 'true'}]\n",
            ),
            true,
            false,
        ),
        (
            policy(
                "  validations: [{expression: 'false', messageExpression: 'string(cluster.cards)'}]\n  auditAnnotations: [{key: a, valueExpression: gang.name}]\n",
            ),
            true,
            true,
        ),
        (mutating, false, true),
        (ours("{pod: {gpus: 8}}"), true, false),
        (ours("{namespace: {gpus: 8}}"), true, true),
    ] {
        let loaded =
            load(&[file("a.yaml", &text), file("a.test.yaml", "# quota. cluster. gang. GangPolicy")]);
        let set = loaded.set.unwrap_or_else(|| panic!("{text}\n{:?}", loaded.problems));
        assert_eq!(set.data_dependencies(), DataDependencies { gangs, capacity }, "{text}");
    }
}

#[test]
fn problems_are_rendered_as_text_github_annotations_and_sarif() {
    let problem = |line, column, suggestion: Option<&str>| Problem {
        severity: Severity::Error,
        file: "dir/a b.yaml".to_owned(),
        line,
        column,
        length: 3,
        message: "no: 50%".to_owned(),
        suggestion: suggestion.map(str::to_owned),
        about: Some("Pod \"x\"".to_owned()),
    };
    let files = [file("dir/a b.yaml", "one\n\tä bad = 1\r\n")];
    let plain = |problems: &[Problem]| without_colours(&render_problems(problems, &files));
    assert_eq!(
        plain(&[problem(2, 4, Some("good")), problem(0, 0, None)]),
        "error: no: 50% (Pod \"x\")\n  --> dir/a b.yaml:2:4\n2 |     ä bad = 1\n  |       ^^^ did you mean \"good\"?\n\n\
         error: no: 50% (Pod \"x\")\n  --> dir/a b.yaml\n"
    );
    assert_eq!(
        problems_as_github_annotations(&[problem(2, 4, Some("good"))]),
        "::error file=dir/a b.yaml,line=2,col=4,endColumn=7::Pod \"x\": no: 50%25, did you mean \"good\"?\n"
    );
    let shown = problems_as_sarif(&[problem(2, 4, None)]);
    let location = &shown["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "dir/a%20b.yaml");
    assert_eq!(location["region"], json!({ "startLine": 2, "startColumn": 4, "endColumn": 7 }));
    let long = [file("dir/a b.yaml", format!("{}bad{}", "x".repeat(500), "y".repeat(500)))];
    let shown = without_colours(&render_problems(&[problem(1, 501, None)], &long));
    let lines: Vec<&str> = shown.lines().collect();
    let caret = lines[3].find('^').expect("a caret");
    assert_eq!(lines[2].chars().skip(caret).take(3).collect::<String>(), "bad");
    assert!(lines[2].chars().count() < 180);
}

/// Removes colour codes.
fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

#[test]
fn no_input_makes_the_loader_panic() {
    let seeds = [
        policy("  validations: [{expression: 'true'}]\n"),
        "a: &a [*a]\n---\n{".to_owned(),
        "\u{feff}".to_owned(),
    ];
    for seed in seeds {
        for cut in 0..seed.len() {
            fuzz_load(&seed.as_bytes()[..cut]);
        }
    }
}
