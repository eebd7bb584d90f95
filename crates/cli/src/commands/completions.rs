//! `leasehold completions SHELL`

use clap::CommandFactory;

use crate::args::{Cli, Completions};
use crate::commands::Done;
use crate::exit::Exit;
use crate::output::Out;

pub(crate) fn run(args: &Completions) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leasehold", &mut script);
    let mut out = Out::stdout();
    out.bytes(&script)?;
    out.flush()?;
    Ok(Exit::OK)
}
