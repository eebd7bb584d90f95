//! The suite about itself: no store without it, no recipe without a scenario, no scenario that runs nowhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files that every store has, so that whoever knows one finds his way in all.
const STORE_FILES: [&str; 7] = ["config", "lib", "session", "state", "store", "traits", "wake"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root of the project")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{} can't be read: {e}", path.display()))
}

/// The names inside a folder, without their endings.
fn names(folder: &Path, ending: &str) -> BTreeSet<String> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|e| panic!("{} can't be listed: {e}", folder.display()));
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_suffix(ending).map(str::to_owned)).collect()
}

fn stores() -> Vec<PathBuf> {
    let folder = root().join("stores");
    let stores: Vec<PathBuf> = names(&folder, "")
        .into_iter()
        .map(|name| folder.join(name))
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    assert!(stores.len() >= 2, "{stores:?}");
    stores
}

fn groups() -> BTreeSet<String> {
    let mut groups = names(&root().join("crates/testkit/src/conformance"), ".rs");
    assert!(groups.remove("mod"));
    groups
}

fn group(name: &str) -> String {
    read(&root().join(format!("crates/testkit/src/conformance/{name}.rs")))
}

/// The scenarios of a group: its public functions.
fn scenarios(source: &str) -> BTreeSet<String> {
    let functions = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
    functions.filter_map(|rest| rest.split_once('(')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn every_store_runs_the_suite() {
    for store in stores() {
        let test = read(&store.join("tests/conformance.rs"));
        let calls = test.lines().filter(|line| line.starts_with("leasehold_testkit::conformance!(")).count();
        assert_eq!(calls, 1, "{} runs the suite with one line", store.display());
    }
}

#[test]
fn every_store_has_the_same_file_names_inside() {
    for store in stores() {
        let files = names(&store.join("src"), ".rs");
        let missing: Vec<_> = STORE_FILES.iter().filter(|file| !files.contains(**file)).collect();
        assert!(missing.is_empty(), "{} has no src file named {missing:?}", store.display());
    }
}

#[test]
fn every_scenario_is_in_the_one_list() {
    let list = read(&root().join("crates/testkit/src/list.rs"));
    let mut listed = BTreeSet::new();
    let mut current = String::new();
    for line in list.lines().map(str::trim) {
        match line.strip_suffix(" {") {
            Some(name) if groups().contains(name) => current = name.to_owned(),
            _ if !current.is_empty() && line == "}" => current.clear(),
            _ if !current.is_empty() => {
                assert!(listed.insert(format!("{current}::{line}")), "{line} is listed twice")
            }
            _ => {}
        }
    }
    let mut written = BTreeSet::new();
    for name in groups() {
        let found = scenarios(&group(&name));
        assert!(!found.is_empty(), "the group {name} is empty");
        written.extend(found.into_iter().map(|scenario| format!("{name}::{scenario}")));
    }
    assert!(listed.len() > 100, "the list was not understood");
    assert_eq!(listed, written, "what is listed, against what is written");
}

#[test]
fn every_scenario_of_sql_stores_is_in_their_list() {
    let folder = root().join("crates/testkit/src/sql");
    let list = read(&folder.join("list.rs"));
    let listed = |name: &str| list.lines().any(|line| line.trim() == name);
    let mut found = 0;
    for file in
        names(&folder, ".rs").iter().filter(|file| !["mod", "list", "server"].contains(&file.as_str()))
    {
        let all = scenarios(&read(&folder.join(format!("{file}.rs"))));
        // The others help.
        for scenario in all.iter().filter(|name| name.ends_with("<D: Database>")) {
            assert!(
                listed(scenario.split('<').next().unwrap_or_default()),
                "{file}::{scenario} is not listed"
            );
            found += 1;
        }
    }
    assert!(found > 15, "the files were not understood");
}

#[test]
fn every_recipe_has_scenarios() {
    let all: String = groups().iter().map(|name| group(name)).collect();
    let mut recipes = names(&root().join("crates/client/src/recipes"), ".rs");
    assert!(recipes.remove("mod"));
    assert!(recipes.contains("mutex") && recipes.len() >= 6, "{recipes:?}");
    for recipe in recipes {
        let calls = all.matches(&format!(".{recipe}(")).count();
        assert!(calls >= 3, "the recipe {recipe} is used by {calls} scenarios");
    }
}

#[test]
fn every_numbered_scenario_has_a_test_or_a_reason() {
    let index = group("mod");
    let needs_a_server = [8, 9, 18, 20];
    let faults: String = names(&root().join("crates/testkit/tests/faults"), ".rs")
        .iter()
        .map(|name| read(&root().join(format!("crates/testkit/tests/faults/{name}.rs"))))
        .collect();
    let all = groups().iter().map(|name| group(name)).collect::<String>() + &faults;
    for number in 1..=20 {
        assert!(index.contains(&format!("//! {number}. ")), "scenario {number} is not in the index");
        let mentioned = [
            format!("cenario {number}."),
            format!("cenario {number}:"),
            format!("cenario {number},"),
            format!("cenario {number})"),
            format!("cenario {number} "),
            format!("cenarios {number} "),
            format!(" and {number})"),
        ]
        .iter()
        .any(|mention| all.contains(mention.as_str()));
        assert!(mentioned || needs_a_server.contains(&number), "no test says that it is scenario {number}");
    }
}

/// All source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries =
        fs::read_dir(folder).unwrap_or_else(|e| panic!("{} can't be listed: {e}", folder.display()));
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}

/// What [`leasehold_client::docs`] promises to whoever filters the log by its target.
#[test]
fn every_line_of_the_log_has_the_target_that_the_docs_name() {
    let folders = ["crates", "stores"].map(|folder| root().join(folder));
    // The program writes to stderr, and the testkit is no part of anyone's program.
    let ours = |path: &PathBuf| {
        let shown = path.display().to_string();
        shown.contains("/src/") && !shown.contains("/testkit/")
    };
    let mut found = 0;
    for path in folders.iter().flat_map(|folder| sources(folder)).filter(ours) {
        let text = read(&path);
        for event in ["error!(", "warn!(", "info!("] {
            for (at, _) in text.match_indices(&format!("tracing::{event}")) {
                let arguments = text[at..].split_once('(').map_or("", |(_, rest)| rest.trim_start());
                let line = text[..at].lines().count();
                let place = format!("{}:{line}", path.display());
                assert!(arguments.starts_with("target: \"leasehold\""), "{place} has another target");
                found += 1;
            }
        }
        let imports =
            text.lines().any(|line| line.trim_start().starts_with("use tracing::{") && line.contains("warn"));
        assert!(!imports, "{} imports a macro: write `tracing::warn!`, which is looked for", path.display());
    }
    assert!(found >= 10, "the sources were not understood");
}

/// The type that an `impl` or a trait at the beginning of a line is about, if it is one whose functions are public by
/// themselves or say so.
fn subject(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl").or_else(|| line.strip_prefix("pub trait "))?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ")?.1,
        None => rest,
    };
    let name: String = rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!rest.contains(" for ")).then_some(name)
}

