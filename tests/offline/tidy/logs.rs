//! Log lines: the message is a constant that grep finds, and fields hold the data.

use super::files::{complain_except, is_test, sources, text};

/// Macros of `tracing` that write an event.
const LEVELS: &[&str] = &["trace!(", "debug!(", "info!(", "warn!(", "error!("];

/// The arguments of every call of a log macro, with the line of the call.
fn calls(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for level in LEVELS {
        let start = format!("tracing::{level}");
        for (at, _) in source.match_indices(&start) {
            let arguments = &source[at + start.len()..];
            let (mut depth, mut quoted, mut escaped) = (1_u32, false, false);
            let end = arguments.find(|c: char| {
                match c {
                    _ if escaped => escaped = false,
                    '\\' => escaped = true,
                    '"' => quoted = !quoted,
                    '(' if !quoted => depth += 1,
                    ')' if !quoted => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            let line = source[..at].matches('\n').count() + 1;
            found.push((line, &arguments[..end.unwrap_or(arguments.len())]));
        }
    }
    found.sort_unstable();
    found
}

/// What is wrong with the arguments of a log macro.
fn problem(arguments: &str) -> Option<&'static str> {
    let last = arguments.trim_end().trim_end_matches(',').trim_end();
    let message = last.strip_suffix('"').map(|rest| rest.rsplit_once("\"").map_or(rest, |(_, text)| text));
    let is_message_field = |field: &str| {
        let name = field.trim().trim_start_matches(['%', '?']);
        name == "message" || name.split_once('=').is_some_and(|(name, _)| name.trim() == "message")
    };
    match message {
        None => Some("the last argument is not the message: write the message as a constant, data as fields"),
        Some(text) if text.contains(['{', '}']) => Some("the message has a placeholder: use a field"),
        // `tracing` names the message itself `message`: a JSON line would have the key twice.
        Some(_) if arguments.split(',').any(is_message_field) => {
            Some("a field has the name `message`, which is that of the message: use `problem` or `detail`")
        }
        Some(_) => None,
    }
}

#[test]
fn log_messages_are_constant_and_data_is_in_fields() {
    let mut problems = Vec::new();
    for name in sources().into_iter().filter(|name| !is_test(name)) {
        for (line, arguments) in calls(&text(&name)) {
            if let Some(problem) = problem(arguments) {
                problems.push((name.clone(), format!("{name}:{line}: {problem}")));
            }
        }
    }
    complain_except("log", &problems);
}

#[test]
fn log_calls_are_found_and_checked() {
    let source = "fn f() {\n    tracing::info!(a = g(1), \"a (b) started\");\n    tracing::warn!(\n        %b,\n        \"c\",\n    );\n}\n";
    assert_eq!(calls(source).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3]);
    assert!(calls(source).iter().all(|(_, arguments)| problem(arguments).is_none()));
    for wrong in
        ["a, \"{}\", b", "a, \"b {a}\"", "message, \"b\"", "%message, \"b\"", "message = a.b(), \"b\""]
    {
        assert!(problem(wrong).is_some(), "{wrong}");
    }
}
