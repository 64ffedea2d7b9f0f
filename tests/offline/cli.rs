//! The command line: exit codes, what goes to stdout, and help texts.

use std::path::Path;
use std::process::Command;

struct Run {
    stdout: String,
    stderr: String,
    code: Option<i32>,
}

fn run(arguments: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .env_remove("CLICOLOR_FORCE")
        .output()
        .expect("the binary was built for this test");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    Run { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
}

#[test]
fn the_demo_succeeds_and_prints_every_act() {
    let run = run(&["demo", "--fast"]);
    assert_eq!(run.code, Some(0), "{}\n{}", run.stdout, run.stderr);
    assert_eq!(run.stderr, "", "no message on stderr");
    for part in [
        "Act 1",
        "cannot request both GPU and GPU memory",
        "Warning: pod-group-name was missing",
        "SchedulingGated",
        "20000/32768 MiB",
        "reviews answered over HTTPS",
        "no-latest-images, spec.validations[0]",
        "every expectation held",
    ] {
        assert!(run.stdout.contains(part), "{part:?} is missing in\n{}", run.stdout);
    }
    assert!(!run.stdout.contains('\u{1b}'), "a pipe gets plain text");
}

#[test]
fn simulate_runs_every_scenario_and_reports_failed_expectations() {
    let entries = std::fs::read_dir("tests/scenarios").expect("it is committed");
    for entry in entries {
        let file = entry.expect("a readable directory").path().display().to_string();
        let good = run(&["simulate", &file]);
        assert_eq!(good.code, Some(0), "{file}\n{}\n{}", good.stdout, good.stderr);
        assert!(good.stdout.contains("no invariant was violated"), "{file}\n{}", good.stdout);
    }

    let text = std::fs::read_to_string("tests/scenarios/demo-three-nodes.yaml").expect("it is committed");
    let untrue = text.replace("bound: 3", "bound: 2");
    assert_ne!(text, untrue);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("untrue.yaml");
    std::fs::write(&file, untrue).expect("the directory is writable");
    let name = file.display().to_string();
    let bad = run(&["simulate", &name]);
    assert_eq!(bad.code, Some(1), "a failed expectation exits with 1\n{}", bad.stdout);
    assert!(
        bad.stdout.contains(&format!("{name}:")) && bad.stdout.contains("got: it has 3"),
        "{}",
        bad.stdout
    );
}

#[test]
fn simulate_json_prints_one_object_per_step() {
    let run = run(&["simulate", "tests/scenarios/demo-three-nodes.yaml", "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let steps: Vec<serde_json::Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0]["good"], true);
    assert_eq!(steps[0]["nodes"][0]["cards"][0]["usedMib"], 8000);
}

#[test]
fn an_invalid_scenario_is_reported_with_its_line() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("typo.yaml");
    std::fs::write(&file, "name: x\nsteps:\n- aply: y\n").expect("the directory is writable");
    let run = run(&["simulate", &file.display().to_string()]);
    assert_eq!(run.code, Some(2), "{}", run.stdout);
    assert!(run.stderr.contains("typo.yaml:3") && run.stderr.contains("aply"), "{}", run.stderr);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (first, second) =
        (run(&["simulate", "--seed", "3", "--json"]), run(&["simulate", "--seed", "3", "--json"]));
    assert!(!first.stdout.is_empty());
    assert!(first.stdout == second.stdout, "the same seed gave two different runs");
}

#[test]
fn every_command_has_examples_and_exit_codes_in_its_help() {
    for command in ["demo", "simulate", "review", "serve", "check", "eval", "test"] {
        let run = run(&[command, "--help"]);
        assert_eq!(run.code, Some(0));
        assert!(
            run.stdout.contains("Examples:") && run.stdout.contains("Exit codes"),
            "{command}:\n{}",
            run.stdout
        );
    }
    let nothing = run(&[]);
    assert_eq!(nothing.code, Some(2), "a command is required");
    assert!(nothing.stderr.contains("portcullis demo"), "the message names a command\n{}", nothing.stderr);
}

#[test]
fn policy_tests_report_their_result_by_exit_code() {
    let directory = empty_directory("cases");
    let write =
        |name: &str, text: &str| std::fs::write(directory.join(name), text).expect("it can be written");
    let policy = |field: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: GangPolicy\nmetadata: {{name: small}}\nspec: {{limits: {{pod: {{{field}: 1}}}}}}\n"
        )
    };
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a, resources: {limits: {nvidia.com/gpu: 2}}}]}}";
    let cases = |expect: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmetadata: {{name: small}}\ncases:\n- {{name: two are too many, object: {pod}, expect: {expect}}}\n"
        )
    };
    let at = directory.display().to_string();
    let check = |arguments: &[&str], code: i32, said: &str| {
        let run = run(&[&["test", &at], arguments].concat());
        assert_eq!(run.code, Some(code), "{arguments:?}: {} {}", run.stdout, run.stderr);
        assert!(
            format!("{}{}", run.stdout, run.stderr).contains(said),
            "{arguments:?}: {} {}",
            run.stdout,
            run.stderr
        );
    };
    check(&[], 3, "there are no cases");
    write("small.yaml", &policy("gpus"));
    write("small.test.yaml", &cases("denied"));
    check(&[], 0, "1 case in 1 file: all passed");
    check(&["-o", "junit"], 0, "tests=\"1\" failures=\"0\"");
    check(&["--run", "none of them"], 3, "no case matches --run");
    check(&["--run", "("], 3, "is not a regular expression");
    check(&["--colour"], 3, "unexpected argument");
    write("small.test.yaml", &cases("allowed"));
    check(&[], 1, "- allowed\n          + denied: ");
    check(&["-o", "json"], 1, "\"failed\": 1");
    write("small.yaml", &policy("gpu"));
    check(&[], 2, "did you mean \"gpus\"?");
    write("small.yaml", &policy("gpus"));
    write("small.test.yaml", &cases("{verdct: denied}"));
    check(&[], 2, "did you mean \"verdict\"?");
    std::fs::remove_dir_all(&directory).expect("it was just made");
}

