//! Makes one function of each piece of Rust in the README and in docs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Where pages are, from the root of the project.
const PLACES: [&str; 3] = [".", "docs", "docs/decisions"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut functions = String::new();
    let mut count = 0;
    for place in PLACES {
        println!("cargo::rerun-if-changed={}", root.join(place).display());
        for page in pages(&root.join(place)) {
            println!("cargo::rerun-if-changed={}", page.display());
            let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
            let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for (line, snippet) in snippets(&text) {
                function(&mut functions, &format!("{place}/{name}"), line, &snippet);
                count += 1;
            }
        }
    }
    writeln!(functions, "/// How many there are.\npub const COUNT: usize = {count};").expect("a string");
    let out = std::env::var("OUT_DIR").expect("cargo says where");
    fs::write(Path::new(&out).join("snippets.rs"), functions).expect("a written file");
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut pages: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages.sort();
    pages
}

/// The pieces between fences that say `rust`, each with the line on which it starts.
fn snippets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let inside: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```").collect();
        if language.split(',').next() == Some("rust") {
            found.push((number + 2, inside.join("\n")));
        }
    }
    found
}

/// One snippet, with all that it may take for given.
fn function(to: &mut String, page: &str, line: usize, snippet: &str) {
    let words = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = page.trim_start_matches("./").chars().map(words).collect();
    let page = page.trim_start_matches("./");
    write!(
        to,
        "/// {page}, line {line}.\n\
         #[allow(unused, clippy::all)]\n\
         pub async fn {name}_{line}(given: Given) -> Done {{\n\
         let Given {{ client, guard, ledger, change, mut db, mut conn }} = given;\n\
         {snippet}\n\
         Ok(())\n\
         }}\n\n"
    )
    .expect("a string");
}
