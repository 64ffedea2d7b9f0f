//! Output of `review`: text, JSON, patched objects or patches.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};

use super::super::styles::{self, styled};
use super::{ItemReview, ManifestFile, ReviewCause, ReviewResult, place, title};

/// Prints one paragraph per object, then a summary.
pub(super) fn table(sources: &[ManifestFile], reviewed: &[ItemReview]) -> Result<()> {
    let mut out = anstream::stdout().lock();
    for one in reviewed {
        let source = &sources[one.source];
        match &one.result {
            ReviewResult::Rejected(causes) => refusal(&mut out, source, one, causes)?,
            ReviewResult::Unreadable(causes) => unreadable(&mut out, source, one, causes)?,
            ReviewResult::Allowed(allowed) => {
                let mark = styled(styles::GOOD, "ok");
                let place = styled(styles::FAINT, place(source, one.line));
                let what = match (allowed.ours, allowed.changes.is_empty()) {
                    (false, true) => "allowed unchanged: it belongs to no gang and shares no GPU",
                    (_, true) => "allowed unchanged",
                    (_, false) => "allowed with these changes:",
                };
                writeln!(out, "{mark} {} {place}\n   {what}", title(one))?;
                for change in &allowed.changes {
                    writeln!(out, "   + {change}")?;
                }
            }
            ReviewResult::Group(facts) => {
                let place = styled(styles::FAINT, place(source, one.line));
                let mut more = facts.more.join(", ");
                if !more.is_empty() {
                    more.insert_str(0, ", ");
                }
                writeln!(out, "{} {} {place}", styled(styles::GOOD, "ok"), title(one))?;
                writeln!(out, "   a gang: no pod starts until {} fit together{more}", facts.needs)?;
            }
            ReviewResult::NotReviewed(why) => {
                writeln!(out, "-- {} {}", title(one), styled(styles::FAINT, place(source, one.line)))?;
                writeln!(out, "   not reviewed: {} {why}", one.kind)?;
            }
        }
        for warning in &one.warnings {
            writeln!(out, "   {} {warning}", styled(styles::WARN, "Warning:"))?;
        }
        writeln!(out)?;
    }
    gangs(&mut out, reviewed)?;
    writeln!(out, "{}", summary(reviewed))?;
    Ok(())
}

/// Prints a denial like kubectl, with the position of each cause in the file.
fn refusal(
    out: &mut impl Write,
    source: &ManifestFile,
    one: &ItemReview,
    causes: &[ReviewCause],
) -> Result<()> {
    let head = match &one.template {
        Some(template) => format!("The pods of {} {:?} ({template}) are invalid:", one.kind, one.name),
        None => format!("The {} {:?} is invalid:", one.kind, one.name),
    };
    writeln!(out, "{}", styled(styles::BAD, head))?;
    list(out, source, causes)
}

fn unreadable(
    out: &mut impl Write,
    source: &ManifestFile,
    one: &ItemReview,
    causes: &[ReviewCause],
) -> Result<()> {
    let what = if one.kind.is_empty() { one.name.clone() } else { format!("{} {}", one.kind, one.name) };
    writeln!(out, "{} cannot read {what}:", styled(styles::BAD, "error:"))?;
    list(out, source, causes)
}

fn list(out: &mut impl Write, source: &ManifestFile, causes: &[ReviewCause]) -> Result<()> {
    for cause in causes {
        let field = if cause.field.is_empty() {
            String::new()
        } else {
            format!("{}: ", styled(styles::HEAD, &cause.field))
        };
        writeln!(out, "* {field}{}", cause.message)?;
        let text = cause.line.and_then(|line| source.line(line)).unwrap_or_default();
        let place = place(source, cause.line);
        writeln!(
            out,
            "  {}",
            styled(styles::FAINT, format!("{place} | {}", text.trim_end()).trim_end_matches([' ', '|']))
        )?;
        if let Some(rule) = &cause.rule {
            let place = rule.place.as_ref().map(|place| format!(", {place}")).unwrap_or_default();
            writeln!(out, "  {}", styled(styles::FAINT, format!("policy {}{place}", rule.policy)))?;
        }
    }
    Ok(())
}

/// Prints the gangs in the files, and whether they are complete.
fn gangs(out: &mut impl Write, reviewed: &[ItemReview]) -> Result<()> {
    let mut members: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
    let mut groups: BTreeMap<&str, u32> = BTreeMap::new();
    for one in reviewed {
        match &one.result {
            ReviewResult::Allowed(allowed) => {
                if let Some(gang) = &allowed.gang {
                    let (count, templates) = members.entry(gang).or_default();
                    *count += 1;
                    *templates |= one.template.is_some();
                }
            }
            ReviewResult::Group(facts) => {
                groups.insert(&facts.gang, facts.min_member);
            }
            _ => {}
        }
    }
    for (gang, (count, templates)) in members {
        let what = match (templates, count) {
            (false, 1) => "pod is allowed",
            (false, _) => "pods are allowed",
            (true, 1) => "pod template is allowed",
            (true, _) => "pods and pod templates are allowed",
        };
        let needed = match groups.get(gang) {
            None => "its group object is not in these files".to_owned(),
            Some(needed) if templates => format!("it needs {needed} pods"),
            Some(needed) if count < *needed => {
                format!("it needs {needed}, so no pod starts until {} more are created", needed - count)
            }
            Some(needed) => format!("it needs {needed}: complete"),
        };
        writeln!(out, "gang {}: {count} {what}; {needed}", styled(styles::HEAD, gang))?;
    }
    Ok(())
}