#[test]
fn policy_commands_use_different_exit_codes_for_bad_arguments_and_bad_policies() {
    for command in ["check", "eval", "policy", "replay", "test"] {
        let help = run(&[command, "--help"]).stdout;
        assert!(help.contains("Exit codes:") && help.contains("  3  bad arguments"), "{command}:\n{help}");
        for arguments in [&[command][..], &[command, "--bogus"], &["--color", "always", command, "--bogus"]] {
            let run = run(arguments);
            assert_eq!(run.code, Some(3), "{arguments:?}: {}", run.stderr);
        }
    }
    for arguments in [
        &["review", "--bogus"][..],
        &["--color", "always", "review", "--bogus"],
        &["review", "check", "--bogus"],
        &["--bogus"],
        &["no-such-command"],
    ] {
        let run = run(arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
#[cfg(unix)]
fn arguments_that_are_not_utf8_are_bad_arguments() {
    use std::os::unix::ffi::OsStrExt;
    let no_text = std::ffi::OsStr::from_bytes(b"\xff");
    for (before, after, code) in [("version", "--json", 2), ("test", "--bogus", 3), ("eval", "--bogus", 3)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        let output =
            command.arg(before).arg(no_text).arg(after).output().expect("it was built for this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{before}: {said}");
        assert!(said.starts_with("error: "), "{before}: {said}");
    }
}

/// A new empty directory for a test.
fn empty_directory(name: &str) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("portcullis-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("it can be made");
    directory
}

#[test]
fn the_version_is_printed_as_text_and_as_json() {
    assert!(run(&["version"]).stdout.contains(env!("CARGO_PKG_VERSION")));
    let json: serde_json::Value =
        serde_json::from_str(&run(&["version", "--json"]).stdout).expect("it is JSON");
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn serve_without_a_mode_is_an_error() {
    let run = run(&["serve"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("--standalone"), "{}", run.stderr);
}
