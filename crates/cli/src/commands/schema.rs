//! `leasehold schema mysql|postgres`: the tables, for those who create them by hand.

use crate::args::{self, Dialect, Global};
use crate::commands::Done;
use crate::exit::Exit;
use crate::output::Out;

pub(crate) fn run(global: &Global, args: &args::Schema) -> Done {
    let (usual, schemes) = match args.dialect {
        Dialect::Mysql => ("mysql://user@host/database", ["mysql:", "mariadb:"]),
        Dialect::Postgres => ("postgres://user@host/database", ["postgres:", "postgresql:"]),
    };
    // The prefix and the schema are in the URL, if the store is one of this sort.
    let given = global.store.as_deref().filter(|url| schemes.iter().any(|scheme| url.starts_with(scheme)));
    let mut out = Out::stdout();
    out.bytes(leasehold::schema(given.unwrap_or(usual))?.as_bytes())?;
    out.flush()?;
    Ok(Exit::OK)
}
