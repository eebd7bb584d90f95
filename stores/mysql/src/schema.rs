//! The tables.

use leasehold_core::Result;
use leasehold_core::url::StoreUrl;
use leasehold_sql::row::{COLUMNS, Sort};

use crate::config::Config;

/// The version of the tables. Another one is not understood.
pub(crate) const VERSION: i64 = 1;

/// Text that only this program writes.
const PLAIN: &str = "CHARACTER SET ascii COLLATE ascii_bin";

/// Text of people. Never compared.
const FREE: &str = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

/// The statements that create the tables of the store at this URL: for whoever may not let programs create tables.
pub fn ddl(url: StoreUrl) -> Result<String> {
    let config = Config::from_url(url)?;
    let all = tables(&config).into_iter().chain([slots(&config.table("slots")), view(&config)]);
    Ok(all.map(|statement| statement + ";\n").collect())
}

/// The statements that create the tables.
pub(crate) fn tables(config: &Config) -> Vec<String> {
    let table = |name| config.table(name);
    let columns = |must: &str| {
        let column = |(name, sort): &(&str, Sort)| {
            let may_be_empty = ["token", "held_since", "block", "block_end"].contains(name);
            let kind = match sort {
                Sort::Number => "BIGINT".to_owned(),
                Sort::Text(most) if *name == "label" => format!("VARCHAR({most}) {FREE}"),
                Sort::Text(most) => format!("VARCHAR({most}) {PLAIN}"),
            };
            format!("  {name} {kind}{}", if may_be_empty { " NULL" } else { must })
        };
        COLUMNS.iter().map(column).collect::<Vec<_>>().join(",\n")
    };
    let (own, front) = (columns(" NOT NULL"), columns(" NULL"));
    vec![
        format!(
            "-- A row per lock. The entry at the front of its queue (the holder) is in it; the others have rows of their own. One that was
-- freed has left. Times are microseconds since 1970 by the clock of the database. Names are bytes: no collation makes two of them one.
CREATE TABLE IF NOT EXISTS {} (
  name VARBINARY(1024) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  last BIGINT NOT NULL,
  permit_limit BIGINT NULL,
  line BIGINT NOT NULL,
  rest BIGINT NOT NULL,
  keep BIGINT NOT NULL,
{front}
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
            table("locks")
        ),
        format!(
            "-- A row per entry behind the front.
CREATE TABLE IF NOT EXISTS {} (
  name VARBINARY(1024) NOT NULL,
{own},
  PRIMARY KEY (name, entry),
  KEY line (name, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
            table("entries")
        ),
        format!(
            "-- What sessions are told.
CREATE TABLE IF NOT EXISTS {} (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  session VARCHAR(32) {PLAIN} NOT NULL,
  at BIGINT NOT NULL,
  body TEXT {FREE} NOT NULL,
  KEY session (session, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
            table("mail")
        ),
        format!(
            "-- Sessions that watch.
CREATE TABLE IF NOT EXISTS {} (
  session VARCHAR(32) {PLAIN} NOT NULL PRIMARY KEY,
  wake VARCHAR(64) {PLAIN} NOT NULL,
  until BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
            table("watch")
        ),
        format!(
            "-- The version of these tables.
CREATE TABLE IF NOT EXISTS {} (version BIGINT NOT NULL PRIMARY KEY) ENGINE=InnoDB",
            table("schema")
        ),
        format!("INSERT IGNORE INTO {} VALUES ({VERSION})", table("schema")),
    ]
}

/// How many rows there are to lock for transactions: 4 to the power of 7.
pub(crate) const SLOTS: u64 = 16_384;

/// The statement that creates the rows that transactions lock. Only they need them, so the store itself does not create them.
pub(crate) fn slots(table: &str) -> String {
    let digits =
        (0..7).map(|place| format!("d{place}.n * {}", 4_u64.pow(place))).collect::<Vec<_>>().join(" + ");
    let four = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3)";
    let from = (0..7).map(|place| format!("{four} d{place}")).collect::<Vec<_>>().join(",\n  ");
    format!(
        "-- Rows to lock for transactions that take a lock of their own. They are never written again.
CREATE TABLE IF NOT EXISTS {table} (slot INT NOT NULL PRIMARY KEY) ENGINE=InnoDB AS
SELECT {digits} AS slot FROM
  {from}"
    )
}

/// The statement that creates what people look at. The store itself does without.
pub(crate) fn view(config: &Config) -> String {
    let shown = "CONVERT(name USING utf8mb4) AS name, entry, session, label, state, want, permits, token, \
                 FROM_UNIXTIME(ends / 1000000) AS ends, FROM_UNIXTIME(since / 1000000) AS since, seq";
    format!(
        "-- Who holds and who waits, for people.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {} AS
  SELECT {shown} FROM {} WHERE entry IS NOT NULL AND state <> 'freed'
  UNION ALL
  SELECT {shown} FROM {}",
        config.table("queue"),
        config.table("locks"),
        config.table("entries")
    )
}