/// The types that are a future or a stream.
fn awaitable(text: &str) -> BTreeSet<String> {
    let awaited = text.lines().filter(|line| line.starts_with("impl")).filter_map(|line| {
        let (of, rest) = line.split_once(" for ")?;
        let name = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        (of.ends_with("Stream") || of.ends_with("Future")).then_some(name)
    });
    awaited.collect()
}

/// The public functions of a file that are awaited: async ones, and those that give a future or a stream.
fn operations(text: &str, awaitable: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut of, mut is_trait) = (None, false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("impl") || line.starts_with("pub trait ") {
            (of, is_trait) = (subject(line), line.starts_with("pub trait "));
        } else if line == "}" {
            of = None;
        }
        let inside = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '));
        let (declared, of) = match (&of, inside) {
            (Some(of), Some(inside)) if is_trait => (Some(inside), format!("{of}::")),
            (Some(of), Some(inside)) => (inside.strip_prefix("pub "), format!("{of}::")),
            _ => (line.strip_prefix("pub "), String::new()),
        };
        let Some(declared) = declared else { continue };
        let (is_async, rest) = match declared.strip_prefix("async ") {
            Some(rest) => (true, rest),
            None => (false, declared),
        };
        let Some(rest) = rest.strip_prefix("fn ") else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // The signature, which may go over several lines.
        let mut signature = rest.to_owned();
        while !signature.ends_with('{') && !signature.ends_with(';') {
            signature += lines.next().expect("the rest of a signature").trim();
        }
        let returned = signature.rsplit_once("-> ").map_or("", |(_, returned)| returned);
        let words: BTreeSet<&str> = returned.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let gives = ["Future", "Stream", "Pending"].iter().any(|word| words.contains(word));
        if is_async || gives || words.iter().any(|word| awaitable.contains(*word)) {
            found.insert(format!("{of}{name}"));
        }
    }
    found
}

