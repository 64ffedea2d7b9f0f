//! Documents as they are written in files: what they are worth, and where everything stands.

use serde_json::json;

use super::*;

fn only(text: &str) -> Node {
    let (mut documents, flaws) = read(text, false);
    assert_eq!((documents.len(), &flaws[..]), (1, &[][..]), "{text}");
    documents.remove(0)
}

#[test]
fn documents_are_worth_what_kubernetes_reads() {
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
    let (documents, flaws) = read("{\n\t\"a\":1,\t\"b\": \"\\u00e4\\/\"}", true);
    assert_eq!((documents[0].json(), flaws), (json!({"a": 1, "b": "ä/"}), Vec::new()));
}

#[test]
fn what_is_wrong_is_told_at_its_place_and_the_rest_is_read() {
    for (text, place, message) in [
        ("a: 1\nb: 2\na: 3\n", "a", "the key \"a\" is here twice"),
        ("a: .inf\n", ".inf", ".inf is a number that JSON does not have: put it in quotes if text is meant"),
        ("a: *x\n", "*x", "no anchor &x stands before this alias"),
        ("a: &x [*x]\n", "*x", "this alias stands inside of what it stands for"),
        ("a: !foo b\n", "b", "this tag means nothing in Kubernetes: leave it out"),
        ("? [a]\n: 1\n", "[a]", "a key must be text"),
        ("yes: 1\n", "yes", "this key is read as the boolean true: put it in quotes if text is meant"),
        ("a: {<<: 1}\n", "<<", "<< takes a mapping, or a list of them"),
    ] {
        let (_, flaws) = read(text, false);
        assert_eq!(flaws.len(), 1, "{text}: {flaws:?}");
        assert_eq!(flaws[0].message, message, "{text}");
        assert!(text[flaws[0].span.clone()].starts_with(place), "{text}: {flaws:?}");
    }
    let (documents, flaws) = read("a: 1\n---\nb: [\n---\nc: 3\n", false);
    assert_eq!(documents.iter().map(Node::json).collect::<Vec<_>>(), [json!({"a": 1}), json!({"c": 3})]);
    assert_eq!(flaws.len(), 1, "{flaws:?}");
}

#[test]
fn what_grows_without_bound_is_cut() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let inner = level - 1;
        bomb.push_str(&format!(
            "a{level}: &a{level} [*a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}, *a{inner}]\n"
        ));
    }
    let (_, flaws) = read(&bomb, false);
    assert!(flaws.iter().any(|flaw| flaw.message.contains("too large")), "{flaws:?}");
    let many: String = (0..90_000).map(|index| format!("k{index}: 1\n")).collect();
    let (documents, flaws) = read(&many, false);
    assert!(flaws.is_empty() && documents.len() == 1, "many keys are no matter: {flaws:?}");
    let (_, flaws) = read(&"[".repeat(5_000), false);
    assert!(!flaws.is_empty());
    let (_, flaws) = read(&"- ".repeat(5_000), false);
    assert!(!flaws.is_empty());
}

/// A text in each way of writing it, `^` before the place that is asked for.
#[test]
fn a_place_in_a_text_is_found_in_the_file() {
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
        let from = text.find(within).expect("it is there");
        let found =
            locate(&source[node.span.clone()], node.span.start, *style, text, from..from + within.len());
        assert_eq!(found, wanted..wanted + within.len(), "{source:?}: {:?}", &source[node.span.clone()]);
    }
}

#[test]
fn a_pointer_leads_to_value_and_key() {
    let text = "spec:\n  rules:\n  - a/b: 1\n    c: 2\n";
    let document = only(text);
    for (pointer, value, key, reached) in [
        ("/spec/rules/0/a~1b", "1", Some("a/b"), true),
        ("/spec/rules/0/c", "2", Some("c"), true),
        ("/spec/rules/0", "a/b", None, true),
        ("/spec/rules/0/d", "a/b", None, false),
        ("/spec/nothing/more", "rules", Some("spec"), false),
        ("", "spec", None, true),
    ] {
        let (node, found, was_reached) = document.at(pointer);
        assert!(text[node.span.clone()].starts_with(value), "{pointer}: {:?}", &text[node.span.clone()]);
        assert_eq!((found.map(|span| &text[span]), was_reached), (key, reached), "{pointer}");
    }
}
