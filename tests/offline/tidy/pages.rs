//! Markdown pages: line width, length, links and paths of existing files. Comments in Rust keep to the width
//! of the code.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::{complain_except, pages, root, sources, text};

/// Columns of a line of prose.
const MAX_PROSE_COLUMNS: usize = 100;
/// Columns of a line in a table. Code blocks hold commands and output, which are never wrapped.
const MAX_TABLE_COLUMNS: usize = 110;
/// Columns of a table that a program writes from recorded messages.
const MAX_RECORDED_TABLE_COLUMNS: usize = 200;
/// Columns of a comment in Rust; `.rustfmt.toml` sets the same for code.
const MAX_COMMENT_COLUMNS: usize = 110;
/// Lines of the pages that a newcomer reads first.
const MAX_PAGE_LINES: &[(&str, usize)] = &[("README.md", 180), ("src/ARCHITECTURE.md", 200)];

/// The part of a page that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Prose,
    Table,
    Code,
}

/// The lines of a page with their numbers, from 1.
fn lines(page: &str) -> impl Iterator<Item = (usize, &str, LineKind)> {
    let mut fenced = false;
    page.lines().enumerate().map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        let kind = match fence || fenced {
            true => LineKind::Code,
            false if line.trim_start().starts_with('|') => LineKind::Table,
            false => LineKind::Prose,
        };
        fenced ^= fence;
        (index + 1, line, kind)
    })
}

#[test]
fn markdown_is_wrapped() {
    let mut problems = Vec::new();
    for name in pages() {
        for (number, line, kind) in lines(&text(&name)) {
            let limit = match kind {
                LineKind::Prose => MAX_PROSE_COLUMNS,
                LineKind::Table if name.starts_with("tests/data/") => MAX_RECORDED_TABLE_COLUMNS,
                LineKind::Table => MAX_TABLE_COLUMNS,
                LineKind::Code => continue,
            };
            let columns = line.chars().count();
            // A link or a path that is longer than a line cannot be wrapped.
            let breaks = line.trim().contains(' ');
            if columns > limit && breaks {
                let problem = format!("{name}:{number}: {columns} columns, more than {limit}");
                problems.push((name.clone(), problem));
            }
        }
    }
    complain_except("width", &problems);
}

#[test]
fn comments_are_as_wide_as_code() {
    let mut problems = Vec::new();
    for name in sources() {
        for (index, line) in text(&name).lines().enumerate() {
            let columns = line.chars().count();
            if columns > MAX_COMMENT_COLUMNS && line.trim_start().starts_with("//") {
                let problem =
                    format!("{name}:{}: {columns} columns, more than {MAX_COMMENT_COLUMNS}", index + 1);
                problems.push((name.clone(), problem));
            }
        }
    }
    complain_except("comment-width", &problems);
}

#[test]
fn first_pages_are_short() {
    let problems = MAX_PAGE_LINES.iter().filter_map(|(name, limit)| {
        let lines = text(name).lines().count();
        (lines > *limit).then(|| ((*name).to_owned(), format!("{name}: {lines} lines, more than {limit}")))
    });
    complain_except("length", &problems.collect::<Vec<_>>());
}

/// The targets of the inline links of a line: `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// The anchors of a page: its headings, as GitHub writes them.
fn anchors(page: &str) -> BTreeSet<String> {
    lines(page)
        .filter(|(_, line, kind)| *kind == LineKind::Prose && line.starts_with('#'))
        .map(|(_, line, _)| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut problems = Vec::new();
    for name in pages() {
        let page = text(&name);
        let directory = root().join(Path::new(&name).parent().expect("a file lies in a directory"));
        for (number, line, kind) in lines(&page) {
            for target in links(line).filter(|_| kind != LineKind::Code) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() { root().join(&name) } else { directory.join(file) };
                let problem = if !path.exists() {
                    format!("{name}:{number}: {target}: there is no such file")
                } else if !anchor.is_empty()
                    && !anchors(&std::fs::read_to_string(&path).unwrap_or_default()).contains(anchor)
                {
                    format!("{name}:{number}: {target}: the page has no such heading")
                } else {
                    continue;
                };
                problems.push((name.clone(), problem));
            }
        }
    }
    complain_except("link", &problems);
}

/// Directories whose paths pages and comments name from the root of the repository.
const NAMED_DIRECTORIES: &[&str] =
    &["src/", "tests/", "manifests/", "policies/", "certs/", "fuzz/", ".ci/", ".github/"];

/// Parts of paths that stand for any name.
const PLACEHOLDERS: &[&str] = &["NAME", "TABLE"];

/// The words in backquotes of a line that are paths of this repository, or names of Rust files.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |word: &&str| {
        let characters = |c: char| c.is_alphanumeric() || "/._-".contains(c);
        let placeholder = PLACEHOLDERS.iter().any(|placeholder| word.contains(placeholder));
        let root = NAMED_DIRECTORIES.iter().any(|start| word.starts_with(start));
        word.chars().all(characters) && (root || word.ends_with(".rs")) && !placeholder
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

/// Whether git ignores a path: a program creates it, and a fresh checkout does not have it.
fn is_ignored(path: &str) -> bool {
    let inside = |ignored: &str| {
        path.strip_prefix(ignored).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    text(".gitignore").lines().filter_map(|line| line.strip_prefix('/')).any(inside)
}

/// Whether a path exists from the root, from the directory of the naming file, or as the end of a source
/// path, or is ignored by git.
fn is_found(path: &str, directory: &Path, sources: &[String]) -> bool {
    let end = format!("/{path}");
    is_ignored(path)
        || root().join(path).exists()
        || directory.join(path).exists()
        || sources.iter().any(|source| source.ends_with(&end))
}

#[test]
fn named_paths_exist() {
    let sources = sources();
    let mut problems = Vec::new();
    for name in pages().into_iter().chain(sources.clone()) {
        let directory = root().join(Path::new(&name).parent().expect("a file lies in a directory"));
        let is_source = name.ends_with(".rs");
        for (index, line) in text(&name).lines().enumerate() {
            if is_source && !line.trim_start().starts_with("//") {
                continue;
            }
            for path in named_paths(line).filter(|path| !is_found(path, &directory, &sources)) {
                problems.push((name.clone(), format!("{name}:{}: there is no {path}", index + 1)));
            }
        }
    }
    complain_except("path", &problems);
}

#[test]
fn paths_in_backquotes_are_found() {
    let found: Vec<&str> =
        named_paths("`src/a.rs`, `b.rs` and `kube-system`: see `tests/x/NAME.yaml`, `a b.rs`, src/c")
            .collect();
    assert_eq!(found, ["src/a.rs", "b.rs"]);
    assert!(is_ignored("certs/local") && is_ignored("target/dist/portcullis"));
    assert!(!is_ignored("certs/README.md") && !is_ignored("certs/locals"));
}

#[test]
fn headings_become_anchors_and_links_are_found() {
    let page = "# What it is\n```sh\n# not a heading\n```\n## `serve`: options, and why\n";
    let expected = ["serve-options-and-why", "what-it-is"];
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expected);
    let kinds: Vec<LineKind> = lines("a\n| b |\n```\n| c |\n```").map(|(_, _, kind)| kind).collect();
    assert_eq!(kinds[..3], [LineKind::Prose, LineKind::Table, LineKind::Code]);
    assert!(kinds[3..].iter().all(|kind| *kind == LineKind::Code), "{kinds:?}");
    let found: Vec<&str> = links("see [a](b.md#c) and [d](https://e/f), not (g)").collect();
    assert_eq!(found, ["b.md#c", "https://e/f"]);
}
