//! The tables.

use leasehold_core::Result;
use leasehold_core::url::StoreUrl;
use leasehold_sql::row::{COLUMNS, Sort};

use crate::config::Config;

/// The version of the tables. Another one is not understood.
pub(crate) const VERSION: i64 = 1;

/// The statements that create the tables of the store at this URL: for whoever may not let programs create tables.
pub fn ddl(url: StoreUrl) -> Result<String> {
    Ok(statements(&Config::from_url(url)?))
}

pub(crate) fn statements(config: &Config) -> String {
    let table = |name| config.table(name);
    let index = format!("{}mail_session", config.options.prefix);
    let line = format!("{}entries_line", config.options.prefix);
    let columns = |must: &str| {
        let column = |(name, sort): &(&str, Sort)| {
            let may_be_empty = ["token", "held_since", "block", "block_end"].contains(name);
            let kind = if *sort == Sort::Number { "bigint" } else { "text" };
            format!("  {name} {kind}{}", if may_be_empty { "" } else { must })
        };
        COLUMNS.iter().map(column).collect::<Vec<_>>().join(",\n")
    };
    let (locks, entries, mail, watch, schema) =
        (table("locks"), table("entries"), table("mail"), table("watch"), table("schema"));
    let own = columns(" NOT NULL");
    let front = columns("");
    let shown = "entry, session, label, state, want, permits, token, to_timestamp(ends / 1e6) AS ends, \
                 to_timestamp(since / 1e6) AS since, seq";
    format!(
        "-- A row per lock. The entry at the front of its queue (the holder) is in it; the others have rows of their own. One that was
-- freed has left. Times are microseconds since 1970 by the clock of the database.
CREATE TABLE IF NOT EXISTS {locks} (
  name text COLLATE \"C\" PRIMARY KEY,
  version bigint NOT NULL,
  last bigint NOT NULL,
  permit_limit bigint,
  line bigint NOT NULL,
  rest bigint NOT NULL,
  keep bigint NOT NULL,
{front}
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- A row per entry behind the front.
CREATE TABLE IF NOT EXISTS {entries} (
  name text COLLATE \"C\" NOT NULL,
{own},
  PRIMARY KEY (name, entry)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX IF NOT EXISTS {line} ON {entries} (name, seq);

-- What sessions are told that can't be told at once.
CREATE TABLE IF NOT EXISTS {mail} (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session text NOT NULL,
  at bigint NOT NULL,
  body text NOT NULL
);
CREATE INDEX IF NOT EXISTS {index} ON {mail} (session, id);

-- Sessions that watch.
CREATE TABLE IF NOT EXISTS {watch} (
  session text PRIMARY KEY,
  wake text NOT NULL,
  until bigint NOT NULL
);

-- The version of these tables.
CREATE TABLE IF NOT EXISTS {schema} (version bigint PRIMARY KEY);
INSERT INTO {schema} VALUES ({VERSION}) ON CONFLICT DO NOTHING;

-- Who holds and who waits, for people.
CREATE OR REPLACE VIEW {view} AS
  SELECT name, {shown} FROM {locks} WHERE entry IS NOT NULL AND state <> 'freed'
  UNION ALL
  SELECT name, {shown} FROM {entries};
",
        view = table("queue")
    )
}