fn summary(reviewed: &[ItemReview]) -> String {
    let mut counts = [("allowed", 0), ("rejected", 0), ("group", 0), ("not reviewed", 0), ("unreadable", 0)];
    for one in reviewed {
        counts[match one.result {
            ReviewResult::Allowed(_) => 0,
            ReviewResult::Rejected(_) => 1,
            ReviewResult::Group(_) => 2,
            ReviewResult::NotReviewed(_) => 3,
            ReviewResult::Unreadable(_) => 4,
        }]
        .1 += 1;
    }
    let parts: Vec<String> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| {
            let style = match word {
                "allowed" | "group" => styles::GOOD,
                "not reviewed" => styles::FAINT,
                _ => styles::BAD,
            };
            let plural = if word == "group" && count > 1 { "s" } else { "" };
            styled(style, format!("{count} {word}{plural}"))
        })
        .collect();
    parts.join(", ")
}

/// Prints a JSON array with one object per reviewed item.
pub(super) fn json(sources: &[ManifestFile], reviewed: &[ItemReview]) -> Result<()> {
    let all: Vec<Value> = reviewed.iter().map(|one| record(&sources[one.source], one)).collect();
    writeln!(anstream::stdout().lock(), "{}", serde_json::to_string_pretty(&all)?)?;
    Ok(())
}

fn record(source: &ManifestFile, one: &ItemReview) -> Value {
    let mut record = json!({
        "file": source.name, "line": one.line, "kind": one.kind, "namespace": one.namespace, "name": one.name,
        "warnings": one.warnings,
    });
    if let Some(template) = &one.template {
        record["template"] = json!(template);
    }
    let causes = |causes: &[ReviewCause]| -> Value {
        let one = |cause: &ReviewCause| {
            let mut one = json!({"field": cause.field, "message": cause.message, "line": cause.line});
            if let Some(rule) = &cause.rule {
                one["policy"] = json!(rule.policy);
                one["rule"] = json!(rule.place);
            }
            one
        };
        causes.iter().map(one).collect()
    };
    let (result, more) = match &one.result {
        ReviewResult::Allowed(allowed) => (
            if allowed.ours { "allowed" } else { "untouched" },
            json!({"gang": allowed.gang, "changes": allowed.changes, "patch": allowed.patch}),
        ),
        ReviewResult::Rejected(list) => ("rejected", json!({"causes": causes(list)})),
        ReviewResult::Unreadable(list) => ("unreadable", json!({"causes": causes(list)})),
        ReviewResult::Group(facts) => ("group", json!({"gang": facts.gang, "minMember": facts.min_member})),
        ReviewResult::NotReviewed(why) => ("notReviewed", json!({"why": why})),
    };
    record["result"] = json!(result);
    if let (Value::Object(record), Value::Object(more)) = (&mut record, more) {
        record.extend(more);
    }
    record
}

/// Prints the pods as the API server would store them. Denials go to stderr.
pub(super) fn objects(sources: &[ManifestFile], reviewed: &[ItemReview]) -> Result<()> {
    each(sources, reviewed, |allowed| Ok(serde_saphyr::to_string(&allowed.patched)?))
}

/// Prints the patches, each after a comment that names its object. Denials go to stderr.
pub(super) fn patches(sources: &[ManifestFile], reviewed: &[ItemReview]) -> Result<()> {
    each(sources, reviewed, |allowed| Ok(serde_json::to_string_pretty(&allowed.patch)?))
}

fn each(
    sources: &[ManifestFile],
    reviewed: &[ItemReview],
    text: impl Fn(&super::AllowedPod) -> Result<String>,
) -> Result<()> {
    let mut out = anstream::stdout().lock();
    let mut error = anstream::stderr().lock();
    let mut first = true;
    for one in reviewed {
        let source = &sources[one.source];
        match &one.result {
            ReviewResult::Allowed(allowed) => {
                if !first {
                    writeln!(out, "---")?;
                }
                first = false;
                let pods = one.template.as_ref().map(|t| format!(" ({t})")).unwrap_or_default();
                writeln!(out, "# {} {}{pods}, {}", one.kind, one.name, place(source, one.line))?;
                writeln!(out, "{}", text(allowed)?.trim_end())?;
            }
            ReviewResult::Rejected(causes) => refusal(&mut error, source, one, causes)?,
            ReviewResult::Unreadable(causes) => unreadable(&mut error, source, one, causes)?,
            ReviewResult::Group(_) | ReviewResult::NotReviewed(_) => {}
        }
        for warning in &one.warnings {
            writeln!(error, "{} {warning}", styled(styles::WARN, "Warning:"))?;
        }
    }
    Ok(())
}
