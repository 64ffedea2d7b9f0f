//! Files as people write them: what is said of each mistake, where, and that one hides no other.

use super::*;

fn file(name: &str, text: &str) -> SourceFile {
    SourceFile { name: name.to_owned(), bytes: text.as_bytes().to_owned() }
}

fn told(loaded: &Loaded) -> Vec<String> {
    loaded
        .problems
        .iter()
        .map(|problem| format!("{} {}", show::word(problem.severity), problem.one_line()))
        .collect()
}

#[test]
fn print() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/policies");
    for directory in ["good", "bad"] {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            files.push(SourceFile {
                name: format!("policies/{}", path.file_name().unwrap().to_string_lossy()),
                bytes: std::fs::read(&path).unwrap(),
            });
        }
        let loaded = load(&files);
        println!("{}", anstream_strip(&render(&loaded.problems, &files)));
        println!("{:?} {:?}", loaded.counts, loaded.set.as_ref().map(|set| set.hash().to_owned()));
        let _ = told(&loaded);
        let _ = file("", "");
    }
}

fn anstream_strip(text: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for c in text.chars() {
        match c {
            '\u{1b}' => inside = true,
            'm' if inside => inside = false,
            c if !inside => plain.push(c),
            _ => {}
        }
    }
    plain
}
