//! Output of test results as JUnit XML.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;

use super::CaseResult;

/// Prints the document: one suite per file.
pub(super) fn print(ran: &[CaseResult]) -> Result<()> {
    writeln!(anstream::stdout().lock(), "{}", document(ran))?;
    Ok(())
}

fn document(ran: &[CaseResult]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ =
        writeln!(xml, "<testsuites name=\"portcullis test\" {}>", counts(&ran.iter().collect::<Vec<_>>()));
    let mut rest = ran;
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|case| case.file == first.file).count();
        let (suite, others) = rest.split_at(length);
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" {}>",
            escaped(&first.file),
            counts(&suite.iter().collect::<Vec<_>>())
        );
        for case in suite {
            write_case(&mut xml, case);
        }
        xml.push_str("  </testsuite>\n");
        rest = others;
    }
    xml.push_str("</testsuites>");
    xml
}

fn counts(cases: &[&CaseResult]) -> String {
    let errors = cases.iter().filter(|case| case.result.is_err()).count();
    let failures = cases.iter().filter(|case| !case.holds()).count() - errors;
    let seconds: f64 = cases.iter().map(|case| case.took.as_secs_f64()).sum();
    format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.6}\"", cases.len())
}

fn write_case(xml: &mut String, case: &CaseResult) {
    let (name, file) = (escaped(&case.name), escaped(&case.file));
    let head = format!(
        "    <testcase name=\"{name}\" classname=\"{file}\" file=\"{file}\" line=\"{}\" time=\"{:.6}\"",
        case.line,
        case.took.as_secs_f64()
    );
    let (element, message, text) = match &case.result {
        Ok(report) if report.mismatches.is_empty() => {
            xml.push_str(&head);
            xml.push_str("/>\n");
            return;
        }
        Ok(report) => {
            let lines = report
                .mismatches
                .iter()
                .map(|m| format!("{}: expected {}\n  got {}", m.what, m.expected, m.got));
            let first = report.mismatches.first().map(|m| m.what.clone()).unwrap_or_default();
            ("failure", format!("{first} is not as expected"), lines.collect::<Vec<_>>().join("\n"))
        }
        Err(why) => ("error", "it could not be run".to_owned(), why.clone()),
    };
    let _ = writeln!(xml, "{head}>");
    let _ =
        writeln!(xml, "      <{element} message=\"{}\">{}</{element}>", escaped(&message), escaped(&text));
    xml.push_str("    </testcase>\n");
}

/// Escapes text for XML. Characters that XML forbids become question marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('?');
            }
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        let case = |name: &str| CaseResult {
            file: "a&b.test.yaml".to_owned(),
            line: 3,
            name: name.to_owned(),
            result: Err("<no> \"such\"\u{1b} file".to_owned()),
            took: Duration::from_millis(2),
        };
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <testsuites name=\"portcullis test\" tests=\"1\" failures=\"0\" errors=\"1\" time=\"0.002000\">\n  \
            <testsuite name=\"a&amp;b.test.yaml\" tests=\"1\" failures=\"0\" errors=\"1\" time=\"0.002000\">\n    \
            <testcase name=\"1 &lt; 2\" classname=\"a&amp;b.test.yaml\" file=\"a&amp;b.test.yaml\" line=\"3\" time=\"0.002000\">\n      \
            <error message=\"it could not be run\">&lt;no&gt; &quot;such&quot;? file</error>\n    \
            </testcase>\n  </testsuite>\n</testsuites>";
        assert_eq!(document(&[case("1 < 2")]), expected);
    }
}
