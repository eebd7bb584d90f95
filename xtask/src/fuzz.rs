//! The fuzzer of the public API, for as long as one likes, and the whole cancellation matrix.

use std::fs;

use crate::sh::{self, Cmd, Done};
use crate::tools;

/// What a run is given besides the stores.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options<'a> {
    /// A store, or `matrix`; all stores if none is given.
    what: Option<&'a str>,
    claims: Option<&'a str>,
    seed: Option<&'a str>,
}

/// Runs the fuzzer on one store or on all, one after the other, or the whole matrix.
pub(crate) fn run(args: &[&str]) -> Done {
    let options = parse(args)?;
    tools::ensure(tools::FOR_TESTS)?;
    if options.what == Some("matrix") {
        let test = ["test", "-p", "leasehold-testkit", "--test", "cancellation_matrix", "--"];
        let only = ["--ignored", "--exact", "--nocapture", "the_whole_matrix"];
        return Cmd::cargo().args(test).args(only).run();
    }
    let stores = stores()?;
    let chosen: Vec<&String> =
        stores.iter().filter(|store| options.what.is_none_or(|what| what == *store)).collect();
    if chosen.is_empty() {
        let what = options.what.unwrap_or_default();
        return Err(format!("there is no store {what:?}; there are {} and `matrix`", stores.join(", ")));
    }
    let failed: Vec<String> = chosen.into_iter().filter_map(|store| fuzz(store, &options).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\nxtask: ")) }
}

/// The fuzzer is a test of every store.
fn fuzz(store: &str, options: &Options<'_>) -> Done {
    let package = format!("leasehold-{store}");
    let mut cargo = Cmd::cargo_with_all_signals().args([
        "test",
        "-p",
        &package,
        "--test",
        "conformance",
        "--",
        "--exact",
        "--nocapture",
        "fuzz",
    ]);
    for (variable, value) in
        [("LEASEHOLD_FUZZ_CLAIMS", options.claims), ("LEASEHOLD_FUZZ_SEED", options.seed)]
    {
        if let Some(value) = value {
            cargo = cargo.env(variable, value);
        }
    }
    cargo.run()
}

fn parse<'a>(args: &[&'a str]) -> Done<Options<'a>> {
    let mut options = Options::default();
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        let place = match arg {
            "--claims" => &mut options.claims,
            "--seed" => &mut options.seed,
            what if !what.starts_with('-') && options.what.is_none() => {
                options.what = Some(what);
                continue;
            }
            other => return Err(format!("`fuzz` does not know {other:?}; try `cargo xtask help`")),
        };
        *place = Some(args.next().ok_or_else(|| format!("{arg} needs a number"))?);
    }
    Ok(options)
}

fn stores() -> Done<Vec<String>> {
    let folder = sh::root().join("stores");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut stores: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    stores.sort();
    Ok(stores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_and_numbers_in_any_order() {
        let expected = Options { what: Some("redis"), claims: Some("1000"), seed: Some("7") };
        assert_eq!(parse(&["--claims", "1000", "redis", "--seed", "7"]), Ok(expected));
        assert_eq!(parse(&[]), Ok(Options::default()));
        assert!(parse(&["--claims"]).is_err() && parse(&["--loud"]).is_err());
    }

    #[test]
    fn every_store_can_be_fuzzed() {
        let stores = stores().unwrap();
        assert!(stores.iter().any(|store| store == "memory") && stores.len() >= 7, "{stores:?}");
    }
}
