//! What was left for a session, each letter delivered once although it is removed only afterwards: whoever waits for a letter need not
//! wait for its removal.

use std::collections::HashSet;

use leasehold_core::{Result, SessionId};
use tokio::sync::{Mutex, MutexGuard};

use crate::sql::{Outcome, number, string};

/// Letters that were delivered, and may still be in the table.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<HashSet<i64>>);

/// The right to look into the mailbox. One looks at a time, or two would deliver the same.
pub(crate) struct Key<'a>(MutexGuard<'a, HashSet<i64>>);

impl Mailbox {
    pub(crate) async fn open(&self) -> Key<'_> {
        Key(self.0.lock().await)
    }
}

impl Key<'_> {
    /// Which of the letters in the table are new.
    pub(crate) fn new_ones(&mut self, found: &Outcome) -> Result<Vec<String>> {
        let rows: Vec<(i64, String)> =
            found.rows.iter().map(|row| Ok((number(row, 0)?, string(row, 1)?))).collect::<Result<_>>()?;
        let ids = rows.iter().map(|(id, _)| *id).collect();
        // Those that are not in the table any more never come again.
        let before = std::mem::replace(&mut *self.0, ids);
        Ok(rows.into_iter().filter(|(id, _)| !before.contains(id)).map(|(_, body)| body).collect())
    }

    /// The statement that removes what was delivered, if there is anything.
    pub(crate) fn removal(&self, table: &str, session: SessionId) -> Option<String> {
        let mut ids: Vec<i64> = self.0.iter().copied().collect();
        ids.sort_unstable();
        let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
        (!ids.is_empty()).then(|| {
            format!("DELETE FROM {table} WHERE session = '{session}' AND id IN ({})", ids.join(", "))
        })
    }
}

/// The statement that finds all letters of a session.
pub(crate) fn look(table: &str, session: SessionId) -> String {
    format!("SELECT id, body FROM {table} WHERE session = '{session}' ORDER BY id")
}

#[cfg(test)]
mod tests {
    use mysql_async::Value;

    use super::*;

    fn table(ids: &[i64]) -> Outcome {
        let row = |id: &i64| vec![Value::Int(*id), Value::Bytes(format!("letter {id}").into_bytes())];
        Outcome { rows: ids.iter().map(row).collect(), ..Outcome::default() }
    }

    #[tokio::test]
    async fn a_letter_is_delivered_once_though_it_is_still_there() {
        let (mailbox, session) = (Mailbox::default(), SessionId(1));
        let mut key = mailbox.open().await;
        assert_eq!(key.removal("mail", session), None);
        assert_eq!(key.new_ones(&table(&[4, 7])).unwrap(), ["letter 4", "letter 7"]);
        let removal = key.removal("mail", session).unwrap();
        assert!(removal.ends_with("AND id IN (4, 7)"), "{removal}");
        // One that was written before the last and became visible after it.
        assert_eq!(key.new_ones(&table(&[4, 6, 7])).unwrap(), ["letter 6"]);
        assert_eq!(key.new_ones(&table(&[])).unwrap(), [""; 0]);
        assert_eq!(key.removal("mail", session), None);
    }
}
