//! `leasehold man [COMMAND]`

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::{self, Cli};
use crate::commands::Done;
use crate::exit::{Exit, Failure};
use crate::output::Out;

pub(crate) fn run(args: &args::Man) -> Done {
    let mut program = Cli::command();
    program.build();
    let page = match &args.command {
        None => program,
        Some(name) => page_of(&program, name)?,
    };
    let mut roff = Vec::new();
    Man::new(page).render(&mut roff)?;
    let mut out = Out::stdout();
    out.bytes(&roff)?;
    out.flush()?;
    Ok(Exit::OK)
}

fn page_of(program: &Command, name: &str) -> Result<Command, Failure> {
    let known = || program.get_subcommands().map(Command::get_name).collect::<Vec<_>>().join(", ");
    let found = program.find_subcommand(name).ok_or_else(|| {
        Failure::usage(format!("there is no command {name:?}"))
            .advice(format!("the commands are {}", known()))
    })?;
    Ok(found.clone())
}
