//! `leasehold doctor`: what was found about the store, the worst first.

use std::ffi::OsStr;
use std::io;

use leasehold::{Finding, Grade, Report, Visit};
use serde_json::{Value, json};

use crate::args::{self, Format, Global};
use crate::commands::{Done, catch, ended_by, label_for};
use crate::exit::{Exit, Failure};
use crate::output::{Look, Out, printable};
use crate::signals::Signals;

/// Something was found that endangers locks.
const DANGER: Exit = Exit(1);

pub(crate) async fn run(global: Global, args: args::Doctor) -> Done {
    let mut signals = catch(Signals::that_end_us())?;
    let visit = tokio::select! {
        visit = visit(&global, &args) => visit?,
        signal = signals.next_that_ends_us() => return Err(ended_by(signal)),
    };
    let report = tokio::select! {
        report = visit.examine() => Ok(report),
        signal = signals.next_that_ends_us() => Err(ended_by(signal)),
    };
    visit.close().await;
    let report = report?;
    print(&report, global.format)?;
    Ok(if report.endangers_locks() { DANGER } else { Exit::OK })
}

async fn visit(global: &Global, args: &args::Doctor) -> Result<Visit, Failure> {
    let label = global.label.clone().unwrap_or_else(|| label_for(OsStr::new("leasehold")));
    let doctor = leasehold::Doctor::new().label(label).lease(args.lease);
    Ok(doctor.visit(global.store.as_deref().unwrap_or("")).await?)
}

fn print(report: &Report, format: Format) -> io::Result<()> {
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&json_of(report))?,
        Format::Text => text(&mut out, report)?,
    }
    out.flush()
}

fn text(out: &mut Out, report: &Report) -> io::Result<()> {
    let width = report.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    for grade in Grade::WORST_FIRST {
        for finding in report.findings.iter().filter(|finding| finding.grade == grade) {
            finding_text(out, finding, width)?;
        }
    }
    out.line("")?;
    let url = out.paint(&printable(&report.url), Look::Name);
    out.line(&format!("{url}: {}", summary(report)))
}

/// One line if it is good; else why it matters and what to do about it below.
fn finding_text(out: &mut Out, finding: &Finding, width: usize) -> io::Result<()> {
    let grade = out.paint(&format!("{:<7}", finding.grade.as_str()), look(finding.grade));
    let node = finding.node.as_ref().map_or_else(String::new, |node| format!("{node}: "));
    let what = format!("{node}{}", finding.what);
    out.line(&format!("{grade}  {:<width$}  {}", finding.check, printable(&what)))?;
    if finding.grade == Grade::Good {
        return Ok(());
    }
    let indent = " ".repeat("warning".len() + 2);
    for (word, text) in [("why", Some(&finding.why)), ("fix", finding.fix.as_ref())] {
        if let Some(text) = text {
            let word = out.paint(&format!("{word:<width$}"), Look::Faint);
            out.line(&format!("{indent}{word}  {}", printable(text)))?;
        }
    }
    Ok(())
}

fn look(grade: Grade) -> Look {
    match grade {
        Grade::Danger => Look::Bad,
        Grade::Warning => Look::Heading,
        Grade::Note => Look::Name,
        Grade::Good => Look::Good,
    }
}

/// `locks are in danger here (1 danger, 2 warnings, 9 good)`
fn summary(report: &Report) -> String {
    let count = |grade| report.findings.iter().filter(|finding| finding.grade == grade).count();
    let counts = Grade::WORST_FIRST.into_iter().filter_map(|grade| match (count(grade), grade) {
        (0, _) => None,
        (1, _) | (_, Grade::Good) => Some(format!("{} {grade}", count(grade))),
        (n, _) => Some(format!("{n} {grade}s")),
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    let verdict = match report.worst() {
        Grade::Danger => "locks are in danger here",
        Grade::Warning => "locks work, and could be safer or faster",
        Grade::Note | Grade::Good => "nothing endangers locks",
    };
    format!("{verdict} ({counts})")
}

fn json_of(report: &Report) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "grade": finding.grade.as_str(),
            "check": finding.check,
            "node": finding.node,
            "what": finding.what,
            "why": finding.why,
            "fix": finding.fix,
        })
    };
    json!({
        "store": report.traits.store,
        "url": report.url,
        "worst": report.worst().as_str(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