/// What is driven by something else than the cancellation matrix, and why.
const NOT_IN_THE_MATRIX: [(&str, &str); 7] = [
    ("connect", "parses a URL and calls ClientBuilder::open"),
    ("connect_with", "parses a URL and calls ClientBuilder::open"),
    ("open_store", "opens no session"),
    ("doctor", "looks at a store, with locks of its own that it releases"),
    ("Doctor::visit", "opens a client"),
    ("Visit::examine", "looks at a store, with locks of its own that it releases"),
    ("Visit::close", "calls Client::close"),
];

#[test]
fn every_public_async_operation_is_a_row_of_the_cancellation_matrix() {
    let folders = ["crates/client/src", "crates/leasehold/src"].map(|folder| root().join(folder));
    let texts: Vec<String> =
        folders.iter().flat_map(|folder| sources(folder)).map(|path| read(&path)).collect();
    let awaitable = texts.iter().flat_map(|text| awaitable(text)).collect();
    let public: BTreeSet<String> = texts.iter().flat_map(|text| operations(text, &awaitable)).collect();
    assert!(
        public.len() > 50 && public.contains("Client::list"),
        "the source was not understood: {public:?}"
    );
    let rows = leasehold_testkit::cancellation_matrix::operations::all();
    let rows: BTreeSet<String> = rows.iter().map(|row| row.api.to_owned()).collect();
    let excused: BTreeSet<String> = NOT_IN_THE_MATRIX.iter().map(|(name, _)| (*name).to_owned()).collect();
    let missing: Vec<_> = public.difference(&rows).filter(|name| !excused.contains(*name)).collect();
    assert!(missing.is_empty(), "no row of the cancellation matrix drives {missing:?}");
    let stale: Vec<_> = rows.union(&excused).filter(|name| !public.contains(*name)).collect();
    assert!(stale.is_empty(), "these rows or excuses are about nothing: {stale:?}");
}

#[test]
fn a_public_operation_is_recognised() {
    let text = "impl Client {\n    pub async fn close(&self) {\n    }\n    pub(crate) async fn x() {\n    }\n    \
                pub fn list(\n        &self,\n    ) -> Listing {\n    }\n    pub fn label(&self) -> &Label {\n    }\n}\n\
                impl Stream for Listing {\n    fn poll_next() {\n    }\n}\n\
                pub trait Scope {\n    fn scope<F: Future>(self) -> impl Future<Output = ()>;\n    fn name(&self) -> &str;\n}\n\
                pub async fn connect(url: &str) -> Client {\n}\n";
    let found: Vec<String> = operations(text, &awaitable(text)).into_iter().collect();
    assert_eq!(found, ["Client::close", "Client::list", "Scope::scope", "connect"]);
}
