//! Output of one scenario step: commands, the output of kubectl, pods, gangs, and a bar for each GPU card.
//!
//! `demo` and `simulate` share it. The scenario runner decides whether a step is good; this module prints the
//! result.

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use portcullis_core::engine::Phase;
use portcullis_sim::scenario::{CardUsage, GangLine, NodeUsage, PodLine, StepResult};
use serde_json::{Value, json};

use super::styles::{self, styled};

/// Maximum width of text lines.
pub(super) const TEXT_WIDTH_CHARS: usize = 100;
/// Width of the bar of a card.
const CARD_BAR_CHARS: u64 = 32;

/// Wraps text into lines of at most [`TEXT_WIDTH_CHARS`], each with `indent` before it.
pub(super) fn wrapped(text: &str, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        if line.len() > indent.len() && line.chars().count() + 1 + word.chars().count() > TEXT_WIDTH_CHARS {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.len() > indent.len() {
        lines.push(line);
    }
    lines
}

/// Prints the commands of a step and the output of kubectl.
pub(super) fn terminal(out: &mut impl Write, step: &StepResult) -> io::Result<()> {
    for command in &step.commands {
        writeln!(out, "  {}", styled(styles::COMMAND, format!("$ {command}")))?;
    }
    for line in &step.output {
        let style = if line.starts_with("Warning:") {
            styles::WARN
        } else if line.contains("is invalid") || line.starts_with("Error") {
            styles::BAD
        } else {
            anstyle::Style::new()
        };
        let mut first = true;
        for part in wrapped(line, "") {
            let indent = if first { "  " } else { "    " };
            first = false;
            writeln!(out, "{indent}{}", styled(style, part))?;
        }
    }
    Ok(())
}

/// Prints a table of pods.
pub(super) fn pods(out: &mut impl Write, pods: &[PodLine]) -> io::Result<()> {
    let mut table = plain_table(&["POD", "STATUS", "NODE", "CARDS"]);
    for pod in pods {
        let cards: Vec<String> = pod.cards.iter().map(ToString::to_string).collect();
        table.add_row([
            pod.key.to_string(),
            pod.status.to_owned(),
            pod.node.clone().unwrap_or_else(|| "-".to_owned()),
            if cards.is_empty() { "-".to_owned() } else { cards.join(",") },
        ]);
    }
    indented(out, &table)
}

/// Prints a table of gangs, and the full reason of each waiting gang.
pub(super) fn gangs(out: &mut impl Write, gangs: &[GangLine]) -> io::Result<()> {
    if gangs.is_empty() {
        return Ok(());
    }
    let mut table = plain_table(&["GANG", "PHASE", "MEMBERS", "BOUND", "NEEDS"]);
    for gang in gangs {
        let status = &gang.status;
        table.add_row([
            format!("{}/{}", gang.namespace, gang.name),
            status.phase.as_str().to_owned(),
            format!("{}/{}", status.members, status.min_member),
            status.bound.to_string(),
            status.needs.clone(),
        ]);
    }
    indented(out, &table)?;
    for gang in gangs.iter().filter(|gang| gang.status.phase != Phase::Admitted) {
        let status = &gang.status;
        if !status.message.is_empty() {
            let reason = status.reason.map(|r| format!("{r}: ")).unwrap_or_default();
            paragraph(out, styles::WARN, &format!("{} waits. {reason}{}", gang.name, status.message))?;
        }
        if let Some(remedy) = &status.remedy {
            paragraph(out, styles::FAINT, &format!("remedy: {remedy}"))?;
        }
    }
    Ok(())
}

fn paragraph(out: &mut impl Write, style: anstyle::Style, text: &str) -> io::Result<()> {
    for line in wrapped(text, "  ") {
        writeln!(out, "{}", styled(style, line))?;
    }
    Ok(())
}

/// Prints a bar for every card: its used memory and the pods that use it.
pub(super) fn cards(out: &mut impl Write, nodes: &[NodeUsage]) -> io::Result<()> {
    let width = nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or_default();
    for node in nodes {
        for (index, card) in node.cards.iter().enumerate() {
            let users: Vec<String> =
                card.pods.iter().map(|(pod, mib)| format!("{} {}", pod.name, mib.0)).collect();
            let note = if node.schedulable { "" } else { " (cordoned)" };
            let line = format!(
                "  {:width$} [{index}] {}  {}/{}{note}  {}",
                node.name,
                bar(card),
                card.used().0,
                card.vram,
                if users.is_empty() { String::new() } else { styled(styles::FAINT, users.join(", ")) },
            );
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    Ok(())
}

/// Returns the bar of a card: one segment per pod in two alternating shades, then the free part.
fn bar(card: &CardUsage) -> String {
    let total = card.vram.0.max(1);
    let cells = |mib: u64| {
        usize::try_from((mib.saturating_mul(CARD_BAR_CHARS) + total / 2) / total).unwrap_or(usize::MAX)
    };
    let whole = usize::try_from(CARD_BAR_CHARS).unwrap_or(usize::MAX);
    let (mut bar, mut sum, mut done) = (String::new(), 0_u64, 0_usize);
    for (index, (_, mib)) in card.pods.iter().enumerate() {
        sum = sum.saturating_add(mib.0);
        let upto = cells(sum).min(whole);
        let block = if index % 2 == 0 { "█" } else { "▓" };
        bar.push_str(&styled(
            styles::CARDS[index % styles::CARDS.len()],
            block.repeat(upto.saturating_sub(done)),
        ));
        done = upto.max(done);
    }
    bar.push_str(&styled(styles::FAINT, "░".repeat(whole.saturating_sub(done))));
    bar
}

/// Prints the events of the engines.
pub(super) fn events(out: &mut impl Write, step: &StepResult) -> io::Result<()> {
    for event in &step.events {
        let style = if event.note.warning { styles::WARN } else { styles::FAINT };
        let text = format!(
            "engine {}: {} {}: {}",
            event.replica, event.note.gang.name, event.note.reason, event.note.message
        );
        paragraph(out, style, &text)?;
    }
    Ok(())
}

/// Prints every expectation with its result, and every violated invariant.
pub(super) fn expectations(out: &mut impl Write, file: &str, step: &StepResult) -> io::Result<()> {
    for expectation in &step.expectations {
        match &expectation.verdict {
            Ok(()) => writeln!(out, "  {} {}", styled(styles::GOOD, "✓"), expectation.text)?,
            Err(found) => {
                writeln!(
                    out,
                    "  {} {file}:{}: expected that {}",
                    styled(styles::BAD, "✗"),
                    expectation.line,
                    expectation.text
                )?;
                writeln!(out, "    got: {found}")?;
            }
        }
    }
    for violation in &step.violations {
        writeln!(out, "  {} {violation}", styled(styles::BAD, "INVARIANT VIOLATED"))?;
    }
    Ok(())
}

/// Formats a duration like `0.25 s`.
pub(super) fn seconds(time: Duration) -> String {
    format!("{}.{:02} s", time.as_secs(), time.subsec_millis() / 10)
}

/// Returns a step as one JSON object.
pub(super) fn record(step: &StepResult) -> Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "step": step.number, "line": step.line, "say": step.say, "commands": step.commands, "output": step.output,
        "warnings": step.warnings,
        "rejected": step.rejected.iter().map(|r| json!({"name": r.name, "causes": r.causes})).collect::<Vec<_>>(),
        "events": step.events.iter().map(|t| json!({"replica": t.replica, "gang": t.note.gang.to_string(),
            "reason": t.note.reason, "message": t.note.message, "warning": t.note.warning})).collect::<Vec<_>>(),
        "tookMillis": millis(step.took), "atMillis": millis(step.at),
        "pods": step.pods.iter().map(|p| json!({"pod": p.key.to_string(), "status": p.status, "gated": p.gated,
            "node": p.node, "cards": p.cards})).collect::<Vec<_>>(),
        "gangs": step.gangs.iter().map(|g| json!({"gang": format!("{}/{}", g.namespace, g.name), "status": g.status}))
            .collect::<Vec<_>>(),
        "nodes": step.nodes.iter().map(|n| json!({"node": n.name, "schedulable": n.schedulable,
            "cards": n.cards.iter().map(|c| json!({"vramMib": c.vram.0, "usedMib": c.used().0})).collect::<Vec<_>>()}))
            .collect::<Vec<_>>(),
        "expectations": step.expectations.iter().map(|e| json!({"line": e.line, "text": e.text,
            "holds": e.verdict.is_ok(), "got": e.verdict.as_ref().err()})).collect::<Vec<_>>(),
        "violations": step.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "good": step.is_as_expected(),
    })
}

fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().copied());
    table
}

fn indented(out: &mut impl Write, table: &Table) -> io::Result<()> {
    for line in table.to_string().lines() {
        writeln!(out, " {}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use portcullis_core::model::{PodKey, VramMib};

    use super::*;

    #[test]
    fn the_bar_shows_the_used_memory_of_a_card() {
        let check = |vram: u64, pods: &[u64], expected: &str| {
            let pods = pods.iter().map(|mib| (PodKey::new("default", "p"), VramMib(*mib))).collect();
            let text =
                anstream::adapter::strip_str(&bar(&CardUsage { vram: VramMib(vram), pods })).to_string();
            assert_eq!(text, expected);
        };
        check(32_768, &[], "░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░");
        check(32_768, &[16_384], "████████████████░░░░░░░░░░░░░░░░");
        check(32_768, &[8192, 8192], "████████▓▓▓▓▓▓▓▓░░░░░░░░░░░░░░░░");
        check(32_768, &[32_768], "████████████████████████████████");
        // An overbooked card, or one without a memory label, must not panic. The numbers beside the bar show
        // it.
        check(0, &[5], "████████████████████████████████");
    }

    #[test]
    fn text_is_wrapped_into_lines() {
        assert_eq!(wrapped("a b\nc", "  "), ["  a b c"]);
        assert_eq!(wrapped("", "  "), Vec::<String>::new());
        let long = "word ".repeat(60);
        assert!(wrapped(&long, "  ").iter().all(|line| line.chars().count() <= TEXT_WIDTH_CHARS));
    }
}
