//! Values and positions of documents, as files write them.

use serde_json::json;

use super::*;

fn only(text: &str) -> Node {
    let (mut documents, issues) = read(text, false);
    assert_eq!((documents.len(), &issues[..]), (1, &[][..]), "{text}");
    documents.remove(0)
}

#[test]
fn documents_have_the_values_that_kubernetes_reads() {
    for (text, expected) in [
        ("a: 1\nb: [x, 'y', \"z\\n\"]\n", json!({"a": 1, "b": ["x", "y", "z\n"]})),
        ("a: yes\nb: 'yes'\nc: !!str yes\n", json!({"a": true, "b": "yes", "c": "yes"})),
        ("a: |\n  one\n  two\nb: >-\n  one\n  two\n", json!({"a": "one\ntwo\n", "b": "one two"})),
        (
            "a: &x {k: 1}\nb: *x\nc: {<<: *x, l: 2}\n",
            json!({"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}}),
        ),
        ("a: {k: 1}\nb: {k: 3, <<: {k: 2, m: 4}}\n", json!({"a": {"k": 1}, "b": {"k": 3, "m": 4}})),
        ("1: a\n2.5: b\n", json!({"1": "a", "2.5": "b"})),
        ("a:\n- b\n-\n", json!({"a": ["b", null]})),
        ("# only\n---\na: 1\n...\n", json!({"a": 1})),
        ("a: 1\r\nb: |\r\n  c\r\n", json!({"a": 1, "b": "c\n"})),
    ] {
        assert_eq!(only(text).json(), expected, "{text}");
    }
    let (documents, issues) = read("{\n\t\"a\":1,\t\"b\": \"\\u00e4\\/\"}", true);
    assert_eq!((documents[0].json(), issues), (json!({"a": 1, "b": "ä/"}), Vec::new()));
}

#[test]
fn problems_have_a_position_and_the_rest_of_the_file_is_read() {
    for (text, place, message) in [
        ("a: 1\nb: 2\na: 3\n", "a", "duplicate key \"a\""),
        ("a: .inf\n", ".inf", ".inf is a number that JSON does not have: quote it to get a string"),
        ("a: *x\n", "*x", "no anchor &x before this alias"),
        ("a: &x [*x]\n", "*x", "this alias refers to a value that contains it"),
        ("a: !foo b\n", "b", "Kubernetes does not know this tag: remove it"),
        ("? [a]\n: 1\n", "[a]", "a key must be a string"),
        ("yes: 1\n", "yes", "this key is read as the boolean true: quote it to get a string"),
        ("a: {<<: 1}\n", "<<", "<< needs a mapping or a list of mappings"),
    ] {
        let (_, issues) = read(text, false);
        assert_eq!(issues.len(), 1, "{text}: {issues:?}");
        assert_eq!(issues[0].message, message, "{text}");
        assert!(text[issues[0].span.clone()].starts_with(place), "{text}: {issues:?}");
    }
    let (documents, issues) = read("a: 1\n---\nb: [\n---\nc: 3\n", false);
    assert_eq!(documents.iter().map(Node::json).collect::<Vec<_>>(), [json!({"a": 1}), json!({"c": 3})]);
    assert_eq!(issues.len(), 1, "{issues:?}");
}

#[test]
fn alias_expansion_and_nesting_are_bounded() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let inner = level - 1;
        bomb.push_str(&format!(
            "a{level}: &a{level} [*a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}]\n"
        ));
    }
    let (_, issues) = read(&bomb, false);
    assert!(issues.iter().any(|issue| issue.message.contains("too large")), "{issues:?}");
    let many: String = (0..90_000).map(|index| format!("k{index}: 1\n")).collect();
    let (documents, issues) = read(&many, false);
    assert!(issues.is_empty() && documents.len() == 1, "many keys are allowed: {issues:?}");
    let (_, issues) = read(&"[".repeat(5_000), false);
    assert!(!issues.is_empty());
    let (_, issues) = read(&"- ".repeat(5_000), false);
    assert!(!issues.is_empty());
}

/// One string in every scalar style; `^` marks the expected position.
#[test]
fn a_position_in_a_string_is_found_in_the_file() {
    for (source, text, within) in [
        ("e: a.b.^cc == 1\n", "a.b.cc == 1", "cc"),
        ("e: |\n    a &&\n      ^bad\n", "a &&\n  bad\n", "bad"),
        ("e: |-\n  a &&\n\n  ^bad", "a &&\n\nbad", "bad"),
        ("e: |2\n    a\n  ^b\n", "  a\nb\n", "b"),
        ("e: >-\n  a &&\n  ^bad ||\n  c\n", "a && bad || c", "bad"),
        ("e: >+ # why\n  a\n\n  ^b\n\n", "a\nb\n\n", "b"),
        ("e: 'it''s ^here'\n", "it's here", "here"),
        ("e: 'a\n  ^b'\n", "a b", "b"),
        (r#"e: "a\n\t^bad \"x\"""#, "a\n\tbad \"x\"", "bad"),
        (r#"e: "\u0061\x62 \uD834\uDD1E^ok""#, "ab \u{1D11E}ok", "ok"),
        ("e: \"a \\\n  ^b\"\n", "a b", "b"),
        ("e: a\n  ^b\n", "a b", "b"),
        ("e: |\r\n  a\r\n  ^b\r\n", "a\nb\n", "b"),
        ("e: |\n  ä ü\n  ^ö\n", "ä ü\nö\n", "ö"),
        ("- e: |\n   a\n# comment\n", "a\n", "a"),
    ] {
        let wanted = source.find('^').unwrap_or_else(|| source.find('a').expect("an a"));
        let source = source.replace('^', "");
        let document = only(&source);
        let (node, _, reached) =
            if source.starts_with('-') { document.at("/0/e") } else { document.at("/e") };
        let Content::Scalar { value, style } = &node.content else { panic!("{source}") };
        assert!(reached);
        assert_eq!(value.as_str(), Some(text), "{source}");
        let from = text.find(within).expect("the text holds it");
        let found =
            locate(&source[node.span.clone()], node.span.start, *style, text, from..from + within.len());
        assert_eq!(found, wanted..wanted + within.len(), "{source:?}: {:?}", &source[node.span.clone()]);
    }
}

#[test]
fn a_pointer_finds_value_and_key() {
    let text = "spec:\n  rules:\n  - a/b: 1\n    c: 2\n";
    let document = only(text);
    for (pointer, value, key, reached) in [
        ("/spec/rules/0/a~1b", "1", Some("a/b"), true),
        ("/spec/rules/0/c", "2", Some("c"), true),
        ("/spec/rules/0", "a/b", None, true),
        ("/spec/rules/0/d", "a/b", None, false),
        ("/spec/absent/more", "rules", Some("spec"), false),
        ("", "spec", None, true),
    ] {
        let (node, found, was_reached) = document.at(pointer);
        assert!(text[node.span.clone()].starts_with(value), "{pointer}: {:?}", &text[node.span.clone()]);
        assert_eq!((found.map(|span| &text[span]), was_reached), (key, reached), "{pointer}");
    }
}
