//! Every call of the program in the README and in docs is one that it understands.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use clap::Parser;

use crate::args::Cli;

/// Where pages are, from the root of the project.
const PLACES: [&str; 3] = [".", "docs", "docs/decisions"];

fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = PLACES.iter().flat_map(|place| fs::read_dir(root.join(place)).expect("a folder"));
    let paths = files.map(|file| file.expect("a file").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "md"));
    paths.map(|path| (path.clone(), fs::read_to_string(&path).expect("a page"))).collect()
}

/// The lines between fences of a page, if these say no other language than a shell's. A line that ends in a backslash, or
/// within quotes, goes on.
fn shell_lines(page: &str) -> Vec<String> {
    let (mut found, mut inside, mut shell) = (Vec::new(), false, false);
    let mut open: Option<String> = None;
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            shell = matches!(language, "" | "sh" | "console" | "bash");
            open = None;
        } else if inside && shell {
            let whole = open.take().map_or(line.to_owned(), |before| format!("{before}\n{line}"));
            if whole.ends_with('\\') || whole.matches('\'').count() % 2 == 1 {
                open = Some(whole.trim_end_matches('\\').to_owned());
            } else {
                found.push(whole);
            }
        }
    }
    found
}

/// The words of the commands of a line, as a shell sees them. Variables and patterns are left as they are.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote) = (None::<String>, None);
    for c in line.chars().chain(iter::once('\n')) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '|' | '&' | ';' | '>' | '<' | '(' | ')') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    commands
}

/// The arguments, if the command is a call of the program: behind a prompt, a cron time, variables, or `cargo run --`.
fn call(mut words: &[String]) -> Option<Vec<String>> {
    if words.first().is_some_and(|word| word == "$") {
        words = &words[1..];
    }
    let cron = words.len() > 5 && words[..5].iter().all(|word| word == "*" || word.parse::<u8>().is_ok());
    if cron {
        words = &words[5..];
    }
    while let Some((first, rest)) = words.split_first() {
        match first.as_str() {
            "leasehold" => return Some(words.to_vec()),
            "cargo" if rest.starts_with(&["run".to_owned(), "--".to_owned()]) => {
                return Some(iter::once("leasehold".to_owned()).chain(rest[2..].iter().cloned()).collect());
            }
            "sudo" | "exec" | "time" => words = rest,
            variable if variable.contains('=') => words = rest,
            _ => return None,
        }
    }
    None
}

#[test]
fn every_call_in_the_docs_is_understood() {
    let mut calls = 0;
    for (path, page) in pages() {
        for line in shell_lines(&page) {
            // How the program is called in general, and what it prints itself.
            if line.contains("COMMAND") || line.starts_with("leasehold: ") {
                continue;
            }
            for arguments in commands(&line).iter().filter_map(|words| call(words)) {
                if let Err(e) = Cli::try_parse_from(&arguments) {
                    panic!("{}: {line}\n{arguments:?}\n{e}", path.display());
                }
                calls += 1;
            }
        }
    }
    assert!(calls >= 25, "{calls} calls were found");
}

#[test]
fn lines_are_read_as_a_shell_reads_them() {
    let all = |line: &str| -> Vec<Vec<String>> {
        commands(line).iter().filter_map(|words| call(words)).map(|call| call[1..].to_vec()).collect()
    };
    assert_eq!(all("$ leasehold ls   # who"), [["ls"]]);
    assert_eq!(all("0 3 * * *  leasehold show \"a b\" | less"), [["show", "a b"]]);
    assert_eq!(all("LEASEHOLD_STORE=x leasehold ls && cargo run -- ls || echo leasehold"), [["ls"], ["ls"]]);
    assert_eq!(
        shell_lines("```sh\na \\\nb\n```\n```rust\nc\n```\n```\nd 'e\nf'\n```"),
        ["a \nb", "d 'e\nf'"]
    );
}
