//! `leasehold schema mysql|postgres`: the tables, for those who create them by hand.

use crate::args::{self, Dialect, Global};
use crate::commands::Done;
use crate::exit::Exit;
use crate::output::Out;

pub(crate) fn run(global: &Global, args: &args::Schema) -> Done {
    let usual = match args.dialect {
        Dialect::Mysql => "mysql://user@host/database",
        Dialect::Postgres => "postgres://user@host/database",
    };
    // The prefix and the schema are in the URL, if the store is one of this sort.
    let sort = usual.split(':').next().unwrap_or(usual);
    let given = global.store.as_deref().filter(|url| url.starts_with(sort));
    let mut out = Out::stdout();
    out.bytes(leasehold::schema(given.unwrap_or(usual))?.as_bytes())?;
    out.flush()?;
    Ok(Exit::OK)
}
